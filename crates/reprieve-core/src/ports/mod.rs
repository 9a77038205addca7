//! The ports: the worker's only interfaces to the outside. Each is object-safe and has a
//! conformance suite in `conformance` that every backend runs.

mod blobs;
mod interruption;
mod parts;
mod queue;
mod records;
mod roster;

use std::future::Future;
use std::sync::Arc;

use crate::clock::unix_millis;
use crate::error::Result;

pub use blobs::{BlobRange, BlobStore, ListedBlob};
pub use interruption::{Change, Ending, InterruptionSource};
pub use parts::{PART_BYTES, PARTS_MAX, Upload};
pub use queue::{
    DeadLetter, DeadLettered, Delivery, Depth, LEASE_MAX, LEASE_MIN, NewMessage, Queue, Receipt, Release,
    Unreadable,
};
pub use records::{
    ListedPayload, ListedRecord, NOTE_BYTES_MAX, Payload, RECORD_BYTES_MAX, RecordStore, RecordWrite, Stored,
    Version,
};
pub use roster::{
    ActiveNotice, DeferredMessage, InFlight, LimitedKind, Member, Progress, Roster, WorkerReport,
};

/// A part of a long list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries, in order. It may be empty although further parts follow.
    pub entries: Vec<T>,
    /// Where the next part begins; `None` after the last. Only the store that made it can read it.
    pub next: Option<String>,
    /// The present by the store's clock when it listed the part, in milliseconds since the Unix
    /// epoch. Only the difference to times of the same store says how old something is.
    pub now_unix_ms: i64,
}

impl<T> Page<T> {
    /// Reads a whole list. `read` reads one part: the first for `None`, else the one that begins
    /// there.
    ///
    /// # Errors
    /// The first error of `read`.
    pub async fn all<F>(read: impl Fn(Option<String>) -> F) -> Result<Vec<T>>
    where
        F: Future<Output = Result<Self>>,
    {
        let mut page = read(None).await?;
        let mut all = page.entries;
        while let Some(next) = page.next {
            page = read(Some(next)).await?;
            all.append(&mut page.entries);
        }
        Ok(all)
    }

    /// The same part, with what `entry` returns for its entries.
    pub fn filter_map<U>(self, entry: impl FnMut(T) -> Option<U>) -> Page<U> {
        let Self { entries, next, now_unix_ms } = self;
        Page { entries: entries.into_iter().filter_map(entry).collect(), next, now_unix_ms }
    }

    /// The part with these entries, listed now by a store that goes by this machine's clock. If there
    /// are `max` of them, the next part begins after the last, at what `name` returns for it.
    pub fn up_to(entries: Vec<T>, max: usize, name: impl Fn(&T) -> String) -> Self {
        let next = if entries.len() < max { None } else { entries.last().map(name) };
        Self { entries, next, now_unix_ms: unix_millis() }
    }
}

/// One queue with everything that belongs to it: what a backend provides to workers, producers and
/// tools.
#[derive(Debug, Clone)]
pub struct Store {
    /// The messages, and the poison queue.
    pub queue: Arc<dyn Queue>,
    /// The jobs' records and payloads: their progress and history.
    pub records: Arc<dyn RecordStore>,
    /// The jobs' inputs and outputs.
    pub blobs: Arc<dyn BlobStore>,
    /// The workers' reports.
    pub roster: Arc<dyn Roster>,
}
