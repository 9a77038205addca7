//! The deadline policies, replayed in windows of a trace of availability.

use super::inputs::{ASSUMED_BOOT_MS, Inputs, Known};
use super::scenario::Scenario;
use crate::fleet::Spread;
use crate::policy::{Greedy, Policy, Programme, Uniform};
use crate::replay::{Outcome, replay};
use crate::task::{Task, TaskError};

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
/// moves all machines together.
pub(super) fn rows(inputs: &Inputs, scenario: &Scenario) -> Vec<PolicyRow> {
    let series = match &inputs.evictions {
        Known::Availability(series, _) => Some(series),
        Known::Rate { .. } | Known::Lives(..) | Known::Losses(..) | Known::Unknown => {
            inputs.availability.as_ref()
        }
    };
    let (Some(deadline_ms), Some(series)) = (inputs.deadline_ms, series) else { return Vec::new() };
    let Some(task) = task(inputs, scenario, deadline_ms) else { return Vec::new() };
    let runs = usize::try_from(inputs.runs).unwrap_or(usize::MAX);
    let windows = series.draw_windows(deadline_ms, runs, inputs.seed);
    let programme = Programme::new(&task);
    let policies: [&dyn Policy; 3] = [&Greedy, &Uniform, &programme];
    let row = |policy: &dyn Policy| {
        let outcomes: Vec<_> = windows.iter().map(|window| replay(&task, policy, window)).collect();
        summarise(policy.name(), &outcomes)
    };
    policies.map(row).into()
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
        ..Task::new(inputs.prices.spot.at(0), inputs.prices.regular)
    };
    let is_plannable = matches!(task.check(), Ok(()) | Err(TaskError::ImpossibleDeadline { .. }));
    (inputs.jobs_ms.iter().all(|other| *other == job_ms) && is_plannable).then_some(task)
}

fn summarise(name: &'static str, outcomes: &[Outcome]) -> PolicyRow {
    let micros = |outcome: &Outcome| u64::try_from(outcome.cost.micros()).unwrap_or(u64::MAX);
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
