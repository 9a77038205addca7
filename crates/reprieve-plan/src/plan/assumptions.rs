//! What a plan is based on: each number with its source, for display above the table.

use super::inputs::{
    ASSUMED_BOOT_MS, ASSUMED_NOTICE, ASSUMED_SAVE_COST, Inputs, Known, MIX_DEFAULT, SWAP_DEFAULT, Source,
};
use super::scenario::{Scenario, save_ms};
use super::{Row, Summary, is_balanced};
use crate::fleet::{FLEET_DELAY_MS, Mix};
use crate::money::Cost;
use crate::vm_state::MaxPrice;
use crate::words::{self, seconds, seconds_between};

const SPOT_VMS: &str = "https://learn.microsoft.com/azure/virtual-machines/spot-vms";
const SCALE_SETS: &str = "https://learn.microsoft.com/azure/virtual-machine-scale-sets/use-spot";
const PRIORITY_MIX: &str = "https://learn.microsoft.com/azure/virtual-machine-scale-sets/spot-priority-mix";

/// A number or a rule that a plan depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// What it is about.
    pub subject: &'static str,
    /// What is taken for it.
    pub value: String,
    /// Where that is from.
    pub source: Source,
}

/// All assumptions of a plan, the most doubtful first.
pub(super) fn list(inputs: &Inputs, scenarios: &[Scenario], rows: &[Row]) -> Vec<Assumption> {
    let mut all = vec![evictions(inputs)];
    all.extend(runs(inputs, rows));
    all.extend(meaning(inputs));
    all.extend(pattern(inputs));
    all.extend([capacity(inputs), boot(inputs), notice(inputs), jobs(inputs), save(inputs)]);
    all.extend(interval(inputs, scenarios));
    all.extend([prices(inputs), save_cost(inputs), traffic(inputs)]);
    all.extend([max_price(inputs), balanced(inputs), swap(inputs)]);
    all.extend(rules());
    all
}

fn assumption(subject: &'static str, value: impl Into<String>, source: Source) -> Assumption {
    Assumption { subject, value: value.into(), source }
}

fn percent(share: f64) -> String {
    format!("{} %", words::percent(share))
}

fn evictions(inputs: &Inputs) -> Assumption {
    let (value, source) = match &inputs.evictions {
        Known::Rate { low, high: Some(high), source, .. } if high > low => {
            let value =
                format!("from {} to {} of the machines an hour: both ends", percent(*low), percent(*high));
            (value, source.clone())
        }
        Known::Rate { low, high: None, source, .. } => {
            let value = format!("{} of the machines an hour or more: there is no upper end", percent(*low));
            (value, source.clone())
        }
        Known::Rate { low, source, .. } => {
            (format!("{} of the machines an hour", percent(*low)), source.clone())
        }
        Known::Lives(lives, source) => {
            let seen = lives.iter().filter(|life| life.evicted).count();
            let value = format!("lives of {} machines, {seen} of them seen to end", lives.len());
            (value, source.clone())
        }
        Known::Losses(losses, source) => {
            (format!("{} losses of a fleet, drawn with their times", losses.len()), source.clone())
        }
        Known::Availability(series, source) => {
            let value = format!(
                "availability over {}, from a random moment of it, and from its beginning again",
                length(series.length_ms())
            );
            let sure = series.loss_bound().map(|share| {
                format!(
                    "; no machine was lost in it, and with 95 % there is a loss in no more than {} of the hours",
                    percent(share)
                )
            });
            let seam = match series.fewer_at_beginning() {
                0 => String::new(),
                fewer => {
                    format!("; it begins again with {fewer} fewer, which evicts machines that nobody saw go")
                }
            };
            (value + sure.as_deref().unwrap_or_default() + &seam, source.clone())
        }
        Known::Unknown => (
            "unknown: none, and 20 % of the machines an hour".to_owned(),
            Source::Assumed(
                "no rate is known, which is not a rate of zero; 20 % ends Azure's highest closed band",
            ),
        ),
    };
    assumption("evictions", value, source)
}

/// The length of a series in whole hours; in a smaller unit where it has none.
fn length(ms: u64) -> String {
    if ms >= 3_600_000 { format!("{} h", ms / 3_600_000) } else { words::at_most(ms) }
}

/// How many runs there are if they are fewer than were asked for, and how far the mean costs can be off by that.
fn runs(inputs: &Inputs, rows: &[Row]) -> Option<Assumption> {
    let summaries = || rows.iter().flat_map(|row| &row.summaries);
    let runs = summaries().map(|summary| summary.runs).min().filter(|runs| *runs < inputs.runs)?;
    let wide = |summary: &Summary| summary.cost_micros.half_width / summary.cost_micros.mean.max(1.0);
    let widest = summaries().map(wide).fold(0.0, f64::max);
    let value = format!(
        "{runs} instead of {}; mean costs are known to ± {} % (95 % intervals)",
        inputs.runs,
        (widest * 1000.0).ceil() / 10.0
    );
    let why = "each run has so many events that more would take long; more can be asked for";
    Some(assumption("runs", value, Source::Assumed(why)))
}

