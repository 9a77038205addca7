//! Tells a job that moves from one that only comes back.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::attempts::Baseline;

/// Where a job was last saved, and what the counts were when it first got there.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    at: Option<u64>,
    since: Baseline,
}

impl Cursor {
    /// A job that begins at `payload` with `since` remembered of it.
    pub(super) fn at(payload: &[u8], since: Baseline) -> Self {
        Self { at: Some(hash(payload)), since }
    }

    /// The cursor after a save of `payload`: the counts of now when the job has moved, the old ones when it has not.
    pub(super) fn saved(&self, payload: &[u8], now: Baseline) -> Self {
        let at = Some(hash(payload));
        Self { at, since: if self.at == at { self.since } else { now } }
    }

    /// What to save with the checkpoint.
    pub(super) fn since(&self) -> Baseline {
        self.since
    }
}

fn hash(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}
