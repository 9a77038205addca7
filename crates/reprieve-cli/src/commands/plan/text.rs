//! Numbers and sentences of a plan as people read them, on the terminal and on the page.

use std::time::Duration;

use reprieve_azure::prices::price_text;
use reprieve_plan::Price;
use reprieve_plan::money::Cost;

use super::answer::{Answer, Assumed, Figures, Quota, StrategyRow, Table, World};
use crate::format::{count, list};

/// Money from millionths: to a cent, and below a dollar to a hundredth of one. Only nothing is shown as nothing.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn usd(micros: u64) -> String {
    usd_mean(micros as f64)
}

/// A mean likewise.
pub(super) fn usd_mean(micros: f64) -> String {
    let dollars = micros / 1e6;
    if dollars == 0.0 || dollars >= 0.99995 {
        return format!("{dollars:.2}");
    }
    if dollars < 0.00005 { "<0.0001".to_owned() } else { format!("{dollars:.4}") }
}

/// A length of time, as in the other commands.
pub(super) fn span(ms: u64) -> String {
    crate::format::duration(Duration::from_millis(ms))
}

/// The time at which runs were done, unless too few were.
pub(super) fn finish(ms: Option<u64>) -> String {
    ms.map_or_else(|| "never".to_owned(), span)
}

/// A share in percent, never rounded up to all, nor down to none.
pub(super) fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.001 {
        return "<0.1 %".to_owned();
    }
    format!("{} %", (share * 1000.0 + 1e-6).floor() / 10.0)
}

/// A world, for a narrow column.
pub(super) fn world(world: &World) -> String {
    world.name.strip_suffix(" evicted an hour").unwrap_or("trace").to_owned()
}

/// The interval of saves in a world.
pub(super) fn interval(world: &World) -> String {
    world.checkpoint_every_ms.map_or_else(|| "-".to_owned(), span)
}

/// A mean number of events. Only none is 0.0.
pub(super) fn mean(number: f64) -> String {
    if number > 0.0 && number < 0.05 { "<0.1".to_owned() } else { format!("{number:.1}") }
}

/// The batch in a line.
pub(super) fn headline(answer: &Answer) -> String {
    let within = answer.deadline_ms.map(|ms| format!(", done within {}", span(ms))).unwrap_or_default();
    let budget =
        answer.budget_usd.map(|cost| format!(", for {} USD at most", given(cost))).unwrap_or_default();
    let (jobs, runs) = (count(answer.jobs, "job"), count(answer.runs, "run"));
    let fewer = answer.tables.iter().any(|table| table.runs < answer.runs);
    let runs = if fewer { format!("up to {runs}") } else { runs };
    format!("{jobs}{within}{budget}: {runs} of each strategy, from seed {}", answer.seed)
}

/// A sum that was given: to a cent if it is whole ones, else exactly.
fn given(cost: Cost) -> String {
    let nanos = saturated(cost.nanos());
    if nanos.is_multiple_of(10_000_000) {
        usd(cost.micros_shown())
    } else {
        price_text(Price::from_nanos_per_hour(nanos))
    }
}

/// What a table is of.
pub(super) fn title(table: &Table) -> String {
    match (&table.size, &table.region) {
        (Some(size), Some(region)) => format!("{size} in {region}"),
        (_, _) => "At the given prices".to_owned(),
    }
}

/// Machines, jobs, how sure the costs are, and what Azure says, in a line.
pub(super) fn facts(answer: &Answer, table: &Table) -> String {
    let mut facts = format!("{}, {} for a job", count(table.vms, "VM"), span(table.job_ms));
    if table.runs < answer.runs {
        let (runs, widest) = (count(table.runs, "run"), widest(table));
        facts = format!("{facts}; {runs} of each strategy only, so mean costs are ± {widest} %");
    }
    let azure = table.azure.as_ref().map(|azure| {
        let rate = azure
            .eviction_rate
            .map_or_else(|| "at an unknown rate".to_owned(), |rate| format!("{rate} % an hour"));
        let score = azure.placement_score.as_deref().unwrap_or("unknown");
        let quota = match azure.quota_available {
            Some(true) => "enough",
            Some(false) => "too small",
            None => "unknown",
        };
        format!("; Azure says: evicted {rate}, placement {score}, quota {quota}")
    });
    facts + azure.as_deref().unwrap_or_default()
}

