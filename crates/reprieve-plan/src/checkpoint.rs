//! How often jobs save, by the formula that workers use.
//!
//! `reprieve_core::checkpoint` has the same formula, bounds and assumed losses. They stand here again because this
//! crate needs no other; their tests have the same rows.

const HOUR_MS: u64 = 3_600_000;

/// The shortest interval: shorter ones would show in the storage bill.
pub const SHORTEST_MS: u64 = 5_000;

/// The longest interval, which limits the work that a loss can cost.
pub const LONGEST_MS: u64 = 600_000;

/// After how many times the length of a save a job saves again at the earliest, while it saves more often because its
/// worker died before.
pub const CAREFUL_TIMES: u64 = 10;

/// How many losses workers assume besides those that they count, in [`ASSUMED_VM_MS`].
pub const ASSUMED_LOSSES: u64 = 2;

/// The time of machines in which workers assume [`ASSUMED_LOSSES`]: one loss in ten hours, in the middle of the bands
/// of 5 % an hour in which [Azure shows eviction
/// rates](https://learn.microsoft.com/azure/virtual-machines/spot-vms#pricing-and-eviction-history).
pub const ASSUMED_VM_MS: u64 = 20 * HOUR_MS;

/// The interval that minimizes the time lost to saving and to repeated work: √(2·`save_ms`·`between_ms`), from
/// [`SHORTEST_MS`] to [`LONGEST_MS`]. `between_ms` is the mean time between two losses of work on a machine.
/// (J. W. Young, "A first order approximation to the optimum checkpoint interval", 1974.)
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "an estimate, which is clamped"
)]
pub fn young_ms(save_ms: u64, between_ms: u64) -> u64 {
    let interval = (2.0 * save_ms as f64 * between_ms as f64).sqrt();
    interval.clamp(SHORTEST_MS as f64, LONGEST_MS as f64) as u64
}

/// The time between two losses as workers come to see it that lose work `losses` times in `vm_ms` of machines.
#[must_use]
pub fn between_ms(losses: u64, vm_ms: u64) -> u64 {
    ASSUMED_VM_MS.saturating_add(vm_ms) / ASSUMED_LOSSES.saturating_add(losses)
}

#[cfg(test)]
mod tests {
    use super::{HOUR_MS, LONGEST_MS, between_ms, young_ms};

    #[test]
    fn intervals_are_those_of_workers() {
        for (save_ms, hours, seconds) in [
            (0, 10, 5),
            (20, 10, 37),
            (1_000, 10, 268),
            (60_000, 10, 600),
            (1_000, 1, 84),
            (1_000, 4, 169),
            (1_000, 16, 339),
            (1_000, 10_000, 600),
            (60_000, 0, 5),
        ] {
            assert_eq!(young_ms(save_ms, hours * HOUR_MS) / 1000, seconds, "{save_ms} ms, {hours} h");
        }
        assert_eq!(young_ms(u64::MAX, u64::MAX), LONGEST_MS);
    }

    #[test]
    fn times_between_losses_are_those_of_workers() {
        for (losses, vm_hours, minutes) in
            [(0, 0, 600), (1, 0, 400), (1, 10, 600), (0, 980, 30_000), (20, 20, 109), (2_000, 2_000, 60)]
        {
            assert_eq!(between_ms(losses, vm_hours * HOUR_MS) / 60_000, minutes, "{losses} in {vm_hours} h");
        }
    }
}
