//! The results of many runs.

use std::ops::Range;

use super::model::Model;
use super::outcome::{HourUse, Outcome, SlotTime};
use super::run::simulate_within;
use super::strategy::Strategy;
use crate::money::Cost;

/// What a strategy costs, and when it is done, over many seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The number of runs.
    pub runs: u32,
    /// The cost in millionths of the currency.
    pub cost_micros: Spread,
    /// The mean cost by what was paid for, in millionths: regular machines, Spot machines, disks, saves, what is
    /// paid always, and traffic.
    pub parts_micros: [u64; 6],
    /// The time until the last job was done. A run that did not finish has the model's limit.
    pub finished_ms: Spread,
    /// How many runs finished.
    pub finished: u32,
    /// How many were done by the deadline; all that finished, without one.
    pub met: u32,
    /// The mean number of evictions.
    pub evictions: f64,
    /// The mean number of refused requests for a machine.
    pub refusals: f64,
    /// The mean number of saves.
    pub saves: f64,
    /// The mean number of jobs that moved to regular machines.
    pub swaps: f64,
    /// The mean time of slots, by what they did.
    pub time: SlotTime,
    /// The mean time of machines in each hour since the beginning.
    pub hours: Vec<HourUse>,
    /// The most Spot and regular machines that the quota has to allow at a time, in any run.
    pub quota: (u32, u32),
    /// The cost of each run in millionths of the currency, the lowest first.
    pub costs_micros: Vec<u64>,
    /// The time until the last job was done, of each run, the shortest first.
    pub finishes_ms: Vec<u64>,
}

/// The mean of a number, and how it is spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Half the width of the mean's 95 % interval. It says how many seeds there were, not how right the model is.
    pub half_width: f64,
    /// The number that half of the runs stay below or reach.
    pub p50: u64,
    /// The number that nine of ten runs stay below or reach.
    pub p90: u64,
    /// The number that 19 of 20 runs stay below or reach.
    pub p95: u64,
}

/// Runs of one strategy, before their summary. The hours of machines are summed, because they would be most of it.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// Without their hours.
    outcomes: Vec<Outcome>,
    hours: Vec<HourUse>,
}

impl Runs {
    /// Plays a run with each of these seeds, and calls `progress` after each. `None` if one has more than so many events.
    pub(crate) fn play(
        model: &Model,
        strategy: &Strategy,
        seeds: Range<u64>,
        events_max: u64,
        mut progress: impl FnMut(),
    ) -> Option<Self> {
        let mut runs = Self::default();
        for seed in seeds {
            let outcome = simulate_within(model, strategy, seed, events_max);
            if outcome.events > events_max {
                return None;
            }
            runs.push(outcome);
            progress();
        }
        Some(runs)
    }

    fn push(&mut self, mut outcome: Outcome) {
        self.add_hours(&std::mem::take(&mut outcome.hours));
        self.outcomes.push(outcome);
    }

    fn add_hours(&mut self, hours: &[HourUse]) {
        if self.hours.len() < hours.len() {
            self.hours.resize(hours.len(), HourUse::default());
        }
        for (sum, hour) in self.hours.iter_mut().zip(hours) {
            sum.spot_ms += hour.spot_ms;
            sum.regular_ms += hour.regular_ms;
        }
    }

    /// Adds further runs.
    pub(crate) fn add(&mut self, others: Self) {
        self.add_hours(&others.hours);
        self.outcomes.extend(others.outcomes);
    }

    /// The events of all runs.
    pub(crate) fn events(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.events).sum()
    }

    /// The summary of the runs, which were ended after `limit_ms`.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(crate) fn summary(self, deadline_ms: Option<u64>, limit_ms: u64) -> Summary {
        let runs = self.outcomes.len().max(1) as u64;
        let mean =
            |hour: HourUse| HourUse { spot_ms: hour.spot_ms / runs, regular_ms: hour.regular_ms / runs };
        let hours = self.hours.into_iter().map(mean).collect();
        Summary { hours, ..Summary::without_hours(&self.outcomes, deadline_ms, limit_ms) }
    }
}

impl Summary {
    /// Runs `model` under `strategy` with each of these seeds, and calls `progress` after each.
    ///
    /// # Panics
    ///
    /// If there is no seed.
    #[must_use]
    pub fn of_runs(
        model: &Model,
        strategy: &Strategy,
        seeds: Range<u64>,
        deadline_ms: Option<u64>,
        progress: impl FnMut(),
    ) -> Self {
        let runs = Runs::play(model, strategy, seeds, u64::MAX, progress).unwrap_or_default();
        runs.summary(deadline_ms, model.limit_ms)
    }

