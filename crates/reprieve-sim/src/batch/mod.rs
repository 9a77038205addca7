//! A batch that `reprieve-plan` models, with real workers on a paused clock: it is done twice, and compared.
//!
//! Both simulations have the same jobs, machines, evictions, notices and prices: [`Draws`](reprieve_plan::fleet::Draws)
//! gives both the same. What becomes of the jobs is decided by a few rules in the model, and here by the code of
//! workers. So this says how right these rules are, and nothing about Azure.
//!
//! | file | concept |
//! |---|---|
//! | `scenarios` | [`Scenario`]: the batches, fleets and worlds that are compared |
//! | `world`, `world::ends` | machines come and go, as the strategy has them |
//! | `place` | a place of the fleet, and its machine |
//! | `process` | the worker on a machine, and the store |
//! | `jobs` | the jobs |
//! | `compare` | [`Compared`]: the two simulations side by side |
//! | `table` | the comparison as a table |

mod compare;
mod jobs;
mod place;
mod process;
mod scenarios;
mod table;
mod world;

use std::sync::atomic::Ordering::Relaxed;

pub use compare::{Compared, Ratio, WITHIN_PERCENT};
pub use scenarios::{Scenario, all};
pub use table::{Details, HEAD, Row};

use jobs::Counts;
use place::{Place, Role};
use reprieve_core::Result;
use reprieve_plan::fleet::{Model, Strategy};

use crate::fleet::paused_runtime;
use world::{JUMP_MS, World};

/// A batch that real workers did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Played {
    /// What the machines cost, in millionths of the currency.
    pub cost_micros: u64,
    /// The time until no message was left; `None` if the run ended before.
    pub finished_ms: Option<u64>,
    /// The evictions of machines.
    pub evictions: u32,
    /// The refused requests for a machine.
    pub refusals: u32,
    /// The time of all machines.
    pub machine_ms: u64,
    /// The jobs that moved to regular machines.
    pub moved: u32,
    /// The jobs that workers gave up.
    pub poisoned: u64,
    /// The saves.
    pub saves: u64,
    /// The work that was lost, and the work that would be done again.
    pub lost_ms: u64,
}

impl Played {
    fn note(&mut self, counts: &Counts, jobs_ms: &[u64]) {
        let needed_ms: u64 = jobs_ms.iter().sum();
        self.saves = counts.saves.load(Relaxed);
        self.lost_ms = counts.worked_ms.load(Relaxed).saturating_sub(needed_ms);
    }
}

/// Lets real workers do the jobs of `model` under `strategy` once, on this thread. Both must have passed their checks.
///
/// # Errors
/// Fails when a runtime or a worker can't be set up, which no seed should cause.
pub fn play(model: &Model, strategy: &Strategy, seed: u64) -> Result<Played> {
    play_by_jumps(model, strategy, seed, JUMP_MS)
}

/// The same with jumps of the clock that are at most so long.
fn play_by_jumps(model: &Model, strategy: &Strategy, seed: u64, jump_ms: u64) -> Result<Played> {
    let runtime = paused_runtime(seed)?;
    let _entered = runtime.enter();
    runtime.block_on(async { World::new(model, strategy, seed, jump_ms).play().await })
}

/// The places of a fleet: regular ones first, and at last those for jobs that move.
fn places(regular: u32, spot: u32, swap: u32) -> Vec<Place> {
    let of = |role, count| (0..count).map(move |_| Place::new(role));
    of(Role::Regular, regular).chain(of(Role::Spot, spot)).chain(of(Role::Swap, swap)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Compared, Scenario, all, play_by_jumps};

    fn scenario(name: &str) -> Scenario {
        all().unwrap().into_iter().find(|scenario| scenario.name == name).unwrap()
    }

    /// Runs of each scenario: `cargo xtask simulate --plan` has more.
    const RUNS: u32 = 2;

    #[test]
    fn the_model_of_a_plan_is_close_to_what_real_workers_do() {
        for name in [
            "jobs of 90 s, autoscale, 20 % an hour",
            "four slots, half announced, 40 % an hour",
            "price steps above the maximum",
        ] {
            let compared = Compared::new(&scenario(name), RUNS).unwrap();
            assert!(compared.is_within(), "{name}: cost {}, finish {}", compared.cost(), compared.finish());
        }
    }

    #[test]
    fn both_meet_the_same_evictions() {
        let Scenario { model, strategy, .. } = scenario("price steps above the maximum");
        let compared = Compared::new(&scenario("price steps above the maximum"), RUNS).unwrap();
        for (modelled, played) in compared.modelled.iter().zip(&compared.played) {
            assert_eq!((modelled.evictions, modelled.refusals), (played.evictions, played.refusals));
            assert!(played.evictions > 0 && played.refusals > 0, "{played:?}");
        }
        assert_eq!(
            super::play(&model, &strategy, 0).unwrap(),
            compared.played[0],
            "a seed gives the same again"
        );
    }

    #[test]
    fn jumps_of_the_clock_change_little() {
        let Scenario { model, strategy, .. } = scenario("four slots, half announced, 40 % an hour");
        let [jumping, steady] =
            [super::JUMP_MS, 0].map(|jump_ms| play_by_jumps(&model, &strategy, 1, jump_ms).unwrap());
        let apart = jumping.cost_micros.abs_diff(steady.cost_micros);
        assert!(apart * 100 < steady.cost_micros, "{jumping:?}, {steady:?}");
        assert_eq!(jumping.evictions, steady.evictions);
    }
}
