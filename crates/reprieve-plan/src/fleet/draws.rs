//! What chance decides in a run, by its seed.
//!
//! Each number has a place of its own: the third start of a machine is the same whatever happened before, so that
//! strategies and other simulations meet the same machines.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::bursts::Bursts;
use super::model::{Evictions, Model};
use crate::availability::Series;

/// The draws of one seed.
#[derive(Clone, Debug)]
pub struct Draws {
    // ChaCha, because its numbers are the same on every machine and in every version.
    seeded: ChaCha8Rng,
}

/// What one start of a machine brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The time from the allocation until the machine takes jobs.
    pub boot_ms: u64,
    /// The time from the allocation to its eviction, for a Spot machine that is evicted for itself; `None` if it lives
    /// longer than anything that the law knows.
    pub lives_ms: Option<u64>,
    /// Whether its eviction is announced, if it comes late enough for that.
    pub is_announced: bool,
}

/// What a number is drawn for; kept apart by the stream.
#[derive(Clone, Copy)]
enum For {
    Start = 1,
    Request = 2,
    Loss = 3,
    Choice = 4,
    Beginning = 5,
}

impl Draws {
    /// The draws of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seeded: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Other numbers, which nothing else draws, to take one after the other.
    #[must_use]
    pub(super) fn others(&self) -> ChaCha8Rng {
        self.seeded.clone()
    }

    fn stream(&self, what: For, machine: usize, number: u32) -> ChaCha8Rng {
        let mut random = self.seeded.clone();
        random.set_stream(((what as u64) << 60) | ((machine as u64) << 32) | u64::from(number));
        random
    }

    /// What the start number `start` of a machine brings.
    #[must_use]
    pub fn fate(&self, model: &Model, machine: usize, start: u32) -> Fate {
        let mut random = self.stream(For::Start, machine, start);
        let (least_ms, most_ms) = model.machines.boot_ms;
        let boot_ms = random.random_range(least_ms..=most_ms);
        let announced: f64 = random.random();
        let lives_ms = match &model.market.evictions {
            Evictions::Each(lifetime) => lifetime.draw_ms(&mut random),
            Evictions::Together(_) | Evictions::Capacity(_) => None,
        };
        let is_announced = model.market.notice.is_some_and(|notice| announced < notice.share);
        Fate { boot_ms, lives_ms, is_announced }
    }

    /// Whether the request number `request` for a Spot machine finds no capacity, with the chance `refused`.
    #[must_use]
    pub fn is_refused(&self, refused: f64, machine: usize, request: u32) -> bool {
        refused > 0.0 && self.stream(For::Request, machine, request).random_bool(refused)
    }

    /// The time before the loss number `number` of a fleet, and how many of `exposed` machines it would take if they
    /// were that many. Of the machine that the share divides, chance decides.
    #[must_use]
    pub fn loss(&self, bursts: &Bursts, number: u32) -> (u64, Losing) {
        let mut random = self.stream(For::Loss, 0, number);
        let (after_ms, share) = bursts.draw(&mut random);
        (after_ms, Losing { share, part: random.random() })
    }

    /// `count` of the `exposed` machines, or all, in their order. Of two moments with the same number, the same
    /// machines come first, whichever others there are.
    #[must_use]
    pub fn choose(&self, number: u32, exposed: &[usize], count: usize) -> Vec<usize> {
        let most = exposed.iter().max().map_or(0, |last| last + 1);
        let mut random = self.stream(For::Choice, 0, number);
        let ranks: Vec<u64> = (0..most).map(|_| random.random()).collect();
        let mut chosen = exposed.to_vec();
        chosen.sort_unstable_by_key(|machine| (ranks[*machine], *machine));
        chosen.truncate(count);
        chosen.sort_unstable();
        chosen
    }

    /// The moment of a series at which a run begins.
    #[must_use]
    pub fn begins_ms(&self, series: &Series) -> u64 {
        self.stream(For::Beginning, 0, 0).random_range(0..series.length_ms())
    }
}

/// How many machines a loss takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losing {
    share: f64,
    part: f64,
}

impl Losing {
    /// The number of `exposed` machines that it takes.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a number of machines"
    )]
    pub fn of(self, exposed: usize) -> usize {
        (exposed as f64 * self.share + self.part) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Draws;
    use crate::Price;
    use crate::availability::Loss;
    use crate::fleet::{Bursts, Evictions, Model, Notice};
    use crate::lifetime::Lifetime;

    fn model() -> Model {
        let [spot, regular] = [1, 2].map(Price::from_nanos_per_hour);
        let mut model = Model::new(1, 1, spot, regular);
        model.machines.boot_ms = (1_000, 9_000);
        model.market.evictions = Evictions::Each(Lifetime::Exponential { mean_ms: 60_000.0 });
        model.market.notice = Some(Notice { lead_ms: 1, share: 0.5, blind_ms: 0 });
        model
    }

    #[test]
    fn a_start_is_the_same_in_whatever_order_it_is_asked_for() {
        let (draws, model) = (Draws::new(7), model());
        let starts: Vec<_> = (0..100).map(|start| draws.fate(&model, 3, start)).collect();
        let again: Vec<_> = (0..100).rev().map(|start| Draws::new(7).fate(&model, 3, start)).collect();
        assert!(starts.iter().eq(again.iter().rev()));
        let announced = starts.iter().filter(|fate| fate.is_announced).count();
        assert!((30..70).contains(&announced), "{announced}");
        assert_ne!(starts[0], starts[1]);
        assert_ne!(starts[0], draws.fate(&model, 4, 0));
        assert_ne!(starts[0], Draws::new(8).fate(&model, 3, 0));
    }

    #[test]
    fn those_who_are_lost_together_are_the_same_beside_others() {
        let draws = Draws::new(7);
        let all = draws.choose(2, &[0, 1, 2, 3, 4, 5], 3);
        assert_eq!(all.len(), 3);
        assert_eq!(draws.choose(2, &all, 3), all);
        let fewer: Vec<_> = (0..6).filter(|machine| *machine != all[0]).collect();
        assert!(all[1..].iter().all(|machine| draws.choose(2, &fewer, 3).contains(machine)));
        assert_eq!(draws.choose(2, &[1, 2], 9), [1, 2]);
        assert_eq!(draws.choose(2, &[], 1), [0; 0]);
    }

    #[test]
    fn a_loss_takes_its_share_and_chance_decides_of_the_rest() {
        let bursts = Bursts::new(vec![Loss { after_ms: 10, lost: 1, of: 4 }]);
        let lost: Vec<_> = (0..400).map(|number| Draws::new(7).loss(&bursts, number).1.of(6)).collect();
        let twos = lost.iter().filter(|lost| **lost == 2).count();
        assert!(lost.iter().all(|lost| [1, 2].contains(lost)) && (160..240).contains(&twos), "{twos}");
    }
}
