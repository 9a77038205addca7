//! The plan as data: what `--json` prints, and what the text and the page are made from.

use reprieve_plan::Price;
use reprieve_plan::fleet::Summary;
use reprieve_plan::measured::BestHour;
use reprieve_plan::money::Cost;
use reprieve_plan::plan::{Assumption, Plan, PolicyRow, Source, Verdict};
use reprieve_plan::vm_state::MaxPrice;
use serde::{Serialize, Serializer};

use super::market::Market;
use crate::commands::prices::number;

/// All tables with what they have in common. Money is in US dollars, times are in milliseconds.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    /// The time of the answer, in milliseconds since the Unix epoch.
    pub(super) at_unix_ms: i64,
    pub(super) jobs: u64,
    pub(super) deadline_ms: Option<u64>,
    #[serde(serialize_with = "sum")]
    pub(super) budget_usd: Option<Cost>,
    /// The runs of each strategy that were asked for.
    pub(super) runs: u32,
    /// The seed of the first one.
    pub(super) seed: u32,
    /// Those of all tables; each table has its own, too.
    pub(super) assumptions: Vec<Assumed>,
    /// A table for each size and region, the best first.
    pub(super) tables: Vec<Table>,
    /// Sizes and regions without a table.
    pub(super) problems: Vec<Unplanned>,
}

/// An assumption with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Assumed {
    pub(super) subject: &'static str,
    pub(super) value: String,
    /// `given`, `measured`, `documented` or `assumed`.
    pub(super) kind: &'static str,
    /// Where it was measured or is documented, or why it is assumed; empty for what was given.
    pub(super) source: String,
}

/// A size in a region for which there is no plan.
#[derive(Debug, Serialize)]
pub(super) struct Unplanned {
    pub(super) size: Option<String>,
    pub(super) region: Option<String>,
    pub(super) problem: String,
    /// The exit code for it.
    #[serde(skip)]
    pub(super) code: u8,
}

/// The strategies for one size in one region.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    pub(super) size: Option<String>,
    pub(super) region: Option<String>,
    /// Whether the VMs have Windows, which `infra/` does not deploy.
    #[serde(skip)]
    pub(super) is_windows: bool,
    #[serde(serialize_with = "number")]
    pub(super) spot_price_usd: Option<Price>,
    #[serde(serialize_with = "number")]
    pub(super) regular_price_usd: Option<Price>,
    /// When the service of prices was asked, in milliseconds since the Unix epoch.
    pub(super) asked_unix_ms: Option<i64>,
    /// What Azure says, if it was asked; `null`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) azure: Option<AzureSays>,
    pub(super) vms: u32,
    pub(super) slots: u32,
    pub(super) job_ms: u64,
    /// The runs of each strategy: fewer than were asked for, if they have too many events.
    pub(super) runs: u32,
    /// Those of this table alone.
    pub(super) assumptions: Vec<Assumed>,
    /// The ends of what is known of evictions.
    pub(super) worlds: Vec<World>,
    /// The advised one first, and then by cost.
    pub(super) strategies: Vec<StrategyRow>,
    /// Deadline policies, for comparison.
    pub(super) policies: Vec<Policy>,
    pub(super) advice: Advised,
    /// When to begin; `null` unless a ledger tells.
    pub(super) begin: Option<Begin>,
}

/// The best hour of the day to begin.
#[derive(Debug, Serialize)]
pub(super) struct Begin {
    pub(super) hour_utc: u8,
    pub(super) reason: String,
}

/// What Azure says of a size in a region.
#[derive(Debug, Serialize)]
pub(super) struct AzureSays {
    /// In percent of the VMs per hour.
    pub(super) eviction_rate: Option<reprieve_azure::spot::EvictionRate>,
    pub(super) placement_score: Option<String>,
    pub(super) quota_available: Option<bool>,
}

/// How machines are evicted.
#[derive(Debug, Serialize)]
pub(super) struct World {
    pub(super) name: String,
    /// The interval from the beginning of a save to that of the next; `null`: none.
    pub(super) checkpoint_every_ms: Option<u64>,
}

/// A strategy.
#[derive(Debug, Serialize)]
pub(super) struct StrategyRow {
    pub(super) name: String,
    pub(super) advised: bool,
    /// The most that a Spot VM may cost an hour; `null`: up to the regular price.
    #[serde(serialize_with = "number")]
    pub(super) max_price_usd: Option<Price>,
    /// In each of the table's worlds.
    pub(super) worlds: Vec<Figures>,
    /// A month of 730 h without a job.
    #[serde(serialize_with = "usd")]
    pub(super) idle_month_usd: u64,
    pub(super) quota: Quota,
    /// The lines that deploy it; none if no preset is like it, or for Windows.
    pub(super) bicepparam: Vec<String>,
}

/// The most VMs that count against the quota.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Quota {
    pub(super) spot_vms: u32,
    pub(super) regular_vms: u32,
    /// Whether evicted VMs keep their quota.
    pub(super) held_when_evicted: bool,
}

