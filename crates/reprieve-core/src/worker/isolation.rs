//! Lets a job run alone in its process after its worker died twice while the job was at the same
//! place.
//!
//! While it runs alone, the other jobs have saved and rest between steps, and no other job begins.
//! If the worker dies again, the death is proved on this job and charged to no other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::watch;

/// How long a suspect waits for other suspects that arrive with it, one of which may come first.
/// Messages of one batch arrive within milliseconds, those of a dead worker within a second or two.
const GATHER: Duration = Duration::from_secs(1);

/// The time without active jobs after which a suspect may run: the longest pause of an idle worker
/// between two receives.
const QUIET: Duration = Duration::from_secs(10);

/// Counts the active and resting jobs, and gives suspects their turn.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    counts: Mutex<Counts>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Jobs that have begun and not ended, without the suspect.
    active: usize,
    /// The active jobs that rest.
    resting: usize,
    /// A suspect runs alone, or waits for the others to rest.
    wanted: bool,
    /// Since when jobs may begin and none is active; `None` while one is.
    idle_since: Option<Instant>,
    /// When the next suspect may ask the others to rest.
    free_from: Option<Instant>,
    /// Suspects that wait for their turn: how often each survived its time alone, and its number.
    waiting: BTreeSet<(u32, u64)>,
    /// The last number that was assigned.
    last: u64,
}

impl Counts {
    fn note_idle(&mut self) {
        self.idle_since = if self.active > 0 { None } else { self.idle_since.or(Some(Instant::now())) };
    }
}

/// An active job, which rests when a suspect wants to be alone.
#[derive(Debug)]
pub(super) struct Active(Arc<Isolation>);

/// The right to run alone, released when dropped.
#[derive(Debug)]
pub(super) struct Alone {
    isolation: Arc<Isolation>,
    since: Instant,
}

/// A suspect's place in the queue, released when dropped.
struct Waiting<'a>(&'a Isolation, (u32, u64));

/// Whether a job runs alone or beside others.
#[derive(Debug, Default)]
pub(super) enum Presence {
    /// It has not begun.
    #[default]
    NotBegun,
    Alone(Alone),
    Beside {
        _active: Active,
    },
}

impl Presence {
    pub(super) fn lock(presence: &Mutex<Self>) -> MutexGuard<'_, Self> {
        presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn is_alone(&self) -> bool {
        matches!(self, Self::Alone(_))
    }

    /// Lets a job that runs alone go on beside the others. From here on it counts as active, so
    /// that the next suspect waits for it to rest.
    pub(super) fn join_others(&mut self) {
        if let Self::Alone(alone) = self {
            let isolation = Arc::clone(&alone.isolation);
            isolation.change(|counts| counts.active += 1);
            *self = Self::Beside { _active: Active(isolation) };
        }
    }
}

