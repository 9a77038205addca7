//! Which strategy to take, and why: the cheapest that meets the deadline and the budget in every world.

use super::inputs::{Inputs, Known};
use super::scenario::Scenario;
use super::{Cost, Row, Summary};
use crate::words::at_most;

/// The least chance to meet the deadline of a strategy that is advised.
pub const CHANCE_MIN: f64 = 0.95;

/// The least that Spot has to save against regular machines alone to be advised: less is not worth the interruptions,
/// and lies within what a plan can be wrong by.
pub const SAVING_MIN: f64 = 0.1;

/// The strategy to take.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Which kind of strategy.
    pub verdict: Verdict,
    /// The strategy's place in [`super::Plan::rows`]; `None` if none does.
    pub strategy: Option<usize>,
    /// Why, in a sentence or two.
    pub reason: String,
}

/// What the advice comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A strategy with Spot.
    Spot,
    /// Don't use Spot for this.
    NoSpot,
    /// No strategy stays within the deadline and the budget.
    Nothing,
}

/// A strategy at its worst in any world.
#[derive(Clone, Copy, Debug)]
struct Worst {
    cost: f64,
    cost_p90: u64,
    chance: f64,
}

impl Worst {
    fn of(summaries: &[Summary]) -> Self {
        Self {
            cost: summaries.iter().map(|summary| summary.cost_micros.mean).fold(0.0, f64::max),
            cost_p90: summaries.iter().map(|summary| summary.cost_micros.p90).max().unwrap_or_default(),
            chance: summaries.iter().map(Summary::chance).fold(1.0, f64::min),
        }
    }

    fn is_within(&self, inputs: &Inputs) -> bool {
        let budget = inputs.budget.map(Cost::micros);
        self.chance >= CHANCE_MIN && budget.is_none_or(|budget| u128::from(self.cost_p90) <= budget)
    }
}

/// Advises by `rows`, the first of which is all regular.
pub(super) fn advise(inputs: &Inputs, scenarios: &[Scenario], rows: &[Row]) -> Advice {
    let worst: Vec<_> = rows.iter().map(|row| Worst::of(&row.summaries)).collect();
    let cheapest = |indices: &mut dyn Iterator<Item = usize>| {
        indices.min_by(|a, b| worst[*a].cost.total_cmp(&worst[*b].cost))
    };
    let within = cheapest(&mut (0..rows.len()).filter(|index| worst[*index].is_within(inputs)));
    let with_spot = cheapest(&mut (0..rows.len()).filter(|index| rows[*index].strategy.uses_spot()));
    match (within, with_spot) {
        (None, _) => nothing(inputs, scenarios, rows, &worst),
        (Some(0), Some(spot)) => no_spot(inputs, rows, &worst, spot),
        (Some(index), _) if worst[0].is_within(inputs) && saving(&worst, index) < SAVING_MIN => Advice {
            verdict: Verdict::NoSpot,
            strategy: Some(0),
            reason: format!(
                "don't use Spot for this: {} saves {} of what regular machines alone cost, {}, which is less than {}",
                rows[index].strategy.name,
                percent(saving(&worst, index)),
                usd(worst[0].cost),
                percent(SAVING_MIN)
            ),
        },
        (Some(index), _) => spot(inputs, rows, &worst, index),
    }
}

/// The share of the cost of all regular that a strategy saves.
fn saving(worst: &[Worst], index: usize) -> f64 {
    1.0 - worst[index].cost / worst[0].cost
}

fn spot(inputs: &Inputs, rows: &[Row], worst: &[Worst], index: usize) -> Advice {
    let ends = if rows[index].summaries.len() > 1 { "at the worse end of the eviction rate, " } else { "" };
    let deadline = match inputs.deadline_ms {
        Some(_) => format!("the deadline is met in {} of the runs", percent(worst[index].chance)),
        None => format!("the batch is done in {} of the runs", percent(worst[index].chance)),
    };
    let doubt = match inputs.evictions {
        Known::Rate { high: None, .. } => "; the eviction rate has no upper end, so it may cost more",
        Known::Unknown => "; the eviction rate is unknown, so it may cost more",
        Known::Availability(ref series, _) if series.loss_bound().is_some() => {
            if series.fewer_at_beginning() > 0 {
                "; the trace has no loss but where it begins again, so the rate of evictions is not known"
            } else {
                "; the trace has no loss, so it may cost more"
            }
        }
        Known::Rate { .. } | Known::Lives(..) | Known::Losses(..) | Known::Availability(..) => "",
    };
    let reason = format!(
        "{}: {ends}it costs {} on average, {} less than regular machines alone ({}), and {deadline}{doubt}",
        rows[index].strategy.name,
        usd(worst[index].cost),
        percent(saving(worst, index)),
        usd(worst[0].cost),
    );
    Advice { verdict: Verdict::Spot, strategy: Some(index), reason }
}

