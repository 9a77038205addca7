//! The operations that wait for the writer's turn.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::operation::Work;

/// Limits of one commit, so that no other process waits long for its turn: operations, and bytes
/// written by them.
const GROUP_MAX: usize = 256;
const GROUP_BYTES_MAX: usize = 4 << 20;

/// A queue of operations, in the order of arrival, between the callers and the thread.
#[derive(Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) waiting: VecDeque<(Instant, Box<dyn Work>)>,
    pub(super) closed: bool,
}

impl Pending {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an operation; returns `false` once the writer is closed and the queue is empty.
    pub(super) fn wait(&self) -> bool {
        let idle = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        !state.waiting.is_empty()
    }

    /// Takes the next group, without operations that were abandoned by their callers.
    pub(super) fn take(&self) -> Vec<Box<dyn Work>> {
        let mut state = self.lock();
        let (mut group, mut bytes) = (Vec::new(), 0);
        while group.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
            match state.waiting.pop_front() {
                None => break,
                Some((_, work)) if work.is_abandoned() => {}
                Some((_, work)) => {
                    bytes += work.bytes();
                    group.push(work);
                }
            }
        }
        group
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("waiting", &self.lock().waiting.len()).finish_non_exhaustive()
    }
}
