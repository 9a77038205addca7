//! What each strategy costs for a batch and when it is done, which one to take, and what that is based on.
//!
//! | file | concept |
//! |---|---|
//! | `inputs` | [`Inputs`], and what refuses them |
//! | `measured` | what a fleet's own ledger says of evictions |
//! | `scenario` | [`Scenario`]: a world for each end of what is known of evictions |
//! | `runs` | the runs of all strategies in all worlds, on all cores |
//! | `policies` | the deadline policies, where the trace lets them be replayed |
//! | `advice` | [`Advice`]: which strategy, and why |
//! | `assumptions` | [`Assumption`]: every number that was not measured, and every one that was, with its source |
//! | `deploy` | the parameters that deploy a strategy |
//!
//! # Example: is Spot worth it?
//!
//! ```
//! use reprieve_plan::Price;
//! use reprieve_plan::plan::{Inputs, Known, Plan, Source};
//!
//! let (spot, regular) = (Price::from_nanos_per_hour(46_000_000), Price::from_nanos_per_hour(230_000_000));
//! let inputs = Inputs {
//!     deadline_ms: Some(5 * 3_600_000),
//!     evictions: Known::Rate { low: 0.05, high: Some(0.1), pattern: None, source: Source::Given },
//!     runs: 20,
//!     ..Inputs::new(50, 40 * 60_000, 10, spot, regular)
//! };
//! let plan = Plan::new(&inputs, |_done, _of| {})?;
//! assert!(plan.advice.strategy.is_some_and(|index| plan.rows[index].strategy.uses_spot()));
//! println!("{}", plan.advice.reason);
//! # Ok::<(), reprieve_plan::plan::PlanError>(())
//! ```

mod advice;
mod assumptions;
mod deploy;
mod inputs;
mod measured;
mod policies;
mod runs;
mod scenario;

use std::num::NonZeroUsize;
use std::thread;

use crate::fleet::{Mix, Model, Strategy, Summary, simulate_within};
use crate::money::{Cost, Price};
use crate::vm_state::{EvictionPolicy, MaxPrice};

pub use advice::{Advice, CHANCE_MIN, SAVING_MIN, Verdict};
pub use assumptions::Assumption;
pub use deploy::{ESCALATION_INSTANCES_MAX, INSTANCES_MAX, is_balanced, parameters};
pub use inputs::{
    ASSUMED_BOOT_MS, ASSUMED_NOTICE, ASSUMED_SAVE_COST, EVENTS_MAX, Inputs, Known, MIX_DEFAULT, PlanError,
    Prices, SWAP_DEFAULT, Source,
};
pub use policies::PolicyRow;
pub use scenario::Scenario;

/// The time of a month, as Azure's price pages reckon: 730 hours.
const MONTH_MS: u64 = 730 * 3_600_000;

/// The strategies of a batch compared, and the one to take.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The worlds: one, or the two ends of an interval.
    pub scenarios: Vec<Scenario>,
    /// The number of runs of each strategy in each world: as many as were asked for, or fewer if they have too many events.
    pub runs: u32,
    /// The strategies; the first is all regular.
    pub rows: Vec<Row>,
    /// The deadline policies; none without a deadline and a trace of availability. They are no preset: a guard that
    /// would carry them out does not exist yet, so the advice leaves them out.
    pub policies: Vec<PolicyRow>,
    /// Which strategy to take, and why.
    pub advice: Advice,
    /// What all this is based on.
    pub assumptions: Vec<Assumption>,
}

/// A strategy in each world.
#[derive(Clone, Debug)]
pub struct Row {
    /// The strategy.
    pub strategy: Strategy,
    /// Its runs, for each of [`Plan::scenarios`].
    pub summaries: Vec<Summary>,
    /// What a month without a job costs.
    pub idle_month: Cost,
    /// The most Spot and the most regular machines that the quota has to allow at a time, whatever the market gives.
    /// Deallocated ones count against it.
    pub quota: (u32, u32),
    /// The lines of a `.bicepparam` file; none if no preset is like it.
    pub parameters: Vec<String>,
}