/// All regular is the cheapest that is within the limits; `spot` is the cheapest of the others.
fn no_spot(inputs: &Inputs, rows: &[Row], worst: &[Worst], spot: usize) -> Advice {
    let name = &rows[spot].strategy.name;
    let why = if worst[spot].is_within(inputs) {
        format!("{name}, the cheapest with it, costs {} on average", usd(worst[spot].cost))
    } else if worst[spot].chance < CHANCE_MIN {
        let what = if inputs.deadline_ms.is_some() { "meets the deadline" } else { "is done" };
        format!("{name}, the cheapest with it, {what} in {} of the runs only", percent(worst[spot].chance))
    } else {
        format!("{name}, the cheapest with it, exceeds the budget in more than one of ten runs")
    };
    let reason =
        format!("don't use Spot for this: {why}; regular machines alone cost {}", usd(worst[0].cost));
    Advice { verdict: Verdict::NoSpot, strategy: Some(0), reason }
}

fn nothing(inputs: &Inputs, scenarios: &[Scenario], rows: &[Row], worst: &[Worst]) -> Advice {
    let timely = (0..rows.len())
        .filter(|index| worst[*index].chance >= CHANCE_MIN)
        .min_by_key(|index| worst[*index].cost_p90);
    let reason = match timely {
        Some(index) => format!(
            "no strategy stays within the budget in nine of ten runs: {} needs {}, so allow that, or fewer jobs",
            rows[index].strategy.name,
            usd_up(worst[index].cost_p90)
        ),
        None => format!(
            "no strategy {} in {} of the runs: {}",
            if inputs.deadline_ms.is_some() { "meets the deadline" } else { "is done" },
            percent(CHANCE_MIN),
            scenarios
                .iter()
                .find_map(mostly_saves)
                .unwrap_or_else(|| "allow more time or more machines".to_owned())
        ),
    };
    Advice { verdict: Verdict::Nothing, strategy: None, reason }
}

/// That jobs save for most of the time in this world, where they do.
fn mostly_saves(scenario: &Scenario) -> Option<String> {
    let work = &scenario.model.work;
    let interval_ms = work.interval_ms().filter(|interval_ms| work.save_ms > interval_ms / 2)?;
    Some(format!(
        "a save takes {} of each {}, longer than the work that it protects, so make saves shorter, or let jobs save nothing",
        at_most(work.save_ms),
        at_most(interval_ms)
    ))
}

/// To a cent, and below a dollar to a hundredth of one; what is not nothing is never shown as nothing.
fn usd(micros: f64) -> String {
    let dollars = micros / 1e6;
    if dollars == 0.0 || dollars >= 0.99995 {
        return format!("${dollars:.2}");
    }
    if dollars < 0.00005 { "<$0.0001".to_owned() } else { format!("${dollars:.4}") }
}

/// The next whole cent, and below a dollar the next hundredth of one: a budget of this is enough.
fn usd_up(micros: u64) -> String {
    let hundredths = micros.div_ceil(100);
    if hundredths < 10_000 {
        return format!("$0.{hundredths:04}");
    }
    let cents = micros.div_ceil(10_000);
    format!("${}.{:02}", cents / 100, cents % 100)
}

/// In percent, never rounded up to all, nor down to none.
fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.001 {
        return "<0.1 %".to_owned();
    }
    let tenths = (share * 1000.0 + 1e-6).floor() / 10.0;
    format!("{tenths} %")
}

#[cfg(test)]
mod tests {
    use super::{usd, usd_up};

    #[test]
    fn small_money_is_not_shown_as_nothing() {
        let shown = [0.0, 3.0, 1_200.0, 290_000.0, 999_960.0, 2_004_000.0].map(usd);
        assert_eq!(shown, ["$0.00", "<$0.0001", "$0.0012", "$0.2900", "$1.00", "$2.00"]);
    }

    #[test]
    fn a_budget_that_is_needed_is_rounded_up() {
        let shown = [1_u64, 1_201, 999_901, 2_000_001].map(usd_up);
        assert_eq!(shown, ["$0.0001", "$0.0013", "$1.00", "$2.01"]);
    }
}
