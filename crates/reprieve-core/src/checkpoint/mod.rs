//! A job's saved progress: two slots written in turn, each a framed checkpoint, ordered by the fence of their writers.
//!
//! The next save goes to the slot that holds the older checkpoint, so a torn or damaged one always has a good one
//! beside it; and every owner of a job writes the same next slot with a condition, so of two owners one fails there
//! and looks whose fence is greater.

mod frame;
mod interval;

use std::sync::{Arc, OnceLock};

use frame::unseal;
pub use frame::{Header, Unreadable, open, seal};
pub use interval::{ASSUMED_COST, CheckpointEvery, LONGEST, MEAN_TIME_BETWEEN_EVICTIONS, SHORTEST, young};

use crate::attempts::Baseline;
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, Writer};
use crate::ports::{CheckpointStore, Version};

/// How often one save looks again after a conflict with an older owner. Each round an older owner must have written
/// between our look and our write, which it does at most once before it sees our fence and stops.
const ROUNDS_MAX: u32 = 5;

/// A checkpoint that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Who saved it.
    pub header: Header,
    /// What was saved.
    pub payload: Vec<u8>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The newest checkpoint that is whole; the one before it when the newest is not.
    pub newest: Option<Loaded>,
    /// What is wrong with those that are not whole.
    pub unreadable: Vec<Unreadable>,
}

/// One owner's hand on one job's checkpoints.
#[derive(Debug)]
pub struct Checkpoints {
    store: Arc<dyn CheckpointStore>,
    writer: Writer,
    kind: String,
    schema: u32,
    /// Made when it is first needed: most jobs are done before their first save.
    nonce: OnceLock<String>,
    slots: [Option<Version>; 2],
    next: usize,
    sequence: u64,
    touched: bool,
}

fn key(job: &JobId, slot: usize) -> String {
    format!("{job}/{slot}")
}

impl Checkpoints {
    /// The hand of `writer`, which has neither read nor written anything yet. That is right without a look for a job's
    /// first delivery; for any other, [`load`](Self::load) comes first.
    #[must_use]
    pub fn new(store: Arc<dyn CheckpointStore>, writer: Writer, kind: &str, schema: u32) -> Self {
        Self {
            store,
            writer,
            kind: kind.to_owned(),
            schema,
            nonce: OnceLock::new(),
            slots: [None, None],
            next: 0,
            sequence: 0,
            touched: false,
        }
    }

    /// What tells this hand's own writes from those of every other.
    fn nonce(&self) -> &str {
        self.nonce.get_or_init(|| uuid::Uuid::now_v7().simple().to_string())
    }

    /// Writes through `store` from now on: the drain's own, which is less patient.
    pub fn use_store(&mut self, store: Arc<dyn CheckpointStore>) {
        self.store = store;
    }

    /// Reads what earlier owners saved.
    ///
    /// # Errors
    /// [`Superseded`](ErrorKind::Superseded) when a greater fence has saved already; the store's own otherwise.
    pub async fn load(&mut self) -> Result<Found> {
        self.touched = true;
        let mut found = Found::default();
        for slot in 0..2 {
            let stored = self.store.load(&key(&self.writer.job, slot)).await?;
            self.slots[slot] = stored.as_ref().map(|stored| stored.version.clone());
            match stored.map(|stored| unseal(stored.bytes)) {
                None => {}
                Some(Err(unreadable)) => found.unreadable.push(unreadable),
                Some(Ok((header, payload))) => {
                    let newer = |than: &Loaded| {
                        (header.fence, header.sequence) > (than.header.fence, than.header.sequence)
                    };
                    if found.newest.as_ref().is_none_or(newer) {
                        self.next = 1 - slot;
                        self.sequence = self.sequence.max(header.sequence);
                        found.newest = Some(Loaded { header, payload });
                    }
                }
            }
        }
        if found.newest.as_ref().is_some_and(|newest| newest.header.fence > self.writer.fence) {
            return Err(self.superseded("load a checkpoint"));
        }
        Ok(found)
    }

    /// Saves `payload` as the job's newest checkpoint, and with it what to remember of the job's deliveries.
    ///
    /// # Errors
    /// [`Superseded`](ErrorKind::Superseded) when this owner is not the newest any more: it must stop. Temporary errors
    /// leave the last checkpoint in place, and the save can be tried again.
    ///
    /// # Cancel safety
    /// A dropped save may have been applied; the next one finds out by the nonce.
    pub async fn save(&mut self, payload: &[u8], baseline: Baseline) -> Result<()> {
        self.touched = true;
        for _ in 0..ROUNDS_MAX {
            let slot = self.next;
            let header = self.header(baseline);
            let sequence = header.sequence;
            let saved = self
                .store
                .save(&key(&self.writer.job, slot), self.slots[slot].as_ref(), seal(&header, payload))
                .await;
            match saved {
                Ok(version) => {
                    self.slots[slot] = Some(version);
                    self.next = 1 - slot;
                    self.sequence = sequence;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Conflict => self.look_again(slot).await?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "save a checkpoint",
            "an older owner keeps writing; try again",
        ))
    }

    /// Removes the job's checkpoints, if it ever had any: the job is finished.
    pub async fn clear(&self) -> Result<()> {
        if self.touched {
            for slot in 0..2 {
                self.store.clear(&key(&self.writer.job, slot)).await?;
            }
        }
        Ok(())
    }

    fn header(&self, baseline: Baseline) -> Header {
        Header {
            job: self.writer.job.clone(),
            kind: self.kind.clone(),
            schema: self.schema,
            fence: self.writer.fence,
            sequence: self.sequence + 1,
            nonce: self.nonce().to_owned(),
            crashed: baseline.crashed,
            interrupted: baseline.interrupted,
            accounted: baseline.accounted,
            at_unix_ms: unix_millis(),
        }
    }

    /// Finds out who wrote the slot that a save expected to be otherwise, and adopts its version if we may replace it.
    async fn look_again(&mut self, slot: usize) -> Result<()> {
        let Some(stored) = self.store.load(&key(&self.writer.job, slot)).await? else {
            // It was there and is gone: somebody finished the job.
            return if self.slots[slot].take().is_some() {
                Err(self.superseded("save a checkpoint"))
            } else {
                Ok(())
            };
        };
        if let Ok((header, _)) = open(&stored.bytes) {
            let ours = header.fence == self.writer.fence && header.nonce == self.nonce();
            if header.fence >= self.writer.fence && !ours {
                return Err(self.superseded("save a checkpoint"));
            }
            self.sequence = self.sequence.max(header.sequence);
        }
        self.slots[slot] = Some(stored.version);
        Ok(())
    }

    fn superseded(&self, operation: &'static str) -> Error {
        let Writer { job, fence } = &self.writer;
        Error::new(
            ErrorKind::Superseded,
            operation,
            format!("a newer owner of job {job} than {fence} has saved"),
        )
    }
}

#[cfg(test)]
mod tests;
