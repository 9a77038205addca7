//! The schedule of faults, determined by the seed alone.
//!
//! A fault's time is a share of the work, not of the clock, so a seed means the same on a fast
//! machine and a slow one.

use rand::Rng;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// When faults are injected, in thousandths of all steps: not before every VM has begun, and early
/// enough to show how the work continues.
const FROM_PERMILLE: u32 = 50;
const TO_PERMILLE: u32 = 750;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A Preempt notice, then a kill at its end.
    Eviction,
    /// A kill without notice.
    Kill,
}

/// One fault to come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The share of done steps at which it is injected, in thousandths.
    pub(crate) at_permille: u32,
    /// The VM's slot, from 0. While that VM has no work to lose, the next slot with one that has.
    pub(crate) slot: usize,
}

/// The faults of a demo, in their order.
pub(crate) fn plan(seed: u64, evictions: usize, kills: usize, slots: usize) -> Vec<Fault> {
    // ChaCha and not the standard generator, because its numbers are the same on every machine and
    // in every version.
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut kinds = [vec![Kind::Eviction; evictions], vec![Kind::Kill; kills]].concat();
    kinds.shuffle(&mut random);
    let slots = victims(&mut random, kinds.len(), slots);
    let count = u32::try_from(kinds.len().max(1)).unwrap_or(u32::MAX);
    let width = (TO_PERMILLE - FROM_PERMILLE) / count;
    let mut from = FROM_PERMILLE;
    let mut at = || {
        // Less than the whole width, so that two faults are apart.
        let at = from + random.random_range(0..=width * 3 / 4);
        from += width;
        at
    };
    kinds.into_iter().zip(slots).map(|(kind, slot)| Fault { kind, at_permille: at(), slot }).collect()
}

/// The slot of each fault: every slot once before any slot twice, and none twice in a row, because
/// a replacement has nothing to lose at first.
fn victims(random: &mut ChaCha8Rng, count: usize, slots: usize) -> Vec<usize> {
    let mut victims: Vec<usize> = Vec::with_capacity(count + slots);
    while victims.len() < count {
        let mut round: Vec<_> = (0..slots).collect();
        round.shuffle(random);
        if victims.last() == round.first() {
            round.reverse();
        }
        victims.extend(round);
    }
    victims.truncate(count);
    victims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_schedule() {
        let faults: Vec<_> = plan(1, 4, 2, 3)
            .into_iter()
            .map(|fault| format!("{:?} {} {}", fault.kind, fault.at_permille, fault.slot))
            .collect();
        let first = [
            "Eviction 68 1",
            "Kill 218 2",
            "Kill 316 0",
            "Eviction 417 2",
            "Eviction 587 1",
            "Eviction 654 0",
        ];
        assert_eq!(faults, first);
    }

    #[test]
    fn every_fault_is_there_in_order_in_bounds_and_on_a_vm_there_is() {
        for seed in 0..200 {
            for (evictions, kills, slots) in [(0, 0, 2), (1, 0, 1), (4, 2, 3), (0, 7, 2), (100, 100, 16)] {
                let plan = plan(seed, evictions, kills, slots);
                let of = |kind| plan.iter().filter(|fault| fault.kind == kind).count();
                assert_eq!((of(Kind::Eviction), of(Kind::Kill)), (evictions, kills), "seed {seed}");
                assert!(plan.is_sorted_by_key(|fault| fault.at_permille), "seed {seed}: {plan:?}");
                let within = |fault: &Fault| {
                    (FROM_PERMILLE..=TO_PERMILLE).contains(&fault.at_permille) && fault.slot < slots
                };
                assert!(plan.iter().all(within), "seed {seed}: {plan:?}");
            }
        }
    }

    #[test]
    fn no_vm_is_struck_twice_in_a_row_while_there_are_others() {
        for seed in 0..200 {
            let plan = plan(seed, 10, 10, 3);
            assert!(plan.windows(2).all(|two| two[0].slot != two[1].slot), "seed {seed}: {plan:?}");
        }
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(plan(1, 4, 2, 3), plan(2, 4, 2, 3));
    }
}