impl Plan {
    /// Simulates every strategy in every world on all cores, and calls `progress` with the number of runs that are done
    /// and of all.
    ///
    /// # Errors
    ///
    /// The first fault of the inputs; a deadline that regular machines alone can't meet.
    pub fn new(inputs: &Inputs, progress: impl FnMut(u64, u64) + Send) -> Result<Self, PlanError> {
        Self::on(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN), inputs, progress)
    }

    fn on(
        cores: NonZeroUsize,
        inputs: &Inputs,
        progress: impl FnMut(u64, u64) + Send,
    ) -> Result<Self, PlanError> {
        inputs.check()?;
        let strategies = strategies(inputs);
        for strategy in &strategies {
            strategy.check()?;
        }
        let scenarios = worlds(inputs)?;
        let played = runs::play(inputs, &scenarios, &strategies, cores, progress)?;
        let with_runs = strategies.into_iter().zip(played.summaries);
        let rows: Vec<_> = with_runs.map(|(strategy, summaries)| row(inputs, strategy, summaries)).collect();
        let (policies, few) =
            scenarios.first().map(|it| policies::rows(inputs, it, cores)).unwrap_or_default();
        let advice = advice::advise(inputs, &scenarios, &rows);
        let mut assumptions = assumptions::list(inputs, &scenarios, &rows);
        assumptions.extend(few);
        Ok(Self { scenarios, runs: played.runs, rows, policies, advice, assumptions })
    }
}

/// The worlds, in which regular machines alone can do the batch.
fn worlds(inputs: &Inputs) -> Result<Vec<Scenario>, PlanError> {
    let mut scenarios = scenario::scenarios(inputs);
    for scenario in &mut scenarios {
        scenario.model.check()?;
        check_deadline(inputs, &scenario.model)?;
        if inputs.can_save {
            scenario.set_interval(inputs.instances, inputs.run_events_max())?;
        } else {
            scenario.model.work.checkpoint_ms = None;
        }
    }
    Ok(scenarios)
}

/// All regular, and the presets of `infra/`.
fn strategies(inputs: &Inputs) -> Vec<Strategy> {
    let instances = inputs.instances;
    let limited = |strategy| Strategy { max_price: inputs.max_price, ..strategy };
    let mix = inputs.mix;
    let mut all = vec![
        Strategy::all_regular(instances),
        Strategy { max_price: MaxPrice::OnDemand, ..Strategy::steady(instances) },
        limited(Strategy::steady_fleet(instances)),
        limited(Strategy::elastic(instances)),
    ];
    // Others would be one of those above, and are refused by infra/.
    if is_balanced(mix, instances) {
        if mix.percent_above > 0 {
            let base = Mix { percent_above: 0, ..mix };
            all.push(limited(Strategy::balanced(instances, base).named("balanced, base only")));
        }
        all.push(limited(Strategy::balanced(instances, mix)));
    }
    all.push(limited(Strategy::swap(instances, inputs.swap.0, inputs.swap.1)));
    all
}

/// Regular machines with the longest boot and without saves, which no strategy can beat, have to be done in time.
fn check_deadline(inputs: &Inputs, model: &Model) -> Result<(), PlanError> {
    let mut model = model.clone();
    model.work.checkpoint_ms = None;
    model.machines.boot_ms.0 = model.machines.boot_ms.1;
    let events_max = inputs.run_events_max();
    let outcome = simulate_within(&model, &Strategy::all_regular(inputs.instances), 0, events_max);
    if outcome.events > events_max {
        return Err(PlanError::TooManyEvents);
    }
    match (outcome.finished_ms, inputs.deadline_ms) {
        (None, _) => Err(PlanError::TooLong),
        (Some(needed_ms), Some(deadline_ms)) if needed_ms > deadline_ms => {
            Err(PlanError::ImpossibleDeadline { deadline_ms, needed_ms })
        }
        (Some(_), _) => Ok(()),
    }
}

fn row(inputs: &Inputs, strategy: Strategy, summaries: Vec<Summary>) -> Row {
    let most = |of: fn(&Summary) -> u32| summaries.iter().map(of).max().unwrap_or_default();
    Row {
        idle_month: idle_month(inputs, &strategy),
        quota: (most(|summary| summary.quota.0), most(|summary| summary.quota.1)),
        parameters: parameters(&strategy, inputs.slots),
        strategy,
        summaries,
    }
}

fn idle_month(inputs: &Inputs, strategy: &Strategy) -> Cost {
    let (regular, spot) = strategy.idle();
    let prices = &inputs.prices;
    let month = |price: Price, machines| price.cost(machines, MONTH_MS);
    // A month is after the batch, and after what is known of prices.
    let price = prices.spot.last();
    let running = if strategy.max_price.allows(price) { spot } else { 0 };
    // Deallocated machines keep their disks.
    let kept = if strategy.policy == EvictionPolicy::Deallocate { spot } else { running };
    month(prices.regular, regular)
        + month(price.min(prices.regular), running)
        + month(prices.disks, regular.saturating_add(kept))
        + month(prices.always, 1)
}
