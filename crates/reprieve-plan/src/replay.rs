//! One task through one window of Spot availability, under a policy.

use crate::availability::Window;
use crate::history::History;
use crate::money::Cost;
use crate::policy::{Moment, Place, Policy};
use crate::safety;
use crate::task::Task;

/// The result of one replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The cost of all machines, boots included.
    pub cost: Cost,
    /// The time from the beginning until the last job was done.
    pub finished_ms: u64,
    /// Whether that was by the deadline.
    pub met_deadline: bool,
    /// How often machines were started.
    pub moves: u32,
    /// The machines that were evicted.
    pub evictions: u32,
    /// The run time of all jobs that had to be done again, without saves.
    pub lost_ms: u64,
    /// The time on Spot machines, boots included.
    pub spot_ms: u64,
    /// The time on regular machines, boots included.
    pub regular_ms: u64,
}

/// Runs `task` through `window` under `policy`, with the net below it, until all work is done.
///
/// Every move takes the task's longest time. An eviction comes without notice: what is not saved is
/// lost. A task that moves by choice saves first, if its jobs can be cut, and then asks for the other machine.
/// After the end of the window Spot stays as it was. `task` must have passed [`Task::check`], but for its deadline.
#[must_use]
pub fn replay(task: &Task, policy: &dyn Policy, window: &Window) -> Outcome {
    let mut run = Run {
        task,
        now_ms: 0,
        place: Place::Nothing,
        ready_ms: 0,
        left_ms: 0,
        done_ms: 0,
        saved_ms: 0,
        history: History::default(),
        outcome: Outcome::default(),
    };
    let mut changes = window.changes();
    let (mut spot, mut next_change_ms) = (window.first(), changes.next());
    let mut since_ms = 0;
    while run.done_ms < task.work_ms() {
        run.look(since_ms, spot);
        let to_ms = run.decide(policy, spot);
        let to_ms = next_change_ms.map_or(to_ms, |change_ms| to_ms.min(change_ms));
        since_ms = to_ms - run.now_ms;
        run.advance(to_ms);
        if next_change_ms == Some(run.now_ms) {
            spot = !spot;
            next_change_ms = changes.next();
        }
    }
    run.outcome.finished_ms = run.now_ms;
    run.outcome.met_deadline = run.now_ms <= task.deadline_ms;
    run.outcome
}

/// A replay at one moment.
struct Run<'a> {
    task: &'a Task,
    now_ms: u64,
    place: Place,
    /// When the machine works.
    ready_ms: u64,
    /// When the machine before it has saved.
    left_ms: u64,
    done_ms: u64,
    saved_ms: u64,
    history: History,
    outcome: Outcome,
}

impl Run<'_> {
    /// Sees whether Spot is available, and is evicted if it is not.
    fn look(&mut self, since_ms: u64, spot: bool) {
        self.history.look(since_ms, spot);
        if self.place == Place::Spot && !spot {
            self.outcome.evictions += self.task.machines;
            self.lose_unsaved();
            self.place = Place::Nothing;
        }
    }

    /// Moves where the policy says, and returns when to decide again at the latest.
    fn decide(&mut self, policy: &dyn Policy, spot: bool) -> u64 {
        let moment = self.moment(spot);
        let place = safety::decide(policy, &moment);
        if place != self.place {
            self.leave(place);
            self.enter(place);
        }
        let slack_ms = match safety::slack_ms(&self.moment(spot)) {
            0 => u64::MAX,
            slack_ms => slack_ms,
        };
        self.now_ms.saturating_add(slack_ms.min(self.task.look_ms)).min(self.done_at_ms())
    }

    fn moment(&self, spot: bool) -> Moment<'_> {
        Moment {
            task: self.task,
            time_left_ms: self.task.deadline_ms.saturating_sub(self.now_ms),
            work_left_ms: self.task.work_ms() - self.done_ms,
            unsaved_ms: self.done_ms - self.saved_ms,
            place: self.place,
            ready_in_ms: self.ready_ms.saturating_sub(self.now_ms),
            spot,
            history: &self.history,
        }
    }

    /// When the work is done if the task stays where it is.
    fn done_at_ms(&self) -> u64 {
        match self.place {
            Place::Nothing => u64::MAX,
            Place::Spot | Place::Regular => {
                self.ready_ms.max(self.now_ms).saturating_add(self.task.work_ms() - self.done_ms)
            }
        }
    }

    /// Leaves a machine by choice: jobs that can be cut save first. That is billed at the price of the machine that
    /// takes over, if there is one.
    fn leave(&mut self, next: Place) {
        if self.task.checkpoint_ms.is_none() {
            return self.lose_unsaved();
        }
        if self.done_ms > self.saved_ms {
            self.saved_ms = self.done_ms;
            self.left_ms = self.now_ms.saturating_add(self.task.leave_ms());
            if next == Place::Nothing {
                self.bill(self.task.leave_ms());
            }
        }
    }

    fn enter(&mut self, place: Place) {
        self.place = place;
        self.ready_ms = self.now_ms;
        if place != Place::Nothing {
            self.outcome.moves += 1;
            self.ready_ms = self.now_ms.max(self.left_ms).saturating_add(self.task.move_ms);
        }
    }

    fn lose_unsaved(&mut self) {
        let ran_ms = self.task.ran_ms(self.done_ms) - self.task.ran_ms(self.saved_ms);
        self.outcome.lost_ms += ran_ms * self.task.running_at(self.saved_ms);
        self.done_ms = self.saved_ms;
    }

    /// Works and pays until `to_ms`.
    fn advance(&mut self, to_ms: u64) {
        self.bill(to_ms - self.now_ms);
        if self.place != Place::Nothing {
            self.done_ms += to_ms.saturating_sub(self.ready_ms.max(self.now_ms));
            self.saved_ms = self.saved_ms.max(self.task.saved_ms(self.done_ms));
        }
        self.now_ms = to_ms;
    }

    fn bill(&mut self, time_ms: u64) {
        let (price, sum_ms) = match self.place {
            Place::Nothing => return,
            Place::Spot => (self.task.spot, &mut self.outcome.spot_ms),
            Place::Regular => (self.task.regular, &mut self.outcome.regular_ms),
        };
        *sum_ms += time_ms;
        self.outcome.cost += price.cost(self.task.machines, time_ms);
    }
}

#[cfg(test)]
mod tests;
