//! How often a job's progress is saved when nothing else calls for it.

use std::time::Duration;

/// How often checkpoints are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointEvery {
    /// By what a save costs: see [`young`].
    #[default]
    Auto,
    /// This often. Zero saves after every step.
    Every(Duration),
}

/// The mean time between evictions that [`young`] assumes. The Azure portal shows a size's eviction rate per hour in
/// bands of 5 %; 10 % an hour, in the middle of them, is one eviction in ten hours.
/// <https://learn.microsoft.com/azure/virtual-machines/spot-vms#pricing-and-eviction-history>
pub const MEAN_TIME_BETWEEN_EVICTIONS: Duration = Duration::from_hours(10);

/// What a save is taken to cost before one was measured: a small blob in the same region.
pub const ASSUMED_COST: Duration = Duration::from_millis(20);

/// The shortest interval that [`young`] gives: below it, saving would show in the storage bill.
pub const SHORTEST: Duration = Duration::from_secs(5);

/// The longest interval that [`young`] gives: no one wants to lose more than this, whatever the arithmetic says.
pub const LONGEST: Duration = Duration::from_mins(10);

/// The interval that loses the least time in all, to saving and to redone work: √(2·cost·MTBF), within
/// [`SHORTEST`] and [`LONGEST`]. (J. W. Young, "A first order approximation to the optimum checkpoint interval", 1974.)
#[must_use]
pub fn young(cost: Duration) -> Duration {
    let seconds = (2.0 * cost.as_secs_f64() * MEAN_TIME_BETWEEN_EVICTIONS.as_secs_f64()).sqrt();
    Duration::from_secs_f64(seconds).clamp(SHORTEST, LONGEST)
}

impl CheckpointEvery {
    /// The interval for a job kind whose saves have cost `measured` on average; `None` before the first.
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
