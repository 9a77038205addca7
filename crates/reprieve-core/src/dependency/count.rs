//! How many of something there are at a time, such as jobs that wait for a slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A number of what is there. Clones are of the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Count);

impl Count {
    /// Counts one more; `None` if there are as many as may be.
    pub(crate) fn take(&self, most: usize) -> Option<Counted> {
        let more = |count| (count < most).then_some(count + 1);
        self.0.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Counted(self.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}
