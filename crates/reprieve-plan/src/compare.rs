//! Policies side by side, over many windows.

use crate::availability::Window;
use crate::money::Cost;
use crate::omniscient::least_cost;
use crate::policy::Policy;
use crate::replay::replay;
use crate::task::Task;

/// What a policy cost over a set of windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The policy, or "omniscient bound".
    pub name: String,
    /// The mean cost, as a share of what regular machines alone cost.
    pub mean: f64,
    /// Half the width of the mean's 95 % interval. It holds if windows are independent, as those of
    /// generated series are; windows of one trace overlap, and their interval is for that trace only.
    pub half_width: f64,
    /// How many deadlines were missed.
    pub missed: u32,
    /// The mean number of machines started.
    pub moves: f64,
}

/// Replays `task` in each window under each policy, and adds the omniscient bound at the end.
#[must_use]
pub fn compare(task: &Task, policies: &[&dyn Policy], windows: &[Window]) -> Vec<Summary> {
    let mut summaries: Vec<_> = policies.iter().map(|policy| over_windows(task, *policy, windows)).collect();
    let bounds = windows.iter().map(|window| share(task, least_cost(task, window)));
    let (mean, half_width) = mean_of(bounds);
    summaries.push(Summary { name: "omniscient bound".to_owned(), mean, half_width, ..Summary::default() });
    summaries
}

fn over_windows(task: &Task, policy: &dyn Policy, windows: &[Window]) -> Summary {
    let outcomes: Vec<_> = windows.iter().map(|window| replay(task, policy, window)).collect();
    let (mean, half_width) = mean_of(outcomes.iter().map(|outcome| share(task, outcome.cost)));
    let (moves, _) = mean_of(outcomes.iter().map(|outcome| f64::from(outcome.moves)));
    let missed = outcomes.iter().map(|outcome| u32::from(!outcome.met_deadline)).sum();
    Summary { name: policy.name().to_owned(), mean, half_width, missed, moves }
}

fn share(task: &Task, cost: Cost) -> f64 {
    cost.share_of(task.regular.cost(task.machines, task.all_regular_ms()))
}

/// The mean and half of its 95 % interval.
#[expect(clippy::cast_precision_loss, reason = "a number of windows")]
fn mean_of(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<_> = values.collect();
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, 1.96 * (squares / (count - 1.0).max(1.0) / count).sqrt())
}
