//! Policies: where a task runs next, as pure functions of what is known.

mod greedy;
mod programme;
mod uniform;

use crate::history::History;
use crate::task::Task;

pub use greedy::Greedy;
pub use programme::Programme;
pub use uniform::Uniform;

/// Where a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On no machine; it waits for Spot and costs nothing.
    Nothing,
    /// On Spot machines.
    Spot,
    /// On regular machines, which are not evicted.
    Regular,
}

/// What a policy decides by.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The task.
    pub task: &'a Task,
    /// The time until the deadline; zero after it.
    pub time_left_ms: u64,
    /// The work that is not done.
    pub work_left_ms: u64,
    /// The work that is done and not saved: an eviction loses it.
    pub unsaved_ms: u64,
    /// Where the task is. After an eviction it is nowhere.
    pub place: Place,
    /// The time until the machine works; zero when it does, and without a machine.
    pub ready_in_ms: u64,
    /// Whether Spot can be had.
    pub spot: bool,
    /// What was seen of Spot until now.
    pub history: &'a History,
}

/// A rule for where a task runs next.
///
/// It is asked when the task begins, when Spot comes or goes, and every [`Task::look_ms`], also while the
/// task is on a regular machine or on none. It keeps nothing between calls, so what it answers can be
/// repeated. [`crate::safety::decide`] asks it, and overrules it for the deadline's sake.
pub trait Policy {
    /// The name in tables.
    fn name(&self) -> &'static str;

    /// Where the task runs from now on.
    fn next(&self, moment: &Moment<'_>) -> Place;
}

/// Regular machines only: what every other policy is compared with.
#[derive(Clone, Copy, Debug)]
pub struct AllRegular;

impl Policy for AllRegular {
    fn name(&self) -> &'static str {
        "all regular"
    }

    fn next(&self, _moment: &Moment<'_>) -> Place {
        Place::Regular
    }
}