/// A strategy in one world: means, where nothing else is said.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) cost_usd: Money,
    pub(super) parts_usd: Parts,
    pub(super) finish_ms: Finish,
    /// The share of runs that were done by the deadline; that were done at all, without one.
    pub(super) chance: f64,
    pub(super) evictions: f64,
    pub(super) refused_requests: f64,
    pub(super) work_lost_ms: u64,
    pub(super) saves: f64,
    pub(super) moved_jobs: f64,
    /// The cost of each run in millionths, the lowest first.
    #[serde(skip)]
    pub(super) costs_micros: Vec<u64>,
    /// The finish of each run that was done, the earliest first.
    #[serde(skip)]
    pub(super) finishes_ms: Vec<u64>,
    #[serde(skip)]
    pub(super) runs: u32,
}

/// A cost over many runs.
#[derive(Debug, Serialize)]
pub(super) struct Money {
    /// The mean.
    #[serde(serialize_with = "usd_mean")]
    pub(super) mean: f64,
    /// Half of the width of the mean's 95 % interval.
    #[serde(serialize_with = "usd_mean")]
    pub(super) half_width: f64,
    #[serde(serialize_with = "usd")]
    pub(super) p50: u64,
    #[serde(serialize_with = "usd")]
    pub(super) p90: u64,
    #[serde(serialize_with = "usd")]
    pub(super) p95: u64,
}

/// The mean cost by what is paid for.
#[derive(Debug, Serialize)]
pub(super) struct Parts {
    #[serde(serialize_with = "usd")]
    pub(super) regular: u64,
    #[serde(serialize_with = "usd")]
    pub(super) spot: u64,
    #[serde(serialize_with = "usd")]
    pub(super) disks: u64,
    #[serde(serialize_with = "usd")]
    pub(super) saves: u64,
    #[serde(serialize_with = "usd")]
    pub(super) always: u64,
    #[serde(serialize_with = "usd")]
    pub(super) traffic: u64,
}

/// When the last job is done; `null` where so many runs are never done.
#[derive(Debug, Serialize)]
pub(super) struct Finish {
    pub(super) p50: Option<u64>,
    pub(super) p90: Option<u64>,
    pub(super) p95: Option<u64>,
}

/// A deadline policy. Its cost is that of machines alone.
#[derive(Debug, Serialize)]
pub(super) struct Policy {
    pub(super) name: &'static str,
    /// The windows of the trace in which it was replayed.
    pub(super) windows: u32,
    pub(super) cost_usd: Money,
    pub(super) finish_ms: Finish,
    pub(super) chance: f64,
    pub(super) evictions: f64,
    pub(super) work_lost_ms: u64,
}

/// The advice.
#[derive(Debug, Serialize)]
pub(super) struct Advised {
    /// `spot`; `no-spot`: don't use it for this; `nothing`: no strategy is within the limits.
    pub(super) verdict: &'static str,
    pub(super) strategy: Option<String>,
    pub(super) reason: String,
}

impl Begin {
    pub(super) fn new(best: BestHour) -> Self {
        Self { hour_utc: best.hour, reason: best.to_string() }
    }
}

impl Assumed {
    pub(super) fn new(assumption: &Assumption) -> Self {
        let (kind, source) = match &assumption.source {
            Source::Given => ("given", String::new()),
            Source::Measured(what) => ("measured", what.clone()),
            Source::Documented(page) => ("documented", (*page).to_owned()),
            Source::Assumed(why) => ("assumed", (*why).to_owned()),
        };
        Self { subject: assumption.subject, value: assumption.value.clone(), kind, source }
    }
}

impl Table {
    /// The table of a plan on `vms` machines of a market.
    pub(super) fn new(market: &Market, plan: &Plan, vms: u32, slots: u32, job_ms: u64) -> Self {
        let advised = plan.advice.strategy;
        let mut order: Vec<_> = (0..plan.rows.len()).collect();
        let worst = |index: usize| worst_cost(&plan.rows[index].summaries);
        order.sort_by(|a, b| {
            (advised != Some(*a)).cmp(&(advised != Some(*b))).then(worst(*a).total_cmp(&worst(*b)))
        });
        let worlds = plan.scenarios.iter().map(|scenario| World {
            name: scenario.name.clone(),
            checkpoint_every_ms: scenario.model.work.interval_ms(),
        });
        let verdict = match plan.advice.verdict {
            Verdict::Spot => "spot",
            Verdict::NoSpot => "no-spot",
            Verdict::Nothing => "nothing",
        };
        Self {
            size: market.size.clone(),
            region: market.region.clone(),
            is_windows: false,
            spot_price_usd: Some(market.spot),
            regular_price_usd: Some(market.regular),
            asked_unix_ms: market.asked_unix_ms,
            azure: market.azure.as_ref().map(|azure| AzureSays {
                eviction_rate: azure.eviction_rate,
                placement_score: azure.placement_score.clone(),
                quota_available: azure.is_quota_available,
            }),
            vms,
            slots,
            job_ms,
            runs: plan.runs,
            assumptions: plan.assumptions.iter().map(Assumed::new).collect(),
            worlds: worlds.collect(),
            strategies: order.into_iter().map(|index| StrategyRow::new(plan, index)).collect(),
            policies: plan.policies.iter().map(Policy::new).collect(),
            advice: Advised {
                verdict,
                strategy: advised.map(|index| plan.rows[index].strategy.name.clone()),
                reason: plan.advice.reason.clone(),
            },
            begin: None,
        }
    }

