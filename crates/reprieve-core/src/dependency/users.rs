//! The running jobs of a worker that use its dependencies, for all handles of these.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::without::{News, Share, Without};
use crate::clock::unix_millis;

/// Clones are of the same ones.
#[derive(Clone)]
pub(crate) struct Users(Arc<Inner>);

struct Inner {
    began: Instant,
    began_unix_ms: i64,
    /// The names of the dependencies, by their numbers.
    names: Mutex<Vec<String>>,
    without: Mutex<Without>,
    /// How many runs had a number.
    runs: AtomicU64,
}

impl Default for Users {
    fn default() -> Self {
        let (names, without, runs) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        let (began, began_unix_ms) = (Instant::now(), unix_millis());
        Self(Arc::new(Inner { began, began_unix_ms, names, without, runs }))
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").finish_non_exhaustive()
    }
}

/// A run of a job that uses dependencies, from its beginning on until this is dropped.
#[derive(Debug)]
pub(crate) struct Using {
    users: Users,
    run: u64,
}

impl Drop for Using {
    fn drop(&mut self) {
        self.users.turn(|without, now| without.end(self.run, now));
    }
}

impl Users {
    /// Returns the number of one more dependency.
    pub(super) fn add(&self, name: &str) -> usize {
        let mut names = self.names();
        names.push(name.to_owned());
        names.len() - 1
    }

    /// The worker has so many slots.
    pub(crate) fn have_slots(&self, slots: usize) {
        self.turn(|without, _| without.have_slots(slots));
    }

    /// Returns the number of one more run, which has not begun.
    pub(crate) fn run(&self) -> u64 {
        self.0.runs.fetch_add(1, Relaxed)
    }

    /// Whether one more job may begin.
    pub(crate) fn admits(&self, share: &Share<'_>) -> bool {
        self.turn(|without, now| without.admits(share, now)).is_some()
    }

    /// A run begins: from now on its slot counts while it does without. `None` if it may not.
    pub(crate) fn begin(&self, run: u64, share: &Share<'_>) -> Option<Using> {
        let may_begin = self.turn(|without, now| without.begin(run, share, now));
        may_begin.then(|| Using { users: self.clone(), run })
    }

    /// Returns since when jobs that do without this dependency limit those that use it. By the clock at the beginning, so
    /// that it stays the same.
    pub(super) fn limited_since_unix_ms(&self, number: usize) -> Option<i64> {
        let since = self.turn(|without, now| without.suspected_since(number, now))?;
        let since = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Some(self.0.began_unix_ms.saturating_add(since))
    }

    /// No code panics while it holds the lock. Nothing else is locked meanwhile.
    pub(super) fn turn<T>(&self, turn: impl FnOnce(&mut Without, Duration) -> T) -> T {
        let (turned, news) = {
            let mut without = self.0.without.lock().unwrap_or_else(PoisonError::into_inner);
            (turn(&mut without, self.0.began.elapsed()), without.take_news())
        };
        for one in news {
            let name = |number: usize| self.names().get(number).cloned();
            match one {
                News::Suspected(number) => tracing::info!(
                    dependency = name(number),
                    "jobs that do without a dependency hold their slots for long; they limit those that use it"
                ),
                News::Over(number) => {
                    tracing::info!(
                        dependency = name(number),
                        "jobs that do without a dependency no longer limit those that use it"
                    );
                }
            }
        }
        turned
    }

    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
