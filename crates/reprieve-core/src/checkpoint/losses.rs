//! How often machines lose work: as counted in the ledger, drawn to an assumption while that is little.

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

const HOUR_MS: u64 = 3_600_000;

/// Losses of work, and the time of machines in which they came. A loss is an interruption of a machine's workers
/// that cost work: a death, or a drain that could not save all. One that saves all is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Losses {
    /// How many there were.
    pub count: u64,
    /// For how long machines were seen, summed, in milliseconds.
    pub vm_ms: u64,
}

/// The losses that are assumed besides those that are counted: two in twenty hours of a machine.
///
/// *One in ten hours*, because the Azure portal shows the eviction rate of a VM size per hour in bands of 5 %, of
/// which 10 % is in the middle.
/// <https://learn.microsoft.com/azure/virtual-machines/spot-vms#pricing-and-eviction-history>
///
/// *Two* is how much the assumption weighs: the gamma distribution of this shape is what the rate was believed to be
/// before. So a first loss shortens the interval by at most a fifth, to √(2 ÷ 3), since one tells little. After twenty,
/// an assumption that was wrong by ten times makes the interval wrong by 1.35 at most, which costs a twentieth of what
/// saves and lost work cost at best.
pub const ASSUMED_LOSSES: Losses = Losses { count: 2, vm_ms: 20 * HOUR_MS };

impl Losses {
    /// The mean time between two losses on one machine; without any loss, the longest that there is.
    #[must_use]
    pub fn between(self) -> Duration {
        match self.count {
            0 => Duration::MAX,
            count => Duration::from_millis(self.vm_ms / count),
        }
    }
}

impl Add for Losses {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { count: self.count.saturating_add(other.count), vm_ms: self.vm_ms.saturating_add(other.vm_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean time between losses, in minutes.
    fn estimate(count: u64, vm_hours: u64) -> u64 {
        let counted = Losses { count, vm_ms: vm_hours * HOUR_MS };
        (ASSUMED_LOSSES + counted).between().as_secs() / 60
    }

    #[test]
    fn what_is_counted_outweighs_what_is_assumed_as_it_grows() {
        for (count, vm_hours, minutes) in [
            // Nothing is known.
            (0, 0, 600),
            // A first loss at once, and after the time that was assumed.
            (1, 0, 400),
            (1, 10, 600),
            // No loss for long.
            (0, 20, 1_200),
            (0, 980, 30_000),
            // Twenty losses: one an hour, one in ten hours, one in a hundred.
            (20, 20, 109),
            (20, 200, 600),
            (20, 2_000, 5_509),
            (2_000, 2_000, 60),
        ] {
            assert_eq!(estimate(count, vm_hours), minutes, "{count} losses in {vm_hours} hours");
        }
    }

    #[test]
    fn no_numbers_of_a_damaged_count_overflow() {
        let most = Losses { count: u64::MAX, vm_ms: u64::MAX };
        assert_eq!((ASSUMED_LOSSES + most).between(), Duration::from_millis(1));
        assert_eq!(Losses::default().between(), Duration::MAX);
        assert!((ASSUMED_LOSSES + Losses { count: u64::MAX, vm_ms: 0 }).between().is_zero());
    }
}
