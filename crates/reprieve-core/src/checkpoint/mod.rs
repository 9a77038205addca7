//! How often a job's progress is saved when nothing else requires a save.
//!
//! | file | concept |
//! |---|---|
//! | `losses` | how often machines lose work: counted, and assumed |
//! | `report` | the intervals and their reasons, as the roster and `reprieve status` show them |

mod losses;
mod report;

use std::time::Duration;

pub use losses::{ASSUMED_LOSSES, Losses};
pub use report::{Bound, IntervalReport, KindInterval, Rate};

/// How often checkpoints are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointEvery {
    /// At an interval that follows from the cost of a save and the rate of losses: see [`young`].
    #[default]
    Auto,
    /// At this interval. Zero saves after every step.
    Every(Duration),
}

/// The assumed cost of a save before the first measurement: a small blob in the same region.
pub const ASSUMED_COST: Duration = Duration::from_millis(20);

/// The shortest interval that [`young`] returns: shorter ones would show in the storage bill.
pub const SHORTEST: Duration = Duration::from_secs(5);

/// The longest interval that [`young`] returns, which limits the work that a loss can cost.
pub const LONGEST: Duration = Duration::from_mins(10);

/// How many times as long as a save takes a careful job begins the next one at the earliest: its saves take a tenth of
/// that time. A death costs half an interval of work, and the interval after it, in which the job is careful, a tenth.
const CAREFUL_TIMES: u32 = 10;

/// The interval that minimizes the time lost to saving and to repeated work: √(2·cost·`between`), clamped to
/// [`SHORTEST`] and [`LONGEST`]. `between` is the mean time between two losses of work on a machine. (J. W. Young, "A
/// first order approximation to the optimum checkpoint interval", 1974.)
#[must_use]
pub fn young(cost: Duration, between: Duration) -> Duration {
    let seconds = (2.0 * cost.as_secs_f64() * between.as_secs_f64()).sqrt();
    // In seconds, because a longer time than a Duration holds would panic.
    let clamped = seconds.clamp(SHORTEST.as_secs_f64(), LONGEST.as_secs_f64());
    Duration::from_secs_f64(clamped)
}

/// How long after the beginning of a save of this `cost` a job begins the next at the earliest while it saves after
/// every step, because its worker died before. Steps may be much shorter than a save.
#[must_use]
pub fn careful_gap(cost: Duration) -> Duration {
    cost.saturating_mul(CAREFUL_TIMES)
}

impl CheckpointEvery {
    /// The interval for a job kind for which a save cost `measured` on average, where so many losses were `counted`.
    /// `measured` is `None` before the first save.
    #[must_use]
    pub fn interval(self, measured: Option<Duration>, counted: Losses) -> Duration {
        match self {
            Self::Auto => young(measured.unwrap_or(ASSUMED_COST), (ASSUMED_LOSSES + counted).between()),
            Self::Every(interval) => interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cost_ms: u64, between_hours: u64, seconds: u64) {
        let found = young(Duration::from_millis(cost_ms), Duration::from_hours(between_hours));
        assert_eq!(found.as_secs(), seconds, "a save of {cost_ms} ms, a loss in {between_hours} hours");
    }

    #[test]
    fn a_dearer_save_is_made_less_often_within_bounds() {
        check(0, 10, 5);
        check(20, 10, 37);
        check(1_000, 10, 268);
        check(60_000, 10, 600);
    }

    #[test]
    fn rarer_losses_make_saves_rarer_by_the_square_root() {
        check(1_000, 1, 84);
        check(1_000, 4, 169);
        check(1_000, 16, 339);
        check(1_000, 10_000, 600);
        check(60_000, 0, 5);
        assert_eq!(young(Duration::MAX, Duration::MAX), LONGEST);
    }

    #[test]
    fn an_interval_that_is_set_stays_whatever_is_counted() {
        let many = Losses { count: 1_000, vm_ms: 3_600_000 };
        let set = CheckpointEvery::Every(Duration::from_secs(60));
        assert_eq!(set.interval(Some(Duration::from_secs(9)), many), Duration::from_secs(60));
        let auto = CheckpointEvery::Auto.interval(Some(Duration::from_secs(9)), Losses::default());
        assert_eq!(auto, LONGEST);
        assert!(CheckpointEvery::Auto.interval(Some(Duration::from_secs(1)), many) < Duration::from_secs(20));
    }
}
