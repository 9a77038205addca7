//! Estimates when a running job will be done, from its own estimate or from its progress.

use std::time::Duration;

use tokio::time::Instant;

use crate::retry::FOREVER;

/// A job's reports about its duration in this delivery.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Estimate {
    /// When the job expects to be done, as reported after its last step.
    reported: Option<Instant>,
    /// When it first reported progress, and how much was done then.
    first: Option<(Instant, u64)>,
}

impl Estimate {
    /// Records the job's own estimate after a step; `None` if it does not know.
    pub(crate) fn update(&mut self, remaining: Option<Duration>, now: Instant) {
        self.reported = remaining.map(|remaining| now + remaining.min(FOREVER));
    }

    /// Records progress. The rate is measured from the first report on, because work of earlier
    /// deliveries took no time in this one.
    pub(crate) fn progress(&mut self, done: u64, now: Instant) {
        self.first.get_or_insert((now, done));
    }

    /// When a job that has done `done` of `total` is expected to be done; `None` without enough
    /// data.
    pub(crate) fn end(&self, done: u64, total: u64, now: Instant) -> Option<Instant> {
        self.reported.or_else(|| {
            let (since, before) = self.first?;
            let steps = done.checked_sub(before).filter(|steps| *steps > 0)?;
            let left = total.checked_sub(done).filter(|_| total > 0)?;
            #[expect(clippy::cast_precision_loss, reason = "an estimate needs no more")]
            let seconds = (now - since).as_secs_f64() * (left as f64 / steps as f64);
            // A duration that does not fit counts as unlimited, too.
            Some(now + Duration::try_from_secs_f64(seconds).map_or(FOREVER, |left| left.min(FOREVER)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_job_is_expected_to_go_on_at_the_pace_of_this_delivery() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut estimate = Estimate::default();
        assert_eq!(estimate.end(0, 100, now), None);
        estimate.progress(40, now);
        assert_eq!(estimate.end(40, 100, at(10)), None, "it has not moved yet");
        estimate.progress(60, at(10));
        assert_eq!(estimate.end(60, 100, at(10)), Some(at(30)));
        assert_eq!(estimate.end(60, 100, at(20)), Some(at(60)), "it is slower than it was");
        assert_eq!(estimate.end(60, 0, at(20)), None, "it does not say of how much");
        assert_eq!(estimate.end(100, 60, at(20)), None, "the estimate is impossible");
    }

    #[tokio::test(start_paused = true)]
    async fn longer_than_any_clock_counts_is_for_ever() {
        let now = Instant::now();
        let mut estimate = Estimate::default();
        estimate.progress(0, now);
        for total in [u64::MAX, u64::MAX / 4] {
            assert_eq!(
                estimate.end(1, total, now + Duration::from_secs(9)),
                Some(now + Duration::from_secs(9) + FOREVER)
            );
        }
        estimate.update(Some(Duration::MAX), now);
        assert_eq!(estimate.end(1, 2, now), Some(now + FOREVER));
    }

    #[tokio::test(start_paused = true)]
    async fn its_own_word_counts_for_more() {
        let now = Instant::now();
        let mut estimate = Estimate::default();
        estimate.progress(0, now);
        estimate.update(Some(Duration::from_secs(5)), now);
        assert_eq!(estimate.end(1, 100, now + Duration::from_secs(1)), Some(now + Duration::from_secs(5)));
        estimate.update(None, now);
        assert_eq!(estimate.end(1, 2, now + Duration::from_secs(1)), Some(now + Duration::from_secs(2)));
    }
}
