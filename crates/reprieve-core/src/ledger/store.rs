//! Writes and reads the entries, through the port of records.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::entry::{Boot, Entry, Failure, HealingAction, Interruption};
use super::name;
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, WorkerId};
use crate::names::LEDGER_IDS;
use crate::ports::{ListedRecord, Page, RecordStore, RecordWrite};

/// How many days of failures are listed at a time.
const LISTS_AT_ONCE: usize = 8;

/// The ledger of one store.
#[derive(Debug, Clone)]
pub struct Ledger {
    records: Arc<dyn RecordStore>,
}

/// An entry with its name, so that it is one however often it is tried to be written.
#[derive(Debug)]
pub(crate) struct NamedEntry {
    name: JobId,
    note: String,
}

impl NamedEntry {
    /// Names an entry; one of a drain as the `drain`-th of its worker.
    pub(crate) fn new(entry: Entry, drain: u32) -> Result<Self> {
        let name = name::of(&entry, drain)?;
        let note = serde_json::to_string(&entry.shortened()).map_err(|error| {
            Error::new(ErrorKind::Internal, "write an entry of the ledger", error.to_string())
                .with_source(error)
        })?;
        Ok(Self { name, note })
    }
}

/// Entries of the ledger, each kind in the order of its names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// All boots that are kept, whenever they were.
    pub boots: Vec<Boot>,
    /// All interruptions that are kept, whenever they were.
    pub interruptions: Vec<Interruption>,
    /// The failures since the time that was asked for.
    pub failures: Vec<Failure>,
    /// The healing actions since the time that was asked for.
    pub healings: Vec<HealingAction>,
}

impl Ledger {
    /// The ledger in these records.
    #[must_use]
    pub fn new(records: Arc<dyn RecordStore>) -> Self {
        Self { records }
    }

    /// Writes an entry, unless there is one of its name already: of the same boot, or of the same worker's death.
    /// Returns whether it was written now. One request.
    ///
    /// # Errors
    /// The store's errors. After a timeout the entry may have been written.
    ///
    /// # Cancel safety
    /// As after a timeout.
    pub async fn write(&self, entry: Entry) -> Result<bool> {
        self.write_drain(entry, 0).await
    }

    /// Writes an entry; if it is of a drain, as the `number`-th of its worker.
    pub(crate) async fn write_drain(&self, entry: Entry, number: u32) -> Result<bool> {
        self.put(&NamedEntry::new(entry, number)?).await
    }

    /// Writes an entry under its name, unless that is done. Returns whether it was written now. One request.
    pub(crate) async fn put(&self, NamedEntry { name, note }: &NamedEntry) -> Result<bool> {
        // Lists return the note, and nothing reads the record itself.
        let write = RecordWrite { note: note.clone(), ..RecordWrite::default() };
        match self.records.put(name, None, write).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the ledger: all boots and interruptions, and the rest since `since_unix_ms`, in milliseconds since the
    /// Unix epoch. Takes about one request for each 5,000 entries, and two for each of up to 31 days.
    ///
    /// # Errors
    /// The store's errors. An entry that this version can't read is left out.
    pub async fn read(&self, since_unix_ms: i64) -> Result<Entries> {
        let mut prefixes = vec![name::BOOTS.to_owned(), name::ENDS.to_owned()];
        // A day of grace, for clocks that differ.
        let until = unix_millis().saturating_add(86_400_000);
        for part in [name::FAILURES, name::HEALINGS] {
            prefixes.extend(name::days(part, since_unix_ms, until));
        }
        let lists = prefixes.into_iter().map(|prefix| self.list(prefix));
        let lists: Vec<_> = stream::iter(lists).buffered(LISTS_AT_ONCE).try_collect().await?;
        let mut entries = Entries::default();
        for entry in lists.into_iter().flatten() {
            match entry {
                Entry::Boot(boot) => entries.boots.push(boot),
                Entry::Interruption(interruption) => entries.interruptions.push(*interruption),
                Entry::Failure(it) if it.at_unix_ms >= since_unix_ms => entries.failures.push(it),
                Entry::Healing(it) if it.at_unix_ms >= since_unix_ms => entries.healings.push(it),
                Entry::Failure(_) | Entry::Healing(_) => {}
            }
        }
        Ok(entries)
    }

    /// Reads the interruptions of one worker. One request.
    pub(crate) async fn interruptions_of(&self, worker: &WorkerId) -> Result<Vec<Interruption>> {
        let entries = self.list(name::ends_of(worker)).await?;
        let interruption = |entry| if let Entry::Interruption(it) = entry { Some(*it) } else { None };
        Ok(entries.into_iter().filter_map(interruption).collect())
    }

    async fn list(&self, prefix: String) -> Result<Vec<Entry>> {
        let prefix = &format!("{LEDGER_IDS}{prefix}");
        let read = |at: Option<String>| async move { self.records.page(prefix, at.as_deref()).await };
        let listed = Page::all(read).await?;
        Ok(listed.iter().filter_map(read_entry).collect())
    }
}

fn read_entry(listed: &ListedRecord) -> Option<Entry> {
    serde_json::from_str(&listed.note)
        .inspect_err(|error| {
            tracing::debug!(entry = %listed.job, %error, "failed to read an entry of the ledger; leaving it out");
        })
        .ok()
}
