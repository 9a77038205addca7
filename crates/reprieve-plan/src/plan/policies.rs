//! The deadline policies, replayed in windows of a trace of availability.

use super::inputs::{ASSUMED_BOOT_MS, Inputs, Known};
use super::scenario::{Scenario, save_ms};
use crate::fleet::Spread;
use crate::policy::{Greedy, Policy, Programme, Uniform};
use crate::replay::{Outcome, replay};
use crate::task::Task;

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
    /// How often the machines were evicted, on average.
    pub evictions: f64,
    /// The work that was lost on all machines, on average.
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
        summarise(policy.name(), &outcomes, task.machines)
    };
    policies.map(row).into()
}

/// The batch as a policy sees it; `None` if jobs differ, or if there is no time for a move.
fn task(inputs: &Inputs, scenario: &Scenario, deadline_ms: u64) -> Option<Task> {
    let job_ms = *inputs.jobs_ms.first()?;
    let slots = inputs.instances.saturating_mul(inputs.slots);
    let jobs = u32::try_from(inputs.jobs_ms.len()).ok()?;
    // A machine's slots do its jobs in waves, so it has as many fewer.
    let jobs = jobs.div_ceil(slots).checked_mul(inputs.instances)?;
    let task = Task {
        jobs,
        job_ms,
        checkpoint_ms: scenario.model.work.checkpoint_ms,
        machines: inputs.instances,
        deadline_ms,
        move_ms: inputs.boot_ms.unwrap_or(ASSUMED_BOOT_MS).1.saturating_add(save_ms(inputs)),
        ..Task::new(inputs.prices.spot.at(0), inputs.prices.regular)
    };
    (inputs.jobs_ms.iter().all(|other| *other == job_ms) && task.check().is_ok()).then_some(task)
}

fn summarise(name: &'static str, outcomes: &[Outcome], machines: u32) -> PolicyRow {
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
        lost_ms: lost_ms * u64::from(machines) / u64::from(runs.max(1)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean")]
fn mean(sum: u64, count: u32) -> f64 {
    sum as f64 / f64::from(count.max(1))
}
