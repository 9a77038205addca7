//! The plans of all markets.

use reprieve_plan::fleet::Mix;
use reprieve_plan::money::Cost;
use reprieve_plan::plan::{
    ASSUMED_NOTICE, ASSUMED_SAVE_COST, Assumption, EVENTS_MAX, Inputs, MIX_DEFAULT, Plan, SWAP_DEFAULT,
};
use reprieve_plan::vm_state::MaxPrice;

use super::Args;
use super::answer::{Assumed, Begin, Table, Unplanned};
use super::args::RUNS_DEFAULT;
use super::batch::Batch;
use super::market::Market;
use super::progress::Progress;
use super::trace::Trace;
use super::values::millis;

/// The exit code for inputs that no plan can be made from.
const USAGE: u8 = 2;

/// The largest state that is saved within the record of its job, and so with one write.
const INLINE_BYTES_MAX: u64 = 20 << 10;

/// A table, or why there is none.
pub(super) type Planned = Result<Table, Unplanned>;

/// Plans the batch in each market, in their order.
pub(super) fn simulate(
    args: &Args,
    batch: &Batch,
    trace: Option<&Trace>,
    markets: &[Market],
) -> Vec<Planned> {
    let progress = Progress::new(markets.len());
    // One after the other: each takes all cores.
    let planned = markets.iter().map(|market| plan(args, batch, trace, market, &progress)).collect();
    progress.clear();
    planned
}

fn plan(args: &Args, batch: &Batch, trace: Option<&Trace>, market: &Market, progress: &Progress) -> Planned {
    let job_ms = batch.job_ms_at(market.speed);
    let (machines, assumed) = batch.machines(job_ms, &args.batch, &args.fleet);
    let unplanned = |problem: String| Unplanned {
        size: market.size.clone(),
        region: market.region.clone(),
        problem,
        code: USAGE,
    };
    if let Some(base) = args.fleet.base_instances.filter(|base| *base >= machines) {
        let why =
            format!("--base-instances {base} leaves no Spot VM of {machines}: give fewer, or more --vms");
        return Err(unplanned(why));
    }
    let given = args.known.eviction_rate;
    let evictions =
        trace.map_or_else(|| market.rate(given), |trace| trace.known(given, machines, market.band()));
    let availability = trace.and_then(Trace::availability);
    let inputs = Inputs { evictions, availability, ..inputs(args, batch, market, job_ms, machines) };
    let plan =
        Plan::new(&inputs, |_done, of| progress.count(of)).map_err(|fault| unplanned(fault.to_string()))?;
    let mut table = Table::new(market, &plan, machines, args.fleet.slots, job_ms);
    if args.market.windows {
        table = table.on_windows();
    }
    let further = std::iter::once(assumed).chain(market.assumptions(&inputs.evictions));
    table.begin =
        table.longest_ms().zip(trace).and_then(|(run_ms, trace)| trace.best_hour(run_ms)).map(Begin::new);
    insert_after(&mut table.assumptions, "jobs", further);
    Ok(table)
}

/// Inserts further assumptions behind the one of this subject.
fn insert_after(all: &mut Vec<Assumed>, subject: &str, further: impl Iterator<Item = Assumption>) {
    let at = all.iter().position(|it| it.subject == subject).map_or(0, |at| at + 1);
    let further: Vec<_> = further.map(|it| Assumed::new(&it)).collect();
    all.splice(at..at, further);
}

fn inputs(args: &Args, batch: &Batch, market: &Market, job_ms: u64, machines: u32) -> Inputs {
    // Bounded by the flag.
    let jobs = usize::try_from(batch.jobs).unwrap_or(usize::MAX);
    let fleet = &args.fleet;
    let mut inputs = Inputs {
        jobs_source: batch.source.clone(),
        size: market.size.clone(),
        region: market.region.clone(),
        slots: fleet.slots,
        can_save: !args.batch.no_save,
        save_ms: batch.save_ms,
        save_source: batch.save_source.clone(),
        state_bytes: args.batch.state,
        boot_ms: fleet.boot,
        deadline_ms: args.batch.deadline.map(millis),
        budget: args.batch.budget_usd,
        notice: fleet.notice.map_or(Some(ASSUMED_NOTICE), |given| given.0),
        refused: fleet.refused,
        mix: Mix {
            base: fleet.base_instances.unwrap_or(MIX_DEFAULT.base),
            percent_above: fleet.regular_percent_above_base,
        },
        swap: (
            fleet.escalation_instances.unwrap_or(SWAP_DEFAULT.0),
            fleet.escalate_after.unwrap_or(SWAP_DEFAULT.1),
        ),
        max_price: args.known.max_price.map_or(MaxPrice::OnDemand, MaxPrice::Of),
        runs: args.output.runs.unwrap_or(RUNS_DEFAULT),
        // Who gives a number gets it.
        events_max: args.output.runs.map_or(EVENTS_MAX, |_| u64::MAX),
        seed: args.output.seed.into(),
        ..Inputs::new(jobs, job_ms, machines, market.spot, market.regular)
    };
    if let Some(history) = &market.history {
        inputs.prices.spot = history.steps.clone();
    }
    inputs.prices.disks = args.known.disk_price;
    inputs.prices.always = args.known.always_price;
    if args.batch.state.is_some_and(|bytes| bytes > INLINE_BYTES_MAX) {
        inputs.prices.save = ASSUMED_SAVE_COST.times(2);
    }
    inputs.prices.traffic = Cost::of_bytes(args.known.traffic_price, args.batch.state.unwrap_or(0));
    inputs.prices.source = market.source.clone();
    inputs
}
