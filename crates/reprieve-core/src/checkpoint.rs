//! How often a job's progress is saved when nothing else requires a save.

use std::time::Duration;

/// How often checkpoints are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointEvery {
    /// At an interval that follows from the cost of a save: see [`young`].
    #[default]
    Auto,
    /// At this interval. Zero saves after every step.
    Every(Duration),
}

/// The mean time between evictions that [`young`] assumes. The Azure portal shows the eviction rate
/// of a VM size per hour, in bands of 5 %; 10 % an hour, in the middle of the bands, is one
/// eviction in ten hours.
/// <https://learn.microsoft.com/azure/virtual-machines/spot-vms#pricing-and-eviction-history>
pub const MEAN_TIME_BETWEEN_EVICTIONS: Duration = Duration::from_hours(10);

/// The assumed cost of a save before the first measurement: a small blob in the same region.
pub const ASSUMED_COST: Duration = Duration::from_millis(20);

/// The shortest interval that [`young`] returns: shorter ones would show in the storage bill.
pub const SHORTEST: Duration = Duration::from_secs(5);

/// The longest interval that [`young`] returns, which limits the work that an eviction can cost.
pub const LONGEST: Duration = Duration::from_mins(10);

/// The interval that minimizes the time lost to saving and to repeated work: √(2·cost·MTBF),
/// clamped to [`SHORTEST`] and [`LONGEST`]. (J. W. Young, "A first order approximation to the
/// optimum checkpoint interval", 1974.)
#[must_use]
pub fn young(cost: Duration) -> Duration {
    let seconds = (2.0 * cost.as_secs_f64() * MEAN_TIME_BETWEEN_EVICTIONS.as_secs_f64()).sqrt();
    Duration::from_secs_f64(seconds).clamp(SHORTEST, LONGEST)
}

impl CheckpointEvery {
    /// The interval for a job kind for which a save cost `measured` on average; `None` before the
    /// first save.
    #[must_use]
    pub fn interval(self, measured: Option<Duration>) -> Duration {
        match self {
            Self::Auto => young(measured.unwrap_or(ASSUMED_COST)),
            Self::Every(interval) => interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cost_ms: u64, seconds: u64) {
        assert_eq!(young(Duration::from_millis(cost_ms)).as_secs(), seconds, "a save of {cost_ms} ms");
    }

    #[test]
    fn a_dearer_save_is_made_less_often_within_bounds() {
        check(0, 5);
        check(20, 37);
        check(1_000, 268);
        check(60_000, 600);
    }
}
