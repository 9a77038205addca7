//! Lets a job run alone in its process: one that was there when its worker died twice, at the same place.
//!
//! While it does, the other jobs have saved and rest between steps, and nothing else is begun. So if the worker dies
//! again, the death is proved on this job, and is charged to no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::timeout;

use crate::watch;

/// Who runs, who rests, and whether a suspect wants to be alone.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    /// Suspects run one after the other.
    turn: Arc<AsyncMutex<()>>,
    counts: Mutex<Counts>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Jobs that have begun and not ended, the suspect left out.
    active: usize,
    /// Those of them that rest.
    resting: usize,
    /// A suspect runs alone, or waits for the others to rest.
    wanted: bool,
}

/// A job that has begun, and rests when a suspect wants to be alone.
#[derive(Debug)]
pub(super) struct Active(Arc<Isolation>);

/// The right to run alone, given up when dropped.
#[derive(Debug)]
pub(super) struct Alone {
    isolation: Arc<Isolation>,
    _turn: OwnedMutexGuard<()>,
}

impl Alone {
    /// Ends it for a job that goes on in company: from here on it counts among those that run, so that the next suspect
    /// waits for it to rest.
    pub(super) fn join_others(self) -> Active {
        self.isolation.change(|counts| counts.active += 1);
        Active(Arc::clone(&self.isolation))
    }
}

impl Isolation {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.lock());
        self.changed.modify(|count| *count += 1);
    }

    /// Whether jobs are to rest.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().wanted
    }

    /// Counts a job among those that run, when no suspect wants to be alone. Cancel-safe.
    pub(super) async fn begin(self: &Arc<Self>) -> Active {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let mut counts = self.lock();
                if !counts.wanted {
                    counts.active += 1;
                    return Active(Arc::clone(self));
                }
            }
            changed.changed().await;
        }
    }

    /// Rests until no suspect wants to be alone any more. Cancel-safe.
    pub(super) async fn rest(&self) {
        struct Resting<'a>(&'a Isolation);
        impl Drop for Resting<'_> {
            fn drop(&mut self) {
                self.0.change(|counts| counts.resting -= 1);
            }
        }
        let mut changed = self.changed.subscribe();
        self.change(|counts| counts.resting += 1);
        let _resting = Resting(self);
        changed.wait_for(|_| !self.is_wanted()).await;
    }

    /// Waits until this job is the only one that does not rest; `None` when the others did not rest within `limit`.
    /// Cancel-safe.
    pub(super) async fn alone(self: &Arc<Self>, limit: Duration) -> Option<Alone> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let alone = Alone { isolation: Arc::clone(self), _turn: turn };
        self.change(|counts| counts.wanted = true);
        let mut changed = self.changed.subscribe();
        let all_rest = changed.wait_for(|_| {
            let counts = self.lock();
            counts.resting == counts.active
        });
        timeout(limit, all_rest).await.is_ok().then_some(alone)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.change(|counts| counts.active -= 1);
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.isolation.change(|counts| counts.wanted = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_suspect_runs_when_all_others_rest_and_they_go_on_after_it() {
        let isolation = Arc::new(Isolation::default());
        let (_one, _other) = (isolation.begin().await, isolation.begin().await);
        let suspect = tokio::spawn({
            let isolation = Arc::clone(&isolation);
            async move { isolation.alone(LEASE).await }
        });
        tokio::task::yield_now().await;
        assert!(isolation.is_wanted());
        let rest = |isolation: &Arc<Isolation>| {
            let isolation = Arc::clone(isolation);
            tokio::spawn(async move { isolation.rest().await })
        };
        let (first, second) = (rest(&isolation), rest(&isolation));
        let alone = suspect.await.unwrap().expect("all rest");
        assert!(timeout(LEASE, isolation.begin()).await.is_err(), "nothing is begun beside it");
        assert!(!first.is_finished() && !second.is_finished());
        drop(alone);
        first.await.unwrap();
        second.await.unwrap();
        isolation.begin().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspect_that_goes_on_in_company_is_waited_for_by_the_next() {
        let isolation = Arc::new(Isolation::default());
        let alone = isolation.alone(LEASE).await.expect("nothing else runs");
        let goes_on = alone.join_others();
        assert!(isolation.alone(LEASE).await.is_none(), "it neither rests nor has ended");
        drop(goes_on);
        assert!(isolation.alone(LEASE).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_that_do_not_rest_in_time_are_not_kept_waiting_and_suspects_take_turns() {
        let isolation = Arc::new(Isolation::default());
        let busy = isolation.begin().await;
        assert!(isolation.alone(LEASE).await.is_none());
        assert!(!isolation.is_wanted());
        drop(busy);
        let alone = isolation.alone(LEASE).await.expect("nothing else runs");
        assert!(timeout(LEASE * 3, isolation.alone(LEASE)).await.is_err(), "one after the other");
        drop(alone);
        assert!(isolation.alone(LEASE).await.is_some());
    }
}