/// What a rate is a share of.
fn meaning(inputs: &Inputs) -> Option<Assumption> {
    let is_rate = matches!(inputs.evictions, Known::Rate { .. } | Known::Unknown);
    is_rate.then(|| {
        let why =
            "Azure's pages call it a rate an hour, of the last 7 days in one place and of 28 in another";
        assumption("eviction rate", "the chance that a machine is evicted in an hour", Source::Assumed(why))
    })
}

/// Whether machines go together, where the evictions do not say.
fn pattern(inputs: &Inputs) -> Option<Assumption> {
    match &inputs.evictions {
        Known::Rate { pattern: Some(losses), .. } => Some(assumption(
            "evictions together",
            format!("in the pattern of {} losses of a fleet", losses.len()),
            Source::Measured("the trace that was given".to_owned()),
        )),
        Known::Rate { pattern: None, .. } | Known::Unknown => Some(assumption(
            "evictions together",
            "each machine for itself, at one rate at every age",
            Source::Assumed(
                "a rate does not say; real fleets lose several machines at a moment, so give a trace",
            ),
        )),
        Known::Lives(..) => Some(assumption(
            "evictions together",
            "each machine for itself",
            Source::Assumed("lives do not say when others ended; losses of a fleet do"),
        )),
        Known::Losses(..) | Known::Availability(..) => None,
    }
}

fn capacity(inputs: &Inputs) -> Assumption {
    let value = format!("{} of the requests for a Spot machine are refused", percent(inputs.refused));
    let source = if inputs.refused > 0.0 {
        Source::Given
    } else {
        Source::Assumed("no share was given; Azure shows none but a placement score")
    };
    assumption("capacity", value, source)
}

fn boot(inputs: &Inputs) -> Assumption {
    let (least_ms, most_ms) = inputs.boot_ms.unwrap_or(ASSUMED_BOOT_MS);
    let source = if inputs.boot_ms.is_some() {
        Source::Given
    } else {
        Source::Assumed("a VM with an application that is installed at its first boot; measure yours")
    };
    assumption("boot", format!("{}, billed", seconds_between(least_ms, most_ms)), source)
}

fn notice(inputs: &Inputs) -> Assumption {
    let value = inputs.notice.map_or_else(
        || "none".to_owned(),
        |notice| {
            format!(
                "{} for {} of the evictions; none in the first {} after a boot",
                seconds(notice.lead_ms),
                percent(notice.share),
                seconds(notice.blind_ms)
            )
        },
    );
    let source = if inputs.notice == Some(ASSUMED_NOTICE) {
        Source::Assumed("Azure documents up to 30 s, as best effort; less than 10 s was seen")
    } else {
        Source::Given
    };
    assumption("notice of an eviction", value, source)
}

fn jobs(inputs: &Inputs) -> Assumption {
    let count = inputs.jobs_ms.len();
    let total_ms: u128 = inputs.jobs_ms.iter().map(|job_ms| u128::from(*job_ms)).sum();
    let mean_ms = u64::try_from(total_ms / count.max(1) as u128).unwrap_or(u64::MAX);
    assumption("jobs", format!("{count} of {} on average", seconds(mean_ms)), inputs.jobs_source.clone())
}

fn save(inputs: &Inputs) -> Assumption {
    let source = match (inputs.save_ms, inputs.state_bytes) {
        _ if !inputs.can_save => Source::Given,
        (Some(_), _) => inputs.save_source.clone(),
        (None, Some(_)) => Source::Assumed("the size of the state at 50 MB/s; measure yours"),
        (None, None) => Source::Assumed("a small state in the same region; workers assume that, too"),
    };
    let value = if inputs.can_save {
        format!("{} ms, and as long for a restore", save_ms(inputs))
    } else {
        "none: interrupted jobs begin again".to_owned()
    };
    assumption("a save", value, source)
}

fn interval(inputs: &Inputs, scenarios: &[Scenario]) -> Option<Assumption> {
    let seconds = |scenario: &Scenario| {
        scenario.model.work.interval_ms().map_or(0, |interval_ms| interval_ms / 1000).to_string()
    };
    let value = scenarios.iter().map(seconds).collect::<Vec<_>>().join(" and ");
    inputs.can_save.then(|| {
        let why = "Young's formula with its bounds, as workers use it, for the losses of a first run";
        assumption("checkpoint interval", format!("{value} s"), Source::Assumed(why))
    })
}

