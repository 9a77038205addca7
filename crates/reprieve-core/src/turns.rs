//! Counts how often a job came to another state, so that a step that is run again is known to be the
//! same.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hash::ContentHash;

/// The present turn of a job, and what the job enqueued in it.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// How often the job came to another state since it began: after each step, and at each save within a
    /// step. It is saved with the state, so it is the same when a step is run again.
    turn: AtomicU64,
    enqueued: Mutex<Turn>,
}

/// The jobs that were enqueued in one turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn {
    pub(crate) number: u64,
    /// How often there was one of this kind and with these arguments.
    pub(crate) seen: HashMap<(String, ContentHash), u64>,
}

impl Turns {
    /// The number of the present turn.
    pub(crate) fn number(&self) -> u64 {
        self.turn.load(Relaxed)
    }

    /// Begins at the turn of a saved state.
    pub(crate) fn resume_at(&self, turn: u64) {
        self.turn.store(turn, Relaxed);
        // What a dropped step enqueued is enqueued again, under the same ids.
        *self.lock() = Turn::default();
    }

    /// Begins the next turn.
    pub(crate) fn next(&self) {
        self.turn.fetch_add(1, Relaxed);
    }

    /// Returns to the turn before, because the save that would have begun the present one failed.
    pub(crate) fn undo(&self) {
        self.turn.fetch_sub(1, Relaxed);
    }

    /// Returns the present turn.
    pub(crate) fn present(&self) -> Turn {
        let (turn, number) = (self.lock(), self.number());
        if turn.number == number { turn.clone() } else { Turn { number, ..Turn::default() } }
    }

    /// Notes the jobs that are enqueued now.
    pub(crate) fn note(&self, turn: Turn) {
        *self.lock() = turn;
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.enqueued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