    /// The summary of `outcomes` but for their hours.
    fn without_hours(outcomes: &[Outcome], deadline_ms: Option<u64>, limit_ms: u64) -> Self {
        assert!(!outcomes.is_empty(), "a summary needs a run");
        let finished = |outcome: &Outcome| outcome.finished_ms.is_some();
        let met =
            |outcome: &Outcome| deadline_ms.map_or(finished(outcome), |deadline_ms| outcome.met(deadline_ms));
        let most = |of: fn(&Outcome) -> u32| outcomes.iter().map(of).max().unwrap_or_default();
        let mean_ms = |of: fn(&SlotTime) -> u64| mean_u64(outcomes.iter().map(|outcome| of(&outcome.time)));
        let part =
            |of: fn(&Outcome) -> Cost| mean_u64(outcomes.iter().map(|outcome| of(outcome).micros_shown()));
        let costs_micros = sorted(outcomes.iter().map(|outcome| outcome.cost.total().micros_shown()));
        let finishes_ms = sorted(outcomes.iter().map(|outcome| outcome.finished_ms.unwrap_or(limit_ms)));
        Self {
            runs: count(outcomes.len()),
            cost_micros: Spread::of_sorted(&costs_micros),
            parts_micros: [
                part(|outcome| outcome.cost.regular),
                part(|outcome| outcome.cost.spot),
                part(|outcome| outcome.cost.disks),
                part(|outcome| outcome.cost.saves),
                part(|outcome| outcome.cost.always),
                part(|outcome| outcome.cost.traffic),
            ],
            finished_ms: Spread::of_sorted(&finishes_ms),
            finished: count(outcomes.iter().filter(|outcome| finished(outcome)).count()),
            met: count(outcomes.iter().filter(|outcome| met(outcome)).count()),
            evictions: mean(outcomes.iter().map(|outcome| f64::from(outcome.evictions))),
            refusals: mean(outcomes.iter().map(|outcome| f64::from(outcome.refusals))),
            saves: mean(outcomes.iter().map(|outcome| as_f64(outcome.saves))),
            swaps: mean(outcomes.iter().map(|outcome| f64::from(outcome.swaps))),
            time: SlotTime {
                kept_ms: mean_ms(|time| time.kept_ms),
                lost_ms: mean_ms(|time| time.lost_ms),
                saving_ms: mean_ms(|time| time.saving_ms),
                restoring_ms: mean_ms(|time| time.restoring_ms),
                booting_ms: mean_ms(|time| time.booting_ms),
                idle_ms: mean_ms(|time| time.idle_ms),
            },
            hours: Vec::new(),
            quota: (most(|outcome| outcome.spot_quota), most(|outcome| outcome.regular_quota)),
            costs_micros,
            finishes_ms,
        }
    }

    /// The share of runs that met the deadline.
    #[must_use]
    pub fn chance(&self) -> f64 {
        f64::from(self.met) / f64::from(self.runs)
    }
}

impl Spread {
    /// The spread of `values`; zero of none.
    #[must_use]
    pub fn new(values: impl Iterator<Item = u64>) -> Self {
        Self::of_sorted(&sorted(values))
    }

    fn of_sorted(sorted: &[u64]) -> Self {
        let number = as_f64(sorted.len() as u64).max(1.0);
        let mean = mean(sorted.iter().map(|value| as_f64(*value)));
        let squares: f64 = sorted.iter().map(|value| (as_f64(*value) - mean).powi(2)).sum();
        let half_width = 1.96 * (squares / (number - 1.0).max(1.0) / number).sqrt();
        // The nearest rank: a value that was there.
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(rank).copied().unwrap_or_default()
        };
        Self { mean, half_width, p50: at(50), p90: at(90), p95: at(95) }
    }
}

fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sorted: Vec<_> = values.collect();
    sorted.sort_unstable();
    sorted
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = as_f64(values.len() as u64).max(1.0);
    values.sum::<f64>() / count
}

/// The mean, rounded down.
fn mean_u64(values: impl ExactSizeIterator<Item = u64>) -> u64 {
    let count = values.len().max(1) as u128;
    saturated(values.map(u128::from).sum::<u128>() / count)
}

fn saturated(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "for means")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::{HourUse, Outcome, Runs, Spread, Summary};

    fn summary(outcomes: impl IntoIterator<Item = Outcome>, deadline_ms: Option<u64>) -> Summary {
        let mut runs = Runs::default();
        outcomes.into_iter().for_each(|outcome| runs.push(outcome));
        runs.summary(deadline_ms, 100)
    }

    #[test]
    fn percentiles_are_values_that_were_there() {
        let spread = Spread::new((1..=200).rev());
        assert_eq!((spread.p50, spread.p90, spread.p95), (100, 180, 190));
        assert!((spread.mean - 100.5).abs() < 1e-9);
        // The deviation of 1 to 200 is 57.88.
        assert!((spread.half_width - 1.96 * 57.88 / 200_f64.sqrt()).abs() < 0.01, "{}", spread.half_width);
        let one = Spread::new([7].into_iter());
        assert_eq!((one.p50, one.p95, one.half_width.to_bits()), (7, 7, 0));
    }

    #[test]
    fn hours_are_means_of_all_runs_also_of_those_that_were_done() {
        let hour = |spot_ms, regular_ms| HourUse { spot_ms, regular_ms };
        let runs = [vec![hour(4, 8)], vec![hour(2, 0), hour(6, 2)]]
            .map(|hours| Outcome { hours, ..Outcome::default() });
        assert_eq!(summary(runs, None).hours, [hour(3, 4), hour(3, 1)]);
    }

    #[test]
    fn a_run_that_did_not_finish_meets_no_deadline_and_takes_the_limit() {
        let runs =
            [Some(10), Some(20), None].map(|finished_ms| Outcome { finished_ms, ..Outcome::default() });
        let found = summary(runs.clone(), Some(15));
        assert_eq!((found.runs, found.finished, found.met, found.finished_ms.p95), (3, 2, 1, 100));
        assert_eq!(summary(runs, None).met, 2);
    }
}
