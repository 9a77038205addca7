//! How a job passes its time: work, and a save after each interval of it.

use std::num::NonZeroU64;

use crate::checkpoint::{CAREFUL_TIMES, SHORTEST_MS};

/// How often and for how long a job saves in one delivery.
///
/// A save stops the job. The first one comes a whole interval after the delivery began, and each other one an interval
/// after the one before began. There is none after the last interval, because the job is done then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) save_ms: u64,
    /// The work between two saves.
    pub(super) interval: Option<NonZeroU64>,
    /// The job's worker died: for an interval it saves more often, so that it gets past that place.
    pub(super) is_careful: bool,
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

/// A number of saves after as much work each.
#[derive(Clone, Copy, Debug)]
struct Phase {
    work_ms: u64,
    count: u64,
}

impl Pace {
    /// The phases of a job with `work_ms` left. The last has no end.
    fn phases(self, work_ms: u64) -> [Phase; 3] {
        let interval_ms = self.interval.map_or(work_ms, NonZeroU64::get).max(1);
        let is_careful = self.is_careful && self.interval.is_some();
        // Intervals are from the beginning of a save to that of the next.
        let gap_ms = SHORTEST_MS.max(self.save_ms.saturating_mul(CAREFUL_TIMES));
        let every_ms = interval_ms.saturating_add(self.save_ms);
        let count = if is_careful { every_ms.saturating_sub(SHORTEST_MS).div_ceil(gap_ms) } else { 0 };
        [
            Phase { work_ms: if is_careful { SHORTEST_MS.min(interval_ms) } else { every_ms }, count: 1 },
            Phase { work_ms: (gap_ms - self.save_ms).clamp(1, interval_ms), count },
            Phase { work_ms: interval_ms, count: u64::MAX },
        ]
    }

    /// The number of saves of a job that is not stopped.
    pub(super) fn saves(self, work_ms: u64) -> u64 {
        let (mut left_ms, mut saves) = (work_ms, 0);
        for phase in self.phases(work_ms) {
            let phase_ms = phase.work_ms.saturating_mul(phase.count);
            if left_ms <= phase_ms {
                return saves + left_ms.div_ceil(phase.work_ms).saturating_sub(1);
            }
            (left_ms, saves) = (left_ms - phase_ms, saves + phase.count);
        }
        saves
    }

    /// The time of `work_ms` with its saves.
    pub(super) fn duration_ms(self, work_ms: u64) -> u64 {
        work_ms.saturating_add(self.saves(work_ms).saturating_mul(self.save_ms))
    }

    /// The progress of a job with `work_ms` left, `elapsed_ms` after it began that.
    pub(super) fn after(self, work_ms: u64, elapsed_ms: u64) -> Progress {
        let (most, mut rest_ms, mut saves, mut saved_ms) = (self.saves(work_ms), elapsed_ms, 0, 0);
        let mut work_now_ms = u64::MAX;
        for phase in self.phases(work_ms) {
            let cycle_ms = phase.work_ms.saturating_add(self.save_ms);
            let done = (rest_ms / cycle_ms).min(phase.count).min(most - saves);
            saves += done;
            saved_ms += done * phase.work_ms;
            rest_ms -= done * cycle_ms;
            if done < phase.count {
                work_now_ms = phase.work_ms;
                break;
            }
        }
        let unsaved_ms = if saves < most { rest_ms.min(work_now_ms) } else { rest_ms };
        let begun_ms = rest_ms - unsaved_ms;
        Progress {
            saved_ms,
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

    const PACE: Pace = Pace { save_ms: 2, interval: NonZeroU64::new(10), is_careful: false };

    #[track_caller]
    fn check(pace: Pace, elapsed_ms: u64, expected: (u64, u64, u64, u64, u64)) {
        let Progress { saved_ms, unsaved_ms, saving_ms, saves, save_left_ms } = pace.after(25, elapsed_ms);
        assert_eq!((saved_ms, unsaved_ms, saving_ms, saves, save_left_ms), expected, "after {elapsed_ms}");
        assert_eq!(saved_ms + unsaved_ms + saving_ms, elapsed_ms, "all time is counted once");
    }

    #[test]
    fn time_is_work_and_saves() {
        // Saves begin after 12 and after 24.
        assert_eq!((PACE.saves(25), PACE.duration_ms(25)), (2, 29));
        check(PACE, 0, (0, 0, 0, 0, 2));
        check(PACE, 11, (0, 11, 0, 0, 2));
        check(PACE, 12, (0, 12, 0, 0, 2));
        check(PACE, 13, (0, 12, 1, 0, 1));
        check(PACE, 14, (12, 0, 2, 1, 2));
        check(PACE, 25, (12, 10, 3, 1, 1));
        check(PACE, 28, (22, 2, 4, 2, 2));
        check(PACE, 29, (22, 3, 4, 2, 2));
    }

    #[test]
    fn no_save_follows_the_last_interval() {
        assert_eq!([0, 12, 13, 22, 23].map(|work_ms| PACE.saves(work_ms)), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn a_job_that_is_done_within_the_interval_saves_nothing_however_long_a_save_takes() {
        let slow = Pace { save_ms: 590_000, interval: NonZeroU64::new(10_000), is_careful: false };
        assert_eq!([599_999, 600_000, 600_001].map(|work_ms| slow.saves(work_ms)), [0, 0, 1]);
        assert_eq!(slow.duration_ms(600_000), 600_000);
    }

    #[test]
    fn a_job_that_cannot_be_cut_saves_nothing() {
        let whole = Pace { interval: None, ..PACE };
        assert_eq!(whole.duration_ms(25), 25);
        check(whole, 24, (0, 24, 0, 0, 2));
    }

    #[test]
    fn after_a_death_a_job_saves_soon_and_then_often_for_an_interval() {
        // Saves of 1 s each 61 s: after 5 s of work, and each 10 s until one begins after the interval.
        let careful = Pace { save_ms: 1_000, interval: NonZeroU64::new(60_000), is_careful: true };
        assert_eq!(
            [5_000, 5_001, 14_001, 59_000, 59_001].map(|work_ms| careful.saves(work_ms)),
            [0, 1, 2, 6, 7]
        );
        assert_eq!([119_000, 119_001].map(|work_ms| careful.saves(work_ms)), [7, 8]);
        check_careful(careful, 5_000, (0, 5_000, 0, 0, 1_000));
        check_careful(careful, 5_400, (0, 5_000, 400, 0, 600));
        check_careful(careful, 6_000, (5_000, 0, 1_000, 1, 1_000));
        check_careful(careful, 16_000, (14_000, 0, 2_000, 2, 1_000));
        check_careful(careful, 66_000, (59_000, 0, 7_000, 7, 1_000));
        check_careful(careful, 96_000, (59_000, 30_000, 7_000, 7, 1_000));
        check_careful(careful, 127_000, (119_000, 0, 8_000, 8, 1_000));
        check_careful(careful, 208_000, (119_000, 81_000, 8_000, 8, 1_000));
    }

    #[track_caller]
    fn check_careful(pace: Pace, elapsed_ms: u64, expected: (u64, u64, u64, u64, u64)) {
        let Progress { saved_ms, unsaved_ms, saving_ms, saves, save_left_ms } =
            pace.after(150_000, elapsed_ms);
        assert_eq!((saved_ms, unsaved_ms, saving_ms, saves, save_left_ms), expected, "after {elapsed_ms}");
    }
}
