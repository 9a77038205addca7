//! The time in which a job waits for others: for answers of its store, and for its turn to compute while none of its own
//! work has one. It is no time in which the job stands still.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::mutex::get;
use crate::run_clock::RunClock;

/// How long a call counts of which nothing is heard: as long as one try of it may take. A step that keeps a call and does
/// not poll it any more stands still. A turn to compute comes whether the step looks or not, so the wait for it counts on.
const LONGEST: Duration = Duration::from_hours(1);

/// The waits of one job.
#[derive(Debug, Default)]
pub(crate) struct WaitTime {
    clock: RunClock,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Waits {
    calls: u32,
    turns: u32,
    /// The number of its closures that have a turn.
    computing: u32,
    /// For how long some wait was under way, until `counted`.
    taken: Duration,
    counted: Duration,
    /// When a call began, ended or failed last.
    heard: Duration,
}

impl Waits {
    fn taken(self, now: Duration) -> Duration {
        let until = match self {
            Self { turns: 1.., computing: 0, .. } => now,
            Self { calls: 1.., .. } => now.min(self.heard + LONGEST),
            _ => return self.taken,
        };
        self.taken + until.saturating_sub(self.counted)
    }
}

/// A call that is under way, with its retries, until dropped.
#[derive(Debug)]
pub(crate) struct Call<'a>(&'a WaitTime);

impl WaitTime {
    pub(crate) fn new(clock: RunClock) -> Self {
        Self { clock, waits: Mutex::default() }
    }

    /// Notes that a call begins.
    pub(crate) fn begin(&self) -> Call<'_> {
        self.hear(|waits| waits.calls += 1);
        Call(self)
    }

    /// Notes that the job waits for a turn to compute.
    pub(crate) fn begin_turn(&self) {
        self.count(|waits| waits.turns += 1);
    }

    /// Notes that a closure that waited was given up.
    pub(crate) fn end_turn(&self) {
        self.count(|waits| waits.turns -= 1);
    }

    /// Notes that a turn has come.
    pub(crate) fn begin_computing(&self) {
        self.count(|waits| {
            waits.turns -= 1;
            waits.computing += 1;
        });
    }

    /// Notes that a turn has ended.
    pub(crate) fn end_computing(&self) {
        self.count(|waits| waits.computing -= 1);
    }

    /// Returns for how long the job has waited until now, waits at once counted once.
    pub(crate) fn taken(&self) -> Duration {
        get(&self.waits).taken(self.clock.now())
    }

    /// Counts, and notes that a call was heard of.
    fn hear(&self, change: impl FnOnce(&mut Waits)) {
        self.count(|waits| {
            waits.heard = waits.counted;
            change(waits);
        });
    }

    fn count(&self, change: impl FnOnce(&mut Waits)) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        waits.taken = waits.taken(now);
        waits.counted = now;
        change(&mut waits);
    }
}

impl Call<'_> {
    /// Notes that a try has failed, and another one follows.
    pub(crate) fn failed(&self) {
        self.0.hear(|_| {});
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.hear(|waits| waits.calls -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Lets time pass as a worker sees it, which looks each second.
    async fn pass(time: &WaitTime, seconds: u64) -> u64 {
        for _ in 0..seconds {
            advance(Duration::from_secs(1)).await;
            time.clock.now();
        }
        time.taken().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_at_once_are_counted_once_and_time_between_them_not() {
        let time = WaitTime::default();
        assert_eq!(pass(&time, 10).await, 0);
        let one = time.begin();
        assert_eq!(pass(&time, 5).await, 5);
        let other = time.begin();
        assert_eq!(pass(&time, 5).await, 10);
        drop(one);
        assert_eq!(pass(&time, 5).await, 15);
        drop(other);
        assert_eq!(pass(&time, 50).await, 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_freeze_during_a_call_is_counted_by_no_clock() {
        let time = WaitTime::default();
        let _call = time.begin();
        pass(&time, 2).await;
        advance(Duration::from_secs(60)).await;
        // The second in which it thaws is lost.
        assert_eq!(pass(&time, 3).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nothing_is_heard_of_counts_for_an_hour() {
        let time = WaitTime::default();
        let call = time.begin();
        assert_eq!(pass(&time, 3_000).await, 3_000);
        call.failed();
        assert_eq!(pass(&time, 3_000).await, 6_000);
        assert_eq!(pass(&time, 3_000).await, 6_600);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_to_compute_beside_a_call_tell_nothing_of_it() {
        let time = WaitTime::default();
        let _call = time.begin();
        for _ in 0..4 {
            pass(&time, 1_000).await;
            time.begin_turn();
            time.begin_computing();
            time.end_computing();
        }
        assert_eq!(pass(&time, 100).await, 3_600);
        time.begin_turn();
        assert_eq!(pass(&time, 100).await, 3_700);
        time.end_turn();
        assert_eq!(pass(&time, 100).await, 3_700);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_waits_for_a_turn_behind_its_own_work_waits_for_nobody_else() {
        let time = WaitTime::default();
        time.begin_turn();
        time.begin_turn();
        assert_eq!(pass(&time, 10).await, 10);
        time.begin_computing();
        assert_eq!(pass(&time, 10).await, 10);
        time.end_computing();
        assert_eq!(pass(&time, 10).await, 20);
        time.end_turn();
        assert_eq!(pass(&time, 10).await, 20);
    }
}
