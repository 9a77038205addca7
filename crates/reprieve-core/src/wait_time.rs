//! The time that a job's calls to its store take: the store's, and no time in which the job stands still.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::mutex::get;
use crate::run_clock::RunClock;

/// How long the time of calls counts without an answer to any of them: as long as one try may take. A step that keeps a
/// call and does not poll it any more stands still.
const LONGEST: Duration = Duration::from_hours(1);

/// The calls of one job to its store.
#[derive(Debug, Default)]
pub(crate) struct StoreTime {
    clock: RunClock,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Calls {
    under_way: usize,
    /// For how long some call was under way, until `counted`.
    taken: Duration,
    /// When a call began, or was answered, at last.
    counted: Duration,
}

impl Calls {
    fn taken(self, now: Duration) -> Duration {
        let more = now.saturating_sub(self.counted).min(LONGEST);
        self.taken + if self.under_way > 0 { more } else { Duration::ZERO }
    }
}

/// A call that is under way, with its retries, until dropped.
#[derive(Debug)]
pub(crate) struct StoreCall<'a>(&'a StoreTime);

impl StoreTime {
    pub(crate) fn new(clock: RunClock) -> Self {
        Self { clock, calls: Mutex::default() }
    }

    /// Notes that a call begins.
    pub(crate) fn begin(&self) -> StoreCall<'_> {
        self.count(|under_way| *under_way += 1);
        StoreCall(self)
    }

    /// Returns for how long calls were under way until now, those at once counted once.
    pub(crate) fn taken(&self) -> Duration {
        get(&self.calls).taken(self.clock.now())
    }

    fn count(&self, change: impl FnOnce(&mut usize)) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        calls.taken = calls.taken(now);
        calls.counted = now;
        change(&mut calls.under_way);
    }
}

impl StoreCall<'_> {
    /// Notes that a try has failed, and another one follows.
    pub(crate) fn failed(&self) {
        self.0.count(|_| {});
    }
}

impl Drop for StoreCall<'_> {
    fn drop(&mut self) {
        self.0.count(|under_way| *under_way -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Lets time pass as a worker sees it, which looks each second.
    async fn pass(time: &StoreTime, seconds: u64) -> u64 {
        for _ in 0..seconds {
            advance(Duration::from_secs(1)).await;
            time.clock.now();
        }
        time.taken().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_at_once_are_counted_once_and_time_between_them_not() {
        let time = StoreTime::default();
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
        let time = StoreTime::default();
        let _call = time.begin();
        pass(&time, 2).await;
        advance(Duration::from_secs(60)).await;
        // The second in which it thaws is lost.
        assert_eq!(pass(&time, 3).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nothing_is_heard_of_counts_for_an_hour() {
        let time = StoreTime::default();
        let call = time.begin();
        assert_eq!(pass(&time, 3_000).await, 3_000);
        call.failed();
        assert_eq!(pass(&time, 3_000).await, 6_000);
        assert_eq!(pass(&time, 3_000).await, 6_600);
    }
}
