//! Writes and reads the entries, through the port of records.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use super::entry::{Boot, Entry, Failure, HealingAction, Interruption};
use super::losses::{Count, Counting};
use super::name;
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, WorkerId};
use crate::names::LEDGER_IDS;
use crate::ports::{ListedRecord, Page, RecordStore, RecordWrite, Version, WorkerReport};

/// How many days of failures are listed at a time.
const LISTS_AT_ONCE: usize = 8;

/// How many boots, and how many interruptions, are read at most to count losses: with three times and a name of each
/// machine that is some 20 MB, and 20 requests for each part.
const COUNTED_MAX: usize = 100_000;

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
    is_boot: bool,
}

impl NamedEntry {
    /// Names an entry; one of an interruption by its number among those of its worker.
    pub(crate) fn new(entry: Entry, number: u64) -> Result<Self> {
        let (name, is_boot) = (name::of(&entry, number)?, matches!(entry, Entry::Boot(_)));
        let note = serde_json::to_string(&entry.shortened()).map_err(|error| {
            Error::new(ErrorKind::Internal, "write an entry of the ledger", error.to_string())
                .with_source(error)
        })?;
        Ok(Self { name, note, is_boot })
    }

    /// Whether it says that a machine booted.
    pub(crate) const fn is_boot(&self) -> bool {
        self.is_boot
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
    /// How many entries this version can't read: damaged ones, and those of later versions.
    pub unreadable: u64,
}

/// Entries that a report can't take as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Odd {
    /// Those with a time more than a minute after the reader's: their writer's clock is ahead. They count.
    pub ahead: u64,
    /// Those with a time more than a day after the reader's. They don't.
    pub too_far_ahead: u64,
    /// Those that this version can't read.
    pub unreadable: u64,
}

/// How far ahead of the reader's clock a time may be, because clocks differ.
pub(super) const AHEAD_MAX_MS: i64 = 86_400_000;

/// How far ahead is not worth a word.
const AHEAD_MIN_MS: i64 = 60_000;

impl Entries {
    /// The entries of this time only, by the rule of a [`Summary`](super::Summary): also those of the day after it.
    #[must_use]
    pub fn within(mut self, since_unix_ms: i64, until_unix_ms: i64) -> Self {
        let is_in = |at: i64| contains(since_unix_ms, until_unix_ms, at);
        self.boots.retain(|it| is_in(it.at_unix_ms));
        self.interruptions.retain(|it| is_in(it.at_unix_ms));
        self.failures.retain(|it| is_in(it.at_unix_ms));
        self.healings.retain(|it| is_in(it.at_unix_ms));
        self
    }

    /// Counts the entries that a report at this time can't take as they are.
    #[must_use]
    pub fn odd(&self, now_unix_ms: i64) -> Odd {
        let boots = self.boots.iter().map(|it| it.at_unix_ms);
        let interruptions = self.interruptions.iter().map(|it| it.at_unix_ms);
        let failures = self.failures.iter().map(|it| it.at_unix_ms);
        let healings = self.healings.iter().map(|it| it.at_unix_ms);
        let mut odd = Odd { unreadable: self.unreadable, ..Odd::default() };
        for at in boots.chain(interruptions).chain(failures).chain(healings) {
            let ahead = at.saturating_sub(now_unix_ms);
            odd.too_far_ahead += u64::from(ahead > AHEAD_MAX_MS);
            odd.ahead += u64::from(ahead > AHEAD_MIN_MS && ahead <= AHEAD_MAX_MS);
        }
        odd
    }
}