/// The widest 95 % interval of the table's mean costs, on each side in percent, rounded up to a tenth.
fn widest(table: &Table) -> f64 {
    let costs = table.strategies.iter().flat_map(|row| &row.worlds).map(|it| &it.cost_usd);
    let widest = costs.map(|cost| cost.half_width / cost.mean.max(1.0)).fold(0.0, f64::max);
    (widest * 1000.0).ceil() / 10.0
}

/// The source of an assumption.
pub(super) fn source(assumed: &Assumed) -> String {
    match assumed.source.as_str() {
        "" => assumed.kind.to_owned(),
        source => format!("{}: {source}", assumed.kind),
    }
}

/// The machines that count against the quota, for a narrow column.
pub(super) fn quota(quota: Quota) -> String {
    match (quota.spot_vms, quota.regular_vms) {
        (spot, 0) => format!("{spot} Spot"),
        (0, regular) => format!("{regular} regular"),
        (spot, regular) => format!("{spot} Spot, {regular} regular"),
    }
}

/// The quota of the advised strategy in a sentence.
pub(super) fn quota_sentence(row: &StrategyRow) -> String {
    let held = if row.quota.held_when_evicted {
        "; evicted VMs are deallocated, and keep their quota and their disks"
    } else {
        ""
    };
    format!("the quota of vCPUs has to allow {} VMs{held}", quota(row.quota).replace(", ", " and "))
}

/// What a figure's chance is of.
pub(super) const fn chance_heading(answer: &Answer) -> &'static str {
    if answer.deadline_ms.is_some() { "IN TIME" } else { "DONE" }
}

/// Why there are no parameters.
pub(super) const fn undeployed(table: &Table) -> &'static str {
    if table.is_windows {
        "by means of your own: infra/ deploys Linux VMs only"
    } else {
        "by means of your own: no preset of infra/ is like it"
    }
}

/// Where the parameters go, and what else has to be set.
pub(super) fn deployment(table: &Table) -> String {
    let price = table.advised().and_then(|row| row.max_price_usd);
    let mut fields = Vec::new();
    if let (Some(size), Some(region)) = (&table.size, &table.region) {
        fields.extend([format!("\"location\": \"{region}\""), format!("\"sizes\": [\"{size}\"]")]);
    }
    fields.extend(price.map(|price| format!("\"maxPrice\": \"{}\"", price_text(price))));
    let fields: Vec<_> = fields.iter().map(String::as_str).collect();
    if fields.is_empty() {
        return "these lines of a .bicepparam file (see infra/README.md)".to_owned();
    }
    format!("these lines of a .bicepparam file, with {} in infra/fleets.json", list(&fields))
}

/// What is paid when the batch is done, unless it is nothing.
pub(super) fn idle_sentence(row: &StrategyRow) -> Option<String> {
    let month = usd(row.idle_month_usd);
    (row.idle_month_usd > 0)
        .then(|| format!("a month without a job costs {month} USD: delete the fleet, or scale it in, when the batch is done"))
}

/// The cells of one strategy in one world that all outputs have.
pub(super) fn figures(figures: &Figures) -> [String; 7] {
    [
        usd_mean(figures.cost_usd.mean),
        usd(figures.cost_usd.p90),
        finish(figures.finish_ms.p50),
        finish(figures.finish_ms.p95),
        percent(figures.chance),
        mean(figures.evictions),
        span(figures.work_lost_ms),
    ]
}

fn saturated(micros: u128) -> u64 {
    u64::try_from(micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_to_a_cent_and_small_money_to_a_hundredth_of_one() {
        let shown = [0, 68_864_999, 4_200, 999_960, 50, 49].map(usd);
        assert_eq!(shown, ["0.00", "68.86", "0.0042", "1.00", "0.0001", "<0.0001"]);
        assert_eq!(usd_mean(0.3), "<0.0001");
    }

    #[test]
    fn rare_events_are_not_shown_as_none() {
        assert_eq!([0.0, 0.01, 0.05, 2.44].map(mean), ["0.0", "<0.1", "0.1", "2.4"]);
    }

    #[test]
    fn a_chance_is_never_rounded_to_all_or_none() {
        let shown = [1.0, 0.9999, 0.955, 0.0001, 0.0].map(percent);
        assert_eq!(shown, ["100 %", "99.9 %", "95.5 %", "<0.1 %", "0 %"]);
    }

    #[test]
    fn a_run_that_is_never_done_is_said() {
        assert_eq!([finish(None), finish(Some(60_000))], ["never", "1m"]);
    }
}
