//! The scenarios in which the two simulations are compared.
//!
//! Ten of them were used while the model and the comparison were being made. The others were chosen and written down
//! before either had given any result, and nothing was changed because of them.

use std::num::NonZeroU64;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::{Error, ErrorKind, Result};
use reprieve_plan::Price;
use reprieve_plan::availability::{lives, losses};
use reprieve_plan::fleet::{Bursts, Evictions, Mix, Model, Notice, PriceSteps, Strategy};
use reprieve_plan::lifetime::{Lifetime, Resampled};
use reprieve_plan::vm_state::MaxPrice;

const P3: &str = include_str!("../../../reprieve-plan/traces/aws-p3-fleet.csv");
const G4DN: &str = include_str!("../../../reprieve-plan/traces/aws-g4dn-fleet.csv");
const GCP: &str = include_str!("../../../reprieve-plan/traces/gcp-lifetimes.csv");

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;

/// The jobs of every scenario.
const JOBS: usize = 200;

/// The time after which a run that does not finish ends.
const LIMIT_MS: u64 = 48 * 60 * MINUTE_MS;

/// A batch, the world that it runs in, and a strategy.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The name in the table.
    pub name: &'static str,
    /// Whether nobody looked at its results while the model was being made.
    pub is_held_out: bool,
    /// The batch and its world.
    pub model: Model,
    /// The fleet.
    pub strategy: Strategy,
}

/// How a scenario differs from the others.
struct World {
    slots: u32,
    /// The longest job, and whether lengths are drawn; equal otherwise.
    job: (u64, bool),
    checkpoint: Option<u64>,
    save: u64,
    evictions: Evictions,
    /// The share of evictions that are announced.
    announced: f64,
    boot: (u64, u64),
}

impl Default for World {
    fn default() -> Self {
        Self {
            slots: 1,
            job: (10 * MINUTE_MS, false),
            checkpoint: Some(5 * MINUTE_MS),
            save: 2 * SECOND_MS,
            evictions: Evictions::Each(Lifetime::Endless),
            announced: 0.9,
            boot: (MINUTE_MS, 3 * MINUTE_MS),
        }
    }
}

impl World {
    /// The model of this world, with the prices of a D4s v5 in West Europe as an example.
    fn model(self) -> Model {
        let (spot, regular) =
            (Price::from_nanos_per_hour(46_000_000), Price::from_nanos_per_hour(230_000_000));
        let (longest, is_drawn) = self.job;
        let mut model = Model::new(JOBS, longest, spot, regular);
        if is_drawn {
            // The same lengths in every run.
            let mut random = SmallRng::seed_from_u64(20);
            model.work.jobs_ms.fill_with(|| random.random_range(longest / 10..=longest));
        }
        model.work.checkpoint_ms = self.checkpoint.and_then(NonZeroU64::new);
        model.work.save_ms = self.save;
        model.work.restore_ms = self.save;
        model.machines.slots = self.slots;
        model.machines.boot_ms = self.boot;
        model.market.evictions = self.evictions;
        model.market.notice =
            Some(Notice { lead_ms: 30 * SECOND_MS, share: self.announced, blind_ms: 2 * MINUTE_MS });
        model.limit_ms = LIMIT_MS;
        model
    }
}

/// Each machine for itself, this share of them in an hour.
fn hourly(share: f64) -> Evictions {
    Evictions::Each(Lifetime::from_hourly_rate(share))
}

/// Several at a moment, as this fleet lost machines.
fn together(trace: &str) -> Result<Evictions> {
    Ok(Evictions::Together(Bursts::new(losses(trace).map_err(|error| unreadable(&error))?)))
}

fn unreadable(error: &reprieve_plan::TraceError) -> Error {
    Error::new(ErrorKind::Corrupt, "read a trace", error.to_string())
}

/// All scenarios, those for tuning first.
///
/// # Errors
/// A trace that can't be read.
pub fn all() -> Result<Vec<Scenario>> {
    let tuning = tuning()?.into_iter().map(|it| (false, it));
    let held_out = held_out()?.into_iter().map(|it| (true, it));
    let scenario = |(is_held_out, (name, model, strategy))| Scenario { name, is_held_out, model, strategy };
    Ok(tuning.chain(held_out).map(scenario).collect())
}

