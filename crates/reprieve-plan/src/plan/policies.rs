//! The deadline policies, replayed in windows of a trace of availability.

use std::num::NonZeroUsize;

use super::assumptions::Assumption;
use super::inputs::{ASSUMED_BOOT_MS, EVENTS_MAX, Inputs, Known, Source};
use super::runs::on_cores;
use super::scenario::Scenario;
use crate::availability::Series;
use crate::fleet::Spread;
use crate::policy::{Greedy, Policy, Programme, Uniform};
use crate::replay::{Outcome, replay};
use crate::task::{Task, TaskError};

/// The fewest windows that say anything.
const WINDOWS_MIN: u32 = 10;

/// The events of a run that take as long as a decision of all policies.
const EVENTS_OF_DECISION: u64 = 40;

/// What a deadline policy costs.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRow {
    /// The policy.
    pub name: &'static str,
    /// The number of windows.
    pub runs: u32,
    /// The cost in millionths of the currency: machines only.
    pub cost_micros: Spread,
    /// The time until the last job was done.
    pub finished_ms: Spread,
    /// In how many windows that was by the deadline.
    pub met: u32,
    /// The machines that were evicted, on average.
    pub evictions: f64,
    /// The work of all jobs that was lost, on average.
    pub lost_ms: u64,
}

/// Replays the policies, if the inputs have a deadline and a trace of availability, and jobs are equal: a policy
/// moves all machines together. With it comes what is to be said of fewer windows than were asked for.
pub(super) fn rows(
    inputs: &Inputs,
    scenario: &Scenario,
    cores: NonZeroUsize,
) -> (Vec<PolicyRow>, Option<Assumption>) {
    let series = match &inputs.evictions {
        Known::Availability(series, _) => Some(series),
        Known::Rate { .. } | Known::Lives(..) | Known::Losses(..) | Known::Unknown => {
            inputs.availability.as_ref()
        }
    };
    let (Some(deadline_ms), Some(series)) = (inputs.deadline_ms, series) else { return Default::default() };
    if !inputs.can_save {
        return (Vec::new(), Some(left_out(WHOLE_JOBS)));
    }
    let Some(task) = task(inputs, scenario, deadline_ms) else { return Default::default() };
    let runs = affordable(inputs, &task, series);
    if runs == 0 {
        return (Vec::new(), Some(left_out(FEW)));
    }
    let windows = series.draw_windows(deadline_ms, runs, inputs.seed);
    let programme = Programme::new(&task);
    let policies: [&(dyn Policy + Sync); 3] = [&Greedy, &Uniform, &programme];
    let replays: Vec<_> =
        policies.iter().flat_map(|it| windows.iter().map(move |window| (it, window))).collect();
    let outcomes = on_cores(cores, &replays, |(policy, window)| replay(&task, **policy, window));
    let each = policies.iter().zip(outcomes.chunks(windows.len().max(1)));
    let rows = each.map(|(policy, outcomes)| summarise(policy.name(), outcomes)).collect();
    let is_fewer = (runs as u64) < u64::from(inputs.runs);
    (rows, is_fewer.then(|| said(&format!("in {runs} windows instead of {}", inputs.runs), FEW)))
}

/// Such a task has no programme that is as good as the simpler policies in all markets.
const WHOLE_JOBS: &str =
    "they are for jobs that save: the programme reckons what others lose roughly, and may cost more";

const FEW: &str = "the deadline is far, or Spot changes often, so they would take long";

fn left_out(why: &'static str) -> Assumption {
    said("left out", why)
}

fn said(value: &str, why: &'static str) -> Assumption {
    Assumption { subject: "deadline policies", value: value.to_owned(), source: Source::Assumed(why) }
}

/// In how many windows the policies can be replayed, by the decisions that one takes; none if those are too few.
fn affordable(inputs: &Inputs, task: &Task, series: &Series) -> usize {
    let rounds = task.deadline_ms / series.length_ms().max(1) + 1;
    let changes = rounds.saturating_mul(series.changes().try_into().unwrap_or(u64::MAX));
    let decisions = (task.deadline_ms / task.look_ms).saturating_add(changes).max(1);
    let runs = (inputs.events_max.min(EVENTS_MAX) / EVENTS_OF_DECISION / decisions).min(inputs.runs.into());
    if runs < u64::from(inputs.runs.min(WINDOWS_MIN)) { 0 } else { usize::try_from(runs).unwrap_or(0) }
}

/// The batch as a policy sees it; `None` if jobs differ. A deadline that it can't meet is shown as missed.
fn task(inputs: &Inputs, scenario: &Scenario, deadline_ms: u64) -> Option<Task> {
    let job_ms = *inputs.jobs_ms.first()?;
    let work = &scenario.model.work;
    let task = Task {
        jobs: u32::try_from(inputs.jobs_ms.len()).ok()?,
        job_ms,
        checkpoint_ms: work.checkpoint_ms,
        save_ms: work.save_ms,
        machines: inputs.instances,
        slots: inputs.slots,
        deadline_ms,
        move_ms: inputs.boot_ms.unwrap_or(ASSUMED_BOOT_MS).1.saturating_add(work.restore_ms),
        ..Task::new(inputs.prices.spot.mean(deadline_ms, inputs.prices.regular), inputs.prices.regular)
    };
    let is_plannable = matches!(task.check(), Ok(()) | Err(TaskError::ImpossibleDeadline { .. }));
    (inputs.jobs_ms.iter().all(|other| *other == job_ms) && is_plannable).then_some(task)
}

fn summarise(name: &'static str, outcomes: &[Outcome]) -> PolicyRow {
    let micros = |outcome: &Outcome| outcome.cost.micros_shown();
    let runs = u32::try_from(outcomes.len()).unwrap_or(u32::MAX);
    let lost_ms: u64 = outcomes.iter().map(|outcome| outcome.lost_ms).sum();
    let evictions: u64 = outcomes.iter().map(|outcome| u64::from(outcome.evictions)).sum();
    PolicyRow {
        name,
        runs,
        cost_micros: Spread::new(outcomes.iter().map(micros)),
        finished_ms: Spread::new(outcomes.iter().map(|outcome| outcome.finished_ms)),
        met: outcomes.iter().map(|outcome| u32::from(outcome.met_deadline)).sum(),
        evictions: mean(evictions, runs),
        lost_ms: lost_ms / u64::from(runs.max(1)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean")]
fn mean(sum: u64, count: u32) -> f64 {
    sum as f64 / f64::from(count.max(1))
}
