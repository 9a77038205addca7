//! The deadline of a drain.

use std::time::Duration;

use tokio::time::Instant;

use crate::notice::{Notice, Phase};

/// The times of a drain: when jobs are asked to yield, when jobs that did not yield are cut off,
/// and when the rest is abandoned. It can only be made from a notice.
///
/// `hard` = min(NotBefore, asked + budget), but at least two seconds after `asked`, within the
/// budget. `soft` leaves time after it for the releases: it is 3 s after jobs were asked to yield,
/// or later where a checkpoint is known to need longer, but never past 60 % of the way to
/// min(NotBefore, asked + budget).
///
/// A patient drain lets jobs that will be done in time run until `patient_until`, and asks only the
/// others to yield at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    asked: Instant,
    /// When the drain should have ended: min(NotBefore, asked + budget), or the end of a patient
    /// drain.
    due: Instant,
    hard: Instant,
    patient_until: Option<Instant>,
}

/// The least time for a drain, within its budget, however soon its event may begin. An event may
/// begin later than its `NotBefore`, so giving up earlier gains nothing.
const LEAST: Duration = Duration::from_secs(2);

/// How long jobs may take to yield before they are cut off at their last checkpoint, when no
/// checkpoint needs longer. Storage answers in tens of milliseconds, so a job that has not yielded
/// by then will not.
pub const SOFT_MARK: Duration = Duration::from_secs(3);

impl Deadline {
    /// The deadline of `notice` for a drain that begins when the notice was received. `budget` is
    /// the longest time that a drain may take.
    #[must_use]
    pub fn of(notice: &Notice, budget: Duration) -> Self {
        Self::from(notice.received, notice, budget)
    }

    /// The deadline of `notice` for a drain that begins at `asked`.
    #[must_use]
    pub fn from(asked: Instant, notice: &Notice, budget: Duration) -> Self {
        let by_budget = asked + budget;
        let due = match (notice.phase, notice.not_before) {
            // A NotBefore in the past means only "at once", and then the budget is the better
            // limit. For an event whose NotBefore had passed when it was announced, `at` is the
            // moment at which it was parsed, which is after `asked`.
            (Phase::Scheduled, Some(at)) if at > asked.max(Instant::now()) => by_budget.min(at),
            _ => by_budget,
        };
        Self { asked, due, hard: due.max(by_budget.min(asked + LEAST)), patient_until: None }
    }

    /// The deadline of a patient drain that begins at `asked`. Jobs may run until `patient_until`;
    /// then `budget` remains to release the rest.
    #[must_use]
    pub fn patient(asked: Instant, patient_until: Instant, budget: Duration) -> Self {
        let due = patient_until + budget;
        Self { asked, due, hard: due, patient_until: Some(patient_until) }
    }

    /// The deadline of one job of a patient drain that is asked to yield at `asked`, because it
    /// will not be done in time.
    #[must_use]
    pub(crate) fn at_once(self, asked: Instant, budget: Duration) -> Self {
        let (due, hard) = (self.due.min(asked + budget), self.hard.min(asked + budget));
        Self { asked, due, hard, patient_until: None }
    }

    /// Combines two deadlines: the earlier end counts, and the drain is patient only if both are. A
    /// second notice never extends the deadline of the first.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        let patient_until =
            self.patient_until.zip(other.patient_until).map(|(ours, theirs)| ours.min(theirs));
        let asked =
            if self.patient_until.is_some() && patient_until.is_none() { other.asked } else { self.asked };
        Self { asked, due: self.due.min(other.due), hard: self.hard.min(other.hard), patient_until }
    }

    /// When jobs were asked to yield: when the notice was received, or later if the drain began
    /// later.
    #[must_use]
    pub const fn asked(&self) -> Instant {
        self.asked
    }

    /// Until when jobs that will be done by then may run; `None` for a drain that asks all of them
    /// to yield at once.
    #[must_use]
    pub const fn patient_until(&self) -> Option<Instant> {
        self.patient_until
    }

    /// When the drain abandons the jobs that have not stopped.
    #[must_use]
    pub const fn hard(&self) -> Instant {
        self.hard
    }

    /// When waiting parts of the drain must give up, so that their results still enter the report
    /// that closes at `hard`: 2 % of the whole time earlier (200 ms of ten seconds), and at least
    /// 20 ms.
    #[must_use]
    pub fn report_by(&self) -> Instant {
        let whole = self.hard.duration_since(self.asked);
        self.hard - whole.mul_f64(0.02).max(Duration::from_millis(20)).min(whole / 2)
    }

    /// When a job is cut off at its last checkpoint, if its next checkpoint takes up to
    /// `checkpoint`.
    #[must_use]
    pub fn soft(&self, checkpoint: Duration) -> Instant {
        let whole = self.due.duration_since(self.asked);
        self.asked + SOFT_MARK.max(checkpoint).min(whole.mul_f64(0.6))
    }

    /// The time until `hard`.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.hard.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::NoticeKind;

    #[tokio::test(start_paused = true)]
    async fn an_event_that_may_begin_any_moment_still_leaves_a_drain_some_time() {
        let (now, budget) = (Instant::now(), Duration::from_secs(10));
        let hard = |notice_ms, budget| {
            let notice = Notice::now("p", NoticeKind::Preempt).at(now + Duration::from_millis(notice_ms));
            Deadline::of(&notice, budget).hard() - now
        };
        let seconds = Duration::from_secs;
        assert_eq!(
            [hard(5_000, budget), hard(300, budget), hard(0, budget)],
            [seconds(5), seconds(2), seconds(10)]
        );
        assert_eq!(hard(300, seconds(1)), seconds(1));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_where_either_notice_has_none_and_the_earlier_end_counts() {
        let (now, budget) = (Instant::now(), Duration::from_secs(10));
        let later = |seconds| now + Duration::from_secs(seconds);
        let patient = Deadline::patient(now, later(285), budget);
        assert_eq!((patient.hard(), patient.patient_until()), (later(295), Some(later(285))));

        tokio::time::advance(Duration::from_secs(60)).await;
        let preempt = Deadline::of(&Notice::now("p", NoticeKind::Preempt), budget);
        for both in [patient.min(preempt), preempt.min(patient)] {
            assert_eq!((both.asked(), both.hard(), both.patient_until()), (later(60), later(70), None));
        }
        let sooner = Deadline::patient(later(60), later(100), budget);
        let both = patient.min(sooner);
        assert_eq!((both.asked(), both.hard(), both.patient_until()), (now, later(110), Some(later(100))));
        assert_eq!(patient.at_once(later(60), budget).hard(), later(70));
        assert_eq!(patient.at_once(later(290), budget).hard(), later(295));
    }
}