impl Isolation {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.lock();
        change(&mut counts);
        counts.note_idle();
        drop(counts);
        self.changed.modify(|count| *count += 1);
    }

    /// Reports whether jobs are to rest.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().wanted
    }

    /// Counts a job as active, once no suspect wants to be alone. Cancel-safe.
    pub(super) async fn begin(self: &Arc<Self>) -> Active {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let mut counts = self.lock();
                if !counts.wanted {
                    counts.active += 1;
                    counts.note_idle();
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

    /// Waits until this job is the only one that does not rest; `None` if that takes longer than
    /// `limit`. Cancel-safe.
    ///
    /// Suspects take turns, and those that `survived` their time alone less often come first: if
    /// all of a worker's jobs died with it again and again, each is tried sooner or later. The
    /// other jobs rest at most half of the time: after they rested for one suspect, they run for as
    /// long before they rest for the next. They also run for `after` before they rest for this one.
    /// Without other jobs, suspects follow each other after a short pause.
    pub(super) async fn alone(
        self: &Arc<Self>,
        survived: u32,
        after: Duration,
        limit: Duration,
    ) -> Option<Alone> {
        let alone = async {
            let (waiting, earliest) = (self.wait_for_others(survived), Instant::now() + after);
            sleep(GATHER.min(limit / 2)).await;
            let mut changed = self.changed.subscribe();
            loop {
                let wait_until = {
                    let mut counts = self.lock();
                    let is_next = !counts.wanted && counts.waiting.first() == Some(&waiting.1);
                    let until = counts.free_from.map_or(earliest, |free_from| free_from.max(earliest));
                    let until = counts.idle_since.map_or(until, |since| until.min(since + QUIET));
                    if is_next && until <= Instant::now() {
                        counts.wanted = true;
                        break;
                    }
                    is_next.then_some(until)
                };
                tokio::select! {
                    biased;
                    () = changed.changed() => {}
                    () = sleep_until(wait_until.unwrap_or_else(Instant::now)), if wait_until.is_some() => {}
                }
            }
            drop(waiting);
            let alone = Alone { isolation: Arc::clone(self), since: Instant::now() };
            let all_rest = |counts: &Counts| counts.resting == counts.active;
            self.changed.subscribe().wait_for(|_| all_rest(&self.lock())).await;
            alone
        };
        timeout(limit, alone).await.ok()
    }

    fn wait_for_others(&self, survived: u32) -> Waiting<'_> {
        let mut counts = self.lock();
        counts.last += 1;
        let place = (survived, counts.last);
        counts.waiting.insert(place);
        counts.note_idle();
        Waiting(self, place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let place = self.1;
        self.0.change(|counts| {
            counts.waiting.remove(&place);
        });
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.change(|counts| counts.active -= 1);
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let now = Instant::now();
        let free_from = now + (now - self.since);
        self.isolation.change(|counts| {
            (counts.wanted, counts.free_from) = (false, Some(free_from));
            // Jobs that could not begin meanwhile have their time to begin now.
            counts.idle_since = None;
        });
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
            async move { isolation.alone(0, Duration::ZERO, LEASE).await }
        });
        sleep(GATHER * 2).await;
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
        let mut place =
            Presence::Alone(isolation.alone(0, Duration::ZERO, LEASE).await.expect("nothing else runs"));
        place.join_others();
        assert!(!place.is_alone());
        assert!(isolation.alone(0, Duration::ZERO, LEASE).await.is_none(), "it neither rests nor has ended");
        drop(place);
        assert!(isolation.alone(0, Duration::ZERO, LEASE * 2).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_that_do_not_rest_in_time_are_not_kept_waiting_and_suspects_take_turns() {
        let isolation = Arc::new(Isolation::default());
        let busy = isolation.begin().await;
        assert!(isolation.alone(0, Duration::ZERO, LEASE).await.is_none());
        assert!(!isolation.is_wanted());
        drop(busy);
        let alone = isolation.alone(0, Duration::ZERO, LEASE * 2).await.expect("nothing else runs");
        assert!(
            timeout(LEASE * 3, isolation.alone(0, Duration::ZERO, LEASE * 4)).await.is_err(),
            "one after the other"
        );
        drop(alone);
        assert!(isolation.alone(0, Duration::ZERO, LEASE * 9).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_suspects_there_are_the_others_run_half_of_the_time() {
        let isolation = Arc::new(Isolation::default());
        let _busy = isolation.begin().await;
        let began = Instant::now();
        let suspects: Vec<_> = (0..16)
            .map(|_| {
                let isolation = Arc::clone(&isolation);
                tokio::spawn(async move {
                    while began.elapsed() < LEASE * 20 {
                        assert!(isolation.alone(0, Duration::ZERO, LEASE).await.is_none());
                    }
                })
            })
            .collect();
        let mut rested = 0;
        for _ in 0..LEASE.as_secs() * 20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            rested += u64::from(isolation.is_wanted());
        }
        assert!(rested <= LEASE.as_secs() * 10 + 20, "{rested} s of {}", LEASE.as_secs() * 20);
        for suspect in suspects {
            suspect.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_suspect_that_survived_least_often_comes_first() {
        let isolation = Arc::new(Isolation::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let suspects: Vec<_> = [2, 0, 1, 0]
            .map(|survived| {
                let (isolation, order) = (Arc::clone(&isolation), Arc::clone(&order));
                tokio::spawn(async move {
                    let alone =
                        isolation.alone(survived, Duration::ZERO, LEASE).await.expect("nothing else runs");
                    order.lock().unwrap().push(survived);
                    sleep(Duration::from_secs(1)).await;
                    drop(alone);
                })
            })
            .into();
        for suspect in suspects {
            suspect.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 0, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn others_run_first_for_as_long_as_they_will_rest_unless_there_are_none() {
        let isolation = Arc::new(Isolation::default());
        let began = Instant::now();
        assert!(isolation.alone(0, LEASE, LEASE * 2).await.is_some());
        assert!(began.elapsed() <= GATHER + QUIET, "there is no other job");
        let busy = isolation.begin().await;
        let suspect = tokio::spawn({
            let isolation = Arc::clone(&isolation);
            async move { isolation.alone(0, LEASE, LEASE * 3).await }
        });
        sleep(LEASE.mul_f64(0.9)).await;
        assert!(!isolation.is_wanted());
        sleep(LEASE.mul_f64(0.2)).await;
        assert!(isolation.is_wanted());
        drop(busy);
        assert!(suspect.await.unwrap().is_some());
    }
}
