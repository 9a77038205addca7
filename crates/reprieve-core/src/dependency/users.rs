//! The running jobs of a worker that use its dependencies, for all handles of these.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::without::{News, Share, Without};
use crate::run_clock::RunClock;

/// A longer time between two looks is a freeze. Shorter than jobs that do without must hold their slots. The worker looks each
/// second, when it shows its dependencies.
const FREEZE: Duration = Duration::from_millis(1_500);

/// Clones are of the same ones.
#[derive(Clone)]
pub(crate) struct Users(Arc<Inner>);

struct Inner {
    /// A freeze of the machine is no time in which a job does without.
    clock: RunClock,
    /// By their numbers.
    dependencies: Mutex<Vec<Used>>,
    without: Mutex<Without>,
    /// How many runs had a number.
    runs: AtomicU64,
}

/// A dependency.
struct Used {
    name: String,
    /// When jobs that do without it were last found to limit those that use it.
    limited_since: Option<Instant>,
}

impl Default for Users {
    fn default() -> Self {
        let (dependencies, without, runs) = Default::default();
        Self(Arc::new(Inner { clock: RunClock::new(FREEZE), dependencies, without, runs }))
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
        let mut dependencies = self.dependencies();
        dependencies.push(Used { name: name.to_owned(), limited_since: None });
        dependencies.len() - 1
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

    /// Returns since when jobs that do without this dependency limit those that use it.
    pub(super) fn limited_since(&self, number: usize) -> Option<Instant> {
        let are_limited = self.turn(|without, now| without.suspects(number, now));
        self.dependencies().get(number).filter(|_| are_limited)?.limited_since
    }

    /// No code panics while it holds the locks.
    pub(super) fn turn<T>(&self, turn: impl FnOnce(&mut Without, Duration) -> T) -> T {
        let (turned, news) = {
            let mut without = self.0.without.lock().unwrap_or_else(PoisonError::into_inner);
            let turned = turn(&mut without, self.0.clock.now());
            let news = without.take_news();
            for one in &news {
                self.note(*one);
            }
            (turned, news)
        };
        for one in news {
            self.tell(one);
        }
        turned
    }

    /// Notes when a limit begins.
    fn note(&self, one: News) {
        if let News::Suspected(number) = one
            && let Some(used) = self.dependencies().get_mut(number)
        {
            used.limited_since = Some(Instant::now());
        }
    }

    fn tell(&self, one: News) {
        let (News::Suspected(number) | News::Over(number)) = one;
        let dependency = self.dependencies().get(number).map(|used| used.name.clone());
        match one {
            News::Suspected(_) => tracing::info!(
                dependency,
                "jobs that do without a dependency hold their slots for long; they limit those that use it"
            ),
            News::Over(_) => {
                tracing::info!(
                    dependency,
                    "jobs that do without a dependency no longer limit those that use it"
                );
            }
        }
    }

    fn dependencies(&self) -> MutexGuard<'_, Vec<Used>> {
        self.0.dependencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