/// Whether a report from `since` to `until` counts what was at this time.
pub(super) const fn contains(since_unix_ms: i64, until_unix_ms: i64, at: i64) -> bool {
    since_unix_ms <= at && at <= until_unix_ms.saturating_add(AHEAD_MAX_MS)
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
        self.write_numbered(entry, 0).await
    }

    /// Writes an entry. One of a worker's interruptions is told apart from the others by its number: of a drain how many
    /// there were, of a death the time of the last report.
    pub(crate) async fn write_numbered(&self, entry: Entry, number: u64) -> Result<bool> {
        self.put(&NamedEntry::new(entry, number)?, None).await
    }

    /// Writes an entry under its name, in place of this version; without one, unless that is done. Returns whether it was
    /// written now. One request.
    pub(crate) async fn put(
        &self,
        NamedEntry { name, note, .. }: &NamedEntry,
        expected: Option<&Version>,
    ) -> Result<bool> {
        // Lists return the note, and nothing reads the record itself.
        let write = RecordWrite { note: note.clone(), ..RecordWrite::default() };
        match self.records.put(name, expected, write).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes when the machine of this boot was last seen into its entry; writes the entry if there is none. Leaves it
    /// as it is if it was renewed less than `every` ago and nothing else is new, because the workers of a machine all
    /// do this. Returns whether it was written. Three requests: the record's version, its note, which only lists
    /// return, and the write.
    pub(crate) async fn renew(&self, boot: Boot, every: Duration) -> Result<bool> {
        let entry = Entry::Boot(boot.clone());
        let name = name::of(&entry, 0)?;
        let Some(stored) = self.records.load(&name).await? else { return self.write(entry).await };
        // Listed after the load: a note that is newer than the version is refused by the write.
        let part = name.as_str().strip_prefix(LEDGER_IDS).unwrap_or_default().to_owned();
        let listed = self.list(part).await?;
        // One of a later version, or a damaged one, stays as it is.
        let is_it =
            |entry| if let Entry::Boot(it) = entry { (it.boot == boot.boot).then_some(it) } else { None };
        let Some(known) = listed.into_iter().flatten().find_map(is_it) else { return Ok(false) };
        let worked_on_unix_ms = known.worked_on_unix_ms.max(boot.worked_on_unix_ms);
        let seen = boot.seen_unix_ms.unwrap_or(boot.at_unix_ms);
        let age = seen.saturating_sub(known.seen_unix_ms.unwrap_or(known.at_unix_ms));
        if worked_on_unix_ms == known.worked_on_unix_ms
            && u128::try_from(age).unwrap_or(0) < every.as_millis()
        {
            return Ok(false);
        }
        let seen_unix_ms = known.seen_unix_ms.max(Some(seen));
        let renewed = Entry::Boot(Boot { seen_unix_ms, worked_on_unix_ms, ..known });
        self.put(&NamedEntry::new(renewed, 0)?, Some(&stored.version)).await
    }

    /// Reads the ledger: all boots and interruptions, and the rest since `since_unix_ms`, in milliseconds since the
    /// Unix epoch. Takes about one request for each 5,000 entries, and two for each of up to 31 days.
    ///
    /// # Errors
    /// The store's errors. An entry that this version can't read is only counted.
    pub async fn read(&self, since_unix_ms: i64) -> Result<Entries> {
        let mut prefixes = vec![name::BOOTS.to_owned(), name::ENDS.to_owned()];
        let until = unix_millis().saturating_add(AHEAD_MAX_MS);
        for part in [name::FAILURES, name::HEALINGS] {
            prefixes.extend(name::days(part, since_unix_ms, until));
        }
        let lists = prefixes.into_iter().map(|prefix| self.list(prefix));
        let lists: Vec<_> = stream::iter(lists).buffered(LISTS_AT_ONCE).try_collect().await?;
        let mut entries = Entries::default();
        for entry in lists.into_iter().flatten() {
            let Some(entry) = entry else {
                entries.unreadable += 1;
                continue;
            };
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

    /// Counts the losses of work and the time of machines in all boots and interruptions that are kept; `reports` are
    /// those in the roster. Takes about one request for each 5,000 entries, one after the other.
    ///
    /// # Errors
    /// The store's errors, and [`TooLarge`](ErrorKind::TooLarge) for more than 100,000 boots or interruptions. An entry
    /// that this version can't read is left out.
    pub async fn count_losses(&self, reports: &[WorkerReport]) -> Result<Count> {
        let mut counting = Counting::default();
        for part in [name::BOOTS, name::ENDS] {
            let prefix = format!("{LEDGER_IDS}{part}");
            let (mut at, mut read) = (None, 0);
            loop {
                let page = self.records.page(&prefix, at.as_deref()).await?;
                read += page.entries.len();
                if read > COUNTED_MAX {
                    return Err(too_long());
                }
                page.entries.iter().filter_map(read_entry).for_each(|entry| counting.add(&entry));
                at = page.next;
                if at.is_none() {
                    break;
                }
            }
        }
        Ok(counting.end(reports, unix_millis()))
    }

    /// Reads the interruptions of one worker. One request.
    pub(crate) async fn interruptions_of(&self, worker: &WorkerId) -> Result<Vec<Interruption>> {
        let entries = self.list(name::ends_of(worker)).await?;
        let interruption = |entry| if let Entry::Interruption(it) = entry { Some(*it) } else { None };
        Ok(entries.into_iter().flatten().filter_map(interruption).collect())
    }

    /// Lists entries; `None` for each that can't be read.
    async fn list(&self, prefix: String) -> Result<Vec<Option<Entry>>> {
        let prefix = &format!("{LEDGER_IDS}{prefix}");
        let read = |at: Option<String>| async move { self.records.page(prefix, at.as_deref()).await };
        let listed = Page::all(read).await?;
        Ok(listed.iter().map(read_entry).collect())
    }
}

fn too_long() -> Error {
    let why = format!(
        "it has more than {COUNTED_MAX} boots or interruptions; let it be kept for a shorter time with --keep-ledger"
    );
    Error::new(ErrorKind::TooLarge, "count the losses in the ledger", why)
}

fn read_entry(listed: &ListedRecord) -> Option<Entry> {
    serde_json::from_str(&listed.note)
        .inspect_err(|error| {
            tracing::debug!(entry = %listed.job, %error, "failed to read an entry of the ledger; leaving it out");
        })
        .ok()
}
