//! How many messages a worker may hold: as many as it can run, and no more read-ahead than it can
//! release within the budget.

use std::time::Duration;

/// The most releases that are under way at once in a drain. Past a few tens, a storage service only
/// answers each of them later.
pub(super) const RELEASES_AT_ONCE: usize = 64;

/// The assumed time of a release until one has been measured: that of a slow storage service.
pub(super) const ASSUMED_RELEASE: Duration = Duration::from_millis(100);

/// How much work is read ahead: enough to hide a slow receive, and far less than any lease.
pub(super) const AHEAD: Duration = Duration::from_secs(1);

/// Returns how many messages a drain of `budget` can release when each release takes `each`. Half
/// of the budget is for releases; jobs need the other half to yield.
#[must_use]
pub fn releasable(budget: Duration, each: Duration) -> usize {
    let rounds = (budget / 2).as_secs_f64() / each.max(Duration::from_micros(10)).as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the min")]
    let releasable = (rounds.min(1e6) as usize).saturating_mul(RELEASES_AT_ONCE).max(1);
    releasable
}

/// The inputs that decide how many messages may be held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    /// The number of jobs that can run at once.
    pub(super) concurrency: usize,
    /// Jobs that have run for longer than [`AHEAD`]: their slots will not be free soon.
    pub(super) slow: usize,
    /// The most messages of one receive.
    pub(super) batch: usize,
    pub(super) budget: Duration,
    /// The 95th percentile of recent calls that settled a message; `None` before the first.
    pub(super) release: Option<Duration>,
    /// The mean run time of jobs; `None` before the first has ended.
    pub(super) run: Option<Duration>,
}

impl Capacity {
    /// Returns the most messages that may be held: one job for every slot, and no more read-ahead
    /// than can still be released within the budget. Slow storage makes a worker read less ahead,
    /// but never leaves a slot idle.
    pub(super) fn most(&self) -> usize {
        let release = self.release.unwrap_or(ASSUMED_RELEASE);
        let releasable = releasable(self.budget, release).saturating_sub(self.concurrency);
        self.concurrency + self.read_ahead().min(releasable)
    }

    /// Returns how many messages may wait for a slot: as many as can be done within [`AHEAD`]. Zero
    /// until jobs are known to be short, so that no message waits here while another worker is
    /// idle.
    fn read_ahead(&self) -> usize {
        let Some(run) = self.run else { return 0 };
        let brisk = self.concurrency.saturating_sub(self.slow);
        let rounds = AHEAD.as_secs_f64() / run.max(Duration::from_micros(10)).as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the min")]
        let ahead = (rounds * f64::from(u32::try_from(brisk).unwrap_or(u32::MAX))).min(1e6) as usize;
        ahead.min(self.batch)
    }

    /// Returns how many messages to receive when `held` are held; 0 to wait. While every slot is
    /// busy, the worker waits until half a batch fits, so that many short jobs do not need one
    /// receive each.
    pub(super) fn room(&self, held: usize) -> usize {
        let room = self.most().saturating_sub(held);
        if held >= self.concurrency && room < self.batch / 2 { 0 } else { room.min(self.batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(concurrency: usize) -> Capacity {
        let budget = Duration::from_secs(10);
        Capacity { concurrency, slow: 0, batch: 32, budget, release: None, run: None }
    }

    #[test]
    fn nothing_is_read_ahead_before_jobs_are_known_to_be_short() {
        assert_eq!(capacity(8).most(), 8);
        for (run_ms, most) in [(1, 40), (200, 40), (500, 24), (2_000, 12), (9_000, 8)] {
            let known = Capacity { run: Some(Duration::from_millis(run_ms)), ..capacity(8) };
            assert_eq!(known.most(), most, "jobs of {run_ms} ms");
        }
    }

    #[test]
    fn slots_that_long_jobs_have_taken_are_not_read_ahead_for() {
        let known = Capacity { run: Some(Duration::from_millis(500)), ..capacity(8) };
        assert_eq!(Capacity { slow: 6, ..known }.most(), 12);
        assert_eq!(Capacity { slow: 8, ..known }.most(), 8);
        assert_eq!(Capacity { concurrency: 0, ..known }.most(), 0);
    }

    #[test]
    fn slow_releases_shorten_the_read_ahead_and_leave_every_slot_its_job() {
        for (release_ms, most) in [(1, 128), (100, 128), (1_000, 128), (4_000, 100), (60_000, 100)] {
            let release = Some(Duration::from_millis(release_ms));
            let slow = Capacity { release, run: Some(Duration::from_millis(1)), batch: 28, ..capacity(100) };
            assert_eq!(slow.most(), most, "a release of {release_ms} ms");
        }
    }

    #[test]
    fn a_busy_worker_receives_by_the_half_batch_and_an_idle_one_at_once() {
        let short = Capacity { run: Some(Duration::from_millis(1)), ..capacity(8) };
        assert_eq!(short.room(0), 32);
        assert_eq!(short.room(8), 32);
        assert_eq!(short.room(24), 16);
        assert_eq!(short.room(25), 0);
        assert_eq!(short.room(7), 32);
        assert_eq!(Capacity { batch: 128, ..short }.room(8), 128);
        assert_eq!(Capacity { batch: 128, ..short }.room(73), 0);
        assert_eq!(capacity(2).room(1), 1);
        assert_eq!(capacity(2).room(2), 0);
    }
}
