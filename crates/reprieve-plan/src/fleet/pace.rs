//! How a job passes its time: work, and a save after each interval of it.

use std::num::NonZeroU64;

/// How often and for how long a job saves.
///
/// A save stops the job. There is none after the last interval, because the job is done then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) save_ms: u64,
    pub(super) interval: Option<NonZeroU64>,
}

/// What became of the time of a job that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Work that is saved.
    pub(super) saved_ms: u64,
    /// Work since.
    pub(super) unsaved_ms: u64,
    /// Time in saves; the last may not be complete.
    pub(super) saving_ms: u64,
    /// Complete saves.
    pub(super) saves: u64,
    /// What is missing of the save in which the job was stopped; a whole save outside one.
    pub(super) save_left_ms: u64,
}

impl Pace {
    /// The number of saves of a job that is not stopped.
    pub(super) fn saves(self, work_ms: u64) -> u64 {
        self.interval.map_or(0, |interval| work_ms.div_ceil(interval.get()).saturating_sub(1))
    }

    /// The time of `work_ms` with its saves.
    pub(super) fn duration_ms(self, work_ms: u64) -> u64 {
        work_ms.saturating_add(self.saves(work_ms).saturating_mul(self.save_ms))
    }

    /// The progress of a job with `work_ms` left, `elapsed_ms` after it began that.
    pub(super) fn after(self, work_ms: u64, elapsed_ms: u64) -> Progress {
        let interval_ms = self.interval.map_or(work_ms, NonZeroU64::get).max(1);
        let cycle_ms = interval_ms.saturating_add(self.save_ms);
        let saves = (elapsed_ms / cycle_ms).min(self.saves(work_ms));
        let rest_ms = elapsed_ms - saves * cycle_ms;
        let unsaved_ms = if saves < self.saves(work_ms) { rest_ms.min(interval_ms) } else { rest_ms };
        let begun_ms = rest_ms - unsaved_ms;
        Progress {
            saved_ms: saves * interval_ms,
            unsaved_ms,
            saving_ms: saves * self.save_ms + begun_ms,
            saves,
            save_left_ms: self.save_ms - begun_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::{Pace, Progress};

    const PACE: Pace = Pace { save_ms: 2, interval: NonZeroU64::new(10) };

    #[track_caller]
    fn check(pace: Pace, elapsed_ms: u64, expected: (u64, u64, u64, u64, u64)) {
        let Progress { saved_ms, unsaved_ms, saving_ms, saves, save_left_ms } = pace.after(25, elapsed_ms);
        assert_eq!((saved_ms, unsaved_ms, saving_ms, saves, save_left_ms), expected, "after {elapsed_ms}");
        assert_eq!(saved_ms + unsaved_ms + saving_ms, elapsed_ms, "all time is counted once");
    }

    #[test]
    fn time_is_work_and_saves() {
        assert_eq!((PACE.saves(25), PACE.duration_ms(25)), (2, 29));
        check(PACE, 0, (0, 0, 0, 0, 2));
        check(PACE, 9, (0, 9, 0, 0, 2));
        check(PACE, 10, (0, 10, 0, 0, 2));
        check(PACE, 11, (0, 10, 1, 0, 1));
        check(PACE, 12, (10, 0, 2, 1, 2));
        check(PACE, 23, (10, 10, 3, 1, 1));
        check(PACE, 28, (20, 4, 4, 2, 2));
        check(PACE, 29, (20, 5, 4, 2, 2));
    }

    #[test]
    fn no_save_follows_the_last_interval() {
        assert_eq!((PACE.saves(10), PACE.saves(20), PACE.saves(0)), (0, 1, 0));
    }

    #[test]
    fn a_job_that_cannot_be_cut_saves_nothing() {
        let whole = Pace { interval: None, ..PACE };
        assert_eq!(whole.duration_ms(25), 25);
        check(whole, 24, (0, 24, 0, 0, 2));
    }
}