type Named = (&'static str, Model, Strategy);

fn tuning() -> Result<Vec<Named>> {
    let noticed =
        World { job: (15 * MINUTE_MS, true), announced: 1.0, evictions: hourly(0.2), ..World::default() };
    let unheard =
        World { job: (8 * MINUTE_MS, false), announced: 0.0, evictions: hourly(0.3), ..World::default() };
    let slots = World {
        slots: 4,
        job: (30 * MINUTE_MS, true),
        announced: 0.5,
        evictions: hourly(0.4),
        ..World::default()
    };
    let costly = World {
        slots: 4,
        job: (15 * MINUTE_MS, false),
        save: 20 * SECOND_MS,
        announced: 1.0,
        evictions: hourly(0.4),
        ..World::default()
    };
    let short = World { job: (90 * SECOND_MS, false), evictions: hourly(0.2), ..World::default() };
    let p3 = World { evictions: together(P3)?, ..World::default() };
    let boots = World {
        slots: 2,
        job: (20 * MINUTE_MS, true),
        boot: (6 * MINUTE_MS, 12 * MINUTE_MS),
        evictions: hourly(0.3),
        ..World::default()
    };
    let price = World { slots: 2, job: (12 * MINUTE_MS, false), save: 0, ..World::default() };
    let swap = World {
        job: (12 * MINUTE_MS, false),
        checkpoint: None,
        announced: 0.0,
        evictions: hourly(0.9),
        ..World::default()
    };
    let mut price = price.model();
    let [high, low] = [70_000_000, 40_000_000].map(Price::from_nanos_per_hour);
    let steps =
        [(20, high), (45, low), (70, high), (80, low)].map(|(minute, price)| (minute * MINUTE_MS, price));
    price.market.spot = PriceSteps::new(low, steps);
    let max_price = MaxPrice::Of(Price::from_nanos_per_hour(50_000_000));
    Ok(vec![
        ("no evictions", World::default().model(), Strategy::steady_fleet(8)),
        ("all announced, 20 % an hour", noticed.model(), Strategy::steady_fleet(8)),
        ("none announced, 30 % an hour", unheard.model(), Strategy::steady_fleet(8)),
        ("four slots, half announced, 40 % an hour", slots.model(), Strategy::steady_fleet(4)),
        ("four slots, saves of 20 s, all announced, 40 % an hour", costly.model(), Strategy::steady_fleet(4)),
        ("jobs of 90 s, autoscale, 20 % an hour", short.model(), Strategy::elastic(8)),
        ("losses of the p3 fleet, restored", p3.model(), Strategy::steady(16)),
        ("boots of 6 to 12 min, autoscale, 30 % an hour", boots.model(), Strategy::elastic(8)),
        ("price steps above the maximum", price, Strategy { max_price, ..Strategy::steady_fleet(8) }),
        (
            "swap after two, jobs that can't be cut, none announced, 90 % an hour",
            swap.model(),
            Strategy::swap(8, 2, 2),
        ),
    ])
}

fn held_out() -> Result<Vec<Named>> {
    let regular = World { slots: 4, job: (40 * MINUTE_MS, true), ..World::default() };
    let high = World {
        job: (15 * MINUTE_MS, true),
        save: 0,
        announced: 0.5,
        evictions: hourly(0.8),
        ..World::default()
    };
    let whole = World {
        slots: 2,
        job: (12 * MINUTE_MS, false),
        checkpoint: None,
        announced: 0.0,
        evictions: hourly(0.2),
        ..World::default()
    };
    let slots = World {
        slots: 8,
        job: (40 * MINUTE_MS, true),
        announced: 0.0,
        evictions: hourly(0.5),
        ..World::default()
    };
    let costly = World {
        slots: 4,
        job: (40 * MINUTE_MS, false),
        checkpoint: Some(10 * MINUTE_MS),
        save: 20 * SECOND_MS,
        announced: 0.0,
        evictions: hourly(0.3),
        ..World::default()
    };
    let short = World { slots: 4, job: (60 * SECOND_MS, false), evictions: hourly(0.4), ..World::default() };
    let g4dn = World {
        slots: 2,
        job: (20 * MINUTE_MS, true),
        announced: 0.5,
        evictions: together(G4DN)?,
        ..World::default()
    };
    let lived = Evictions::Each(Lifetime::Resampled(Resampled::new(
        &lives(GCP).map_err(|error| unreadable(&error))?,
    )));
    let gcp = World { slots: 2, job: (20 * MINUTE_MS, false), evictions: lived, ..World::default() };
    let refused =
        World { slots: 2, job: (12 * MINUTE_MS, false), evictions: hourly(0.4), ..World::default() };
    let balanced = World {
        slots: 2,
        job: (20 * MINUTE_MS, true),
        announced: 0.5,
        evictions: hourly(0.3),
        ..World::default()
    };
    let mut refused = refused.model();
    refused.market.refused = 0.5;
    Ok(vec![
        ("all regular, four slots", regular.model(), Strategy::all_regular(8)),
        ("half announced, 80 % an hour", high.model(), Strategy::steady_fleet(8)),
        ("jobs that can't be cut, none announced, 20 % an hour", whole.model(), Strategy::steady_fleet(8)),
        ("eight slots, none announced, 50 % an hour", slots.model(), Strategy::steady_fleet(2)),
        (
            "four slots, saves of 20 s, none announced, 30 % an hour",
            costly.model(),
            Strategy::steady_fleet(8),
        ),
        ("jobs of 60 s in four slots, autoscale, 40 % an hour", short.model(), Strategy::elastic(4)),
        ("losses of the g4dn fleet, half announced, autoscale", g4dn.model(), Strategy::elastic(16)),
        ("lives of gcp-lifetimes.csv, restored", gcp.model(), Strategy::steady(8)),
        ("half of the requests refused, autoscale, 40 % an hour", refused, Strategy::elastic(8)),
        (
            "balanced, 2 and 25 % regular, 30 % an hour",
            balanced.model(),
            Strategy::balanced(10, Mix { base: 2, percent_above: 25 }),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::{JOBS, all};

    #[test]
    fn half_of_twenty_scenarios_were_held_out_and_all_can_be_simulated() {
        let scenarios = all().unwrap();
        let held_out = scenarios.iter().filter(|scenario| scenario.is_held_out).count();
        assert_eq!((scenarios.len(), held_out), (20, 10));
        for scenario in scenarios {
            assert_eq!(
                (scenario.model.check(), scenario.strategy.check()),
                (Ok(()), Ok(())),
                "{}",
                scenario.name
            );
            assert_eq!(scenario.model.work.jobs_ms.len(), JOBS);
        }
    }
}