    /// A table of VMs with Windows has no parameters.
    pub(super) fn on_windows(mut self) -> Self {
        self.is_windows = true;
        for row in &mut self.strategies {
            row.bicepparam.clear();
        }
        self
    }

    /// How long the advised strategy takes in 19 of 20 runs, at the worse end.
    pub(super) fn longest_ms(&self) -> Option<u64> {
        self.advised()?.worlds.iter().map(|it| it.finish_ms.p95).max()?
    }

    /// The advised strategy.
    pub(super) fn advised(&self) -> Option<&StrategyRow> {
        self.strategies.iter().find(|row| row.advised)
    }

    /// The order of tables: those with an advice first, by its cost at the worse end.
    pub(super) fn rank(&self) -> (bool, f64) {
        let worst = |row: &StrategyRow| row.worlds.iter().map(|it| it.cost_usd.mean).fold(0.0, f64::max);
        (self.advised().is_none(), self.advised().or(self.strategies.first()).map_or(f64::MAX, worst))
    }
}

fn worst_cost(summaries: &[Summary]) -> f64 {
    summaries.iter().map(|summary| summary.cost_micros.mean).fold(0.0, f64::max)
}

impl StrategyRow {
    fn new(plan: &Plan, index: usize) -> Self {
        let row = &plan.rows[index];
        let deallocates = row.strategy.policy == reprieve_plan::vm_state::EvictionPolicy::Deallocate;
        Self {
            name: row.strategy.name.clone(),
            advised: plan.advice.strategy == Some(index),
            max_price_usd: match row.strategy.max_price {
                MaxPrice::Of(price) if row.strategy.uses_spot() => Some(price),
                MaxPrice::Of(_) | MaxPrice::OnDemand => None,
            },
            worlds: row.summaries.iter().map(Figures::new).collect(),
            idle_month_usd: row.idle_month.micros_shown(),
            quota: Quota {
                spot_vms: row.quota.0,
                regular_vms: row.quota.1,
                held_when_evicted: deallocates && row.quota.0 > 0,
            },
            bicepparam: row.parameters.clone(),
        }
    }
}

impl Figures {
    fn new(summary: &Summary) -> Self {
        let [regular, spot, disks, saves, always, traffic] = summary.parts_micros;
        // Those that were never done have the limit, and are the last.
        let done = usize::try_from(summary.finished).unwrap_or(usize::MAX).min(summary.finishes_ms.len());
        Self {
            cost_usd: Money::new(summary.cost_micros),
            parts_usd: Parts { regular, spot, disks, saves, always, traffic },
            finish_ms: Finish::new(summary.finished_ms, summary.finished, summary.runs),
            chance: summary.chance(),
            evictions: summary.evictions,
            refused_requests: summary.refusals,
            work_lost_ms: summary.time.lost_ms,
            saves: summary.saves,
            moved_jobs: summary.swaps,
            costs_micros: summary.costs_micros.clone(),
            finishes_ms: summary.finishes_ms[..done].to_vec(),
            runs: summary.runs,
        }
    }
}

impl Money {
    const fn new(spread: reprieve_plan::fleet::Spread) -> Self {
        let reprieve_plan::fleet::Spread { mean, half_width, p50, p90, p95 } = spread;
        Self { mean, half_width, p50, p90, p95 }
    }
}

impl Finish {
    /// The percentiles, as far as so many of the runs were done.
    fn new(spread: reprieve_plan::fleet::Spread, done: u32, runs: u32) -> Self {
        let known = |percent: u32, at: u64| {
            (u64::from(runs) * u64::from(percent)).div_ceil(100).le(&u64::from(done)).then_some(at)
        };
        Self { p50: known(50, spread.p50), p90: known(90, spread.p90), p95: known(95, spread.p95) }
    }
}

impl Policy {
    fn new(row: &PolicyRow) -> Self {
        Self {
            name: row.name,
            windows: row.runs,
            cost_usd: Money::new(row.cost_micros),
            finish_ms: Finish::new(row.finished_ms, row.runs, row.runs),
            chance: f64::from(row.met) / f64::from(row.runs.max(1)),
            evictions: row.evictions,
            work_lost_ms: row.lost_ms,
        }
    }
}

fn saturated(micros: u128) -> u64 {
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// Millionths as dollars.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn usd<S: Serializer>(micros: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    number(&Some(Price::from_nanos_per_hour(micros.saturating_mul(1_000))), serializer)
}

/// A mean in millionths as dollars, to a millionth.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn usd_mean<S: Serializer>(micros: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(micros.round() / 1e6)
}

#[expect(clippy::ref_option, reason = "serde passes the field by reference")]
fn sum<S: Serializer>(cost: &Option<Cost>, serializer: S) -> Result<S::Ok, S::Error> {
    number(&cost.map(|cost| Price::from_nanos_per_hour(saturated(cost.nanos()))), serializer)
}