fn prices(inputs: &Inputs) -> Assumption {
    let usd = |price: crate::money::Price| words::money(price.cost(1, 3_600_000));
    let prices = &inputs.prices;
    let value = format!(
        "Spot {}, regular {}, disks {}, whatever runs {} USD an hour; without your discounts",
        usd(prices.spot.at(0)),
        usd(prices.regular),
        usd(prices.disks),
        usd(prices.always)
    );
    assumption("prices", value, prices.source.clone())
}

fn save_cost(inputs: &Inputs) -> Assumption {
    let cost = inputs.prices.save;
    let source = if cost == ASSUMED_SAVE_COST {
        Source::Assumed("one blob written, by a list of 2024; a state over 20 KiB writes two")
    } else if cost == ASSUMED_SAVE_COST.times(2) {
        Source::Assumed("two blobs written for a state over 20 KiB, by a list of 2024")
    } else {
        Source::Given
    };
    assumption("requests of a save", format!("{} billionths of a USD", cost.nanos()), source)
}

fn traffic(inputs: &Inputs) -> Assumption {
    let cost = inputs.prices.traffic;
    if cost == Cost::default() {
        let why = "the store is in the machines' region, where traffic is free; results and inputs of jobs are not counted";
        return assumption("traffic between regions", "none", Source::Assumed(why));
    }
    assumption(
        "traffic between regions",
        format!("{} USD for each save and each restore", words::money(cost)),
        Source::Given,
    )
}

fn max_price(inputs: &Inputs) -> Assumption {
    match inputs.max_price {
        MaxPrice::OnDemand => {
            let value =
                "none: machines are not evicted for their price, which is a regular machine's at most";
            assumption("maximum price", value, Source::Documented(SPOT_VMS))
        }
        MaxPrice::Of(price) => {
            let value = format!(
                "{} USD an hour: a machine is evicted when the price passes it, and none is to be had until it falls \
                 again; steady has none, because Azure restores nothing that was evicted for its price",
                words::money(price.cost(1, 3_600_000))
            );
            assumption("maximum price", value, Source::Given)
        }
    }
}

/// The jobs that move in `swap`.
fn swap(inputs: &Inputs) -> Assumption {
    let (machines, after) = inputs.swap;
    let interruptions = if after == 1 { "interruption" } else { "interruptions" };
    let value =
        format!("up to {machines} regular machines for jobs after {after} {interruptions} without progress");
    assumption("swap", value, of_preset(inputs.swap == SWAP_DEFAULT))
}

const fn of_preset(is_default: bool) -> Source {
    if is_default { Source::Assumed("as the preset of infra/ has them") } else { Source::Given }
}

/// The regular machines of `balanced`.
fn balanced(inputs: &Inputs) -> Assumption {
    let Mix { base, percent_above } = inputs.mix;
    if is_balanced(inputs.mix, inputs.instances) {
        let value = format!("{base} regular machines, and {percent_above} % of those above");
        return assumption("balanced", value, of_preset(inputs.mix == MIX_DEFAULT));
    }
    let value =
        format!("left out: a base of {base} regular machines leaves no Spot machine of {}", inputs.instances);
    let value = if base == 0 { "left out: without a base it is elastic".to_owned() } else { value };
    let value =
        if percent_above >= 100 { "left out: all machines would be regular".to_owned() } else { value };
    assumption("balanced", value, Source::Assumed("infra/ refuses it"))
}

/// What holds for every plan.
fn rules() -> [Assumption; 6] {
    [
        assumption(
            "billing of Spot",
            "the Spot price, never the maximum; from allocation, boot included",
            Source::Documented(SPOT_VMS),
        ),
        assumption(
            "evicted machines",
            "deallocated ones keep disks and quota and never restart by themselves; deleted ones lower the count",
            Source::Documented(SCALE_SETS),
        ),
        assumption(
            "regular machines above a base",
            "rounded in favour of Spot",
            Source::Documented(PRIORITY_MIX),
        ),
        assumption(
            "attempts to restore",
            "every 5 min for an hour",
            Source::Assumed("Azure documents how long it tries, but not how often"),
        ),
        assumption(
            "Compute Fleet",
            format!("asks for another machine {} min after an eviction", FLEET_DELAY_MS / 60_000),
            Source::Assumed("Azure documents that a fleet keeps its number, but not how soon"),
        ),
        assumption(
            "autoscale",
            "asks for a machine after 2 min, and goes back 10 min after the last job",
            Source::Assumed("the rules of infra/ look once a minute at the last minute and at the last ten"),
        ),
    ]
}
