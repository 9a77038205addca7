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
    /// The state that a save within the step could not save last.
    unsaved: Mutex<Option<ContentHash>>,
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
        *lock(&self.enqueued) = Turn::default();
        *lock(&self.unsaved) = None;
    }

    /// Begins the turn after a step.
    pub(crate) fn next(&self) {
        self.turn.fetch_add(1, Relaxed);
        *lock(&self.unsaved) = None;
    }

    /// Begins the turn after a save of this state within a step, whether or not the save succeeds: when
    /// the step is run again, it may. Another try to save the same state begins none.
    pub(crate) fn next_at(&self, state: ContentHash) {
        if *lock(&self.unsaved) != Some(state) {
            self.next();
        }
    }

    /// Notes that this state could not be saved.
    pub(crate) fn note_unsaved(&self, state: ContentHash) {
        *lock(&self.unsaved) = Some(state);
    }

    /// Returns the present turn.
    pub(crate) fn present(&self) -> Turn {
        let (turn, number) = (lock(&self.enqueued), self.number());
        if turn.number == number { turn.clone() } else { Turn { number, ..Turn::default() } }
    }

    /// Notes the jobs that are enqueued now.
    pub(crate) fn note(&self, turn: Turn) {
        *lock(&self.enqueued) = turn;
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
