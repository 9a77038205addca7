//! Rules about owners and progress: no older owner writes after a newer one, a job resumes where it
//! was saved, and little work is at stake.

use std::time::Duration;

use reprieve_core::record::{Company, Record, Status};
use reprieve_core::{Fence, MessageId};

use super::Checker;
use super::view::{JobView, MessageState, MessageView};
use crate::fleet::history::{Event, What};

/// The most time that calls to the store may take between two saves.
const SLACK: Duration = Duration::from_secs(1);

impl Checker<'_> {
    pub(super) fn owners(&mut self, event: &Event) {
        let process = event.process.unwrap_or_default();
        match &event.what {
            What::Written { job, record, state, saved, issued, .. } if *job < self.view.jobs.len() => {
                self.written(*job, record, *state, *saved);
                let view = &mut self.view.jobs[*job];
                if *saved {
                    view.safe.insert(process, *issued);
                }
                // The job rested with its progress saved, or a delivery begins.
                let begins = |before: &Record| {
                    before.owner.company == Company::Resting || before.owner.nonce != record.owner.nonce
                };
                if view.record.as_ref().is_none_or(begins) {
                    view.safe.insert(process, *issued);
                }
                if view.record.is_none() {
                    view.late = view.completed.is_some_and(|completed| *issued <= completed);
                }
                (view.record, view.state) = (Some((**record).clone()), *state);
                self.mark_alone(*job);
            }
            What::Removed { job } if *job < self.view.jobs.len() => {
                let view = &mut self.view.jobs[*job];
                (view.record, view.state) = (None, None);
                view.floors.clear();
                if !view.done {
                    self.accuse("removed", Some(*job), "its record was removed, and it is not done");
                }
            }
            What::Began { job } if *job < self.view.jobs.len() => {
                // The steps of two deliveries in one process are indistinguishable.
                let held = self.view.jobs_of(process).into_iter().filter(|held| held == job).count();
                let view = &mut self.view.jobs[*job];
                view.safe.insert(process, event.at);
                if held > 1 {
                    view.twice.insert(process);
                }
            }
            What::StepBegan { job, fence, at } => self.step_began(process, *job, *fence, *at),
            What::Result { job, taken, value } => self.result(*job, *taken, value),
            What::Output { job, fence, taken: true } => self.output(*job, *fence),
            What::Sends { job, fence } => self.sends(process, *job, *fence),
            _ => {}
        }
    }

    fn mark_alone(&mut self, job: usize) {
        for process in self.view.processes.values_mut() {
            process.alone.remove(&job);
        }
        let record = self.view.jobs[job].record.as_ref();
        let Some(record) = record.filter(|it| it.owner.company == Company::Alone) else { return };
        let number = record.owner.worker.as_str().trim_start_matches('p').parse().ok();
        if let Some(process) = self.view.process(number) {
            process.alone.insert(job);
        }
    }

    fn written(&mut self, job: usize, record: &Record, state: Option<u32>, saved: bool) {
        let view = &self.view.jobs[job];
        let Some(before) = &view.record else { return };
        let (old, new) = (&before.owner, &record.owner);
        let same_message = old.message == new.message;
        let newer = (old.count, old.nonce.as_str()) != (new.count, new.nonce.as_str()) || !same_message;
        let is_claim = newer || record.generation > before.generation;
        // Anybody may cancel a job, and whoever has done a cancelled one writes that.
        let is_cancel = record.status == Status::Cancelled
            || before.status == Status::Cancelled && record.status == Status::Done;
        // Where a result exists, any delivery that finds it writes that the job is done.
        let settles = record.status == Status::Done && view.result.is_some();
        let why = if record.sequence <= before.sequence {
            "the sequence does not rise"
        } else if record.generation < before.generation {
            "its generation is smaller"
        } else if is_cancel {
            return;
        } else if before.status == Status::Cancelled {
            "the job was cancelled"
        } else if same_message && new.count < old.count && !settles {
            "its delivery is older"
        } else if same_message && new.count == old.count && new.nonce != old.nonce && !settles {
            "its delivery is the same, and its owner another"
        } else if !same_message && record.generation == before.generation && record.status != Status::Done {
            "its message is another one of the same generation"
        } else if before.status == Status::Done && record.status == Status::Running {
            "the job was done"
        } else if matches!(record.status, Status::Escalated { .. }) && record.escalated.is_some() {
            "the job was moved to another queue before"
        } else if is_claim && saved && view.state.is_some_and(|old| state.is_none_or(|new| new < old)) {
            "an owner that never claimed the job replaces its newest state by an older one"
        } else {
            if is_claim {
                let floor = view.state;
                let fence = Fence::new(record.generation, record.owner.count);
                self.view.jobs[job].floors.insert(fence, floor);
            }
            return;
        };
        let why = format!(
            "owner {}.{} (generation {}, sequence {}) wrote after {}.{} (generation {}, sequence {}): {why}",
            new.message,
            new.count,
            record.generation,
            record.sequence,
            old.message,
            old.count,
            before.generation,
            before.sequence
        );
        self.accuse("older owner", Some(job), why);
    }

    fn step_began(&mut self, process: u32, job: usize, fence: Fence, at: u32) {
        let now = self.now;
        let message = self.view.held(process, job, Some(fence)).cloned();
        self.is_done_already(message.as_ref(), job, fence);
        let Some(view) = self.view.jobs.get_mut(job) else { return };
        if view.begun.insert((process, message, fence)) {
            view.safe.insert(process, now);
            let floor = view.floors.get(&fence).copied().flatten();
            // A first delivery reads no record, and a job that is done may be done again.
            if fence > Fence::new(0, 1) && !view.done && floor.is_some_and(|floor| at < floor) {
                let why = format!("delivery {fence} begins at step {at}, and {floor:?} was saved");
                self.accuse("redone", Some(job), why);
            }
            return;
        }
        self.is_at_stake(process, job);
    }

    /// Checks that a delivery that reads before it begins found the result that existed when it was
    /// received.
    fn is_done_already(&mut self, message: Option<&MessageId>, job: usize, fence: Fence) {
        let received = message.and_then(|message| self.view.messages.get(message)).map(|it| it.received);
        let result = self.view.jobs.get(job).and_then(|job| job.result);
        if let (Some(received), Some(result)) = (received, result)
            && fence > Fence::new(0, 1)
            && result < received
        {
            self.accuse("done already", Some(job), format!("delivery {fence} runs it, and it has a result"));
        }
    }

    /// Checks how much work a death would cost: at most a step and the interval.
    fn is_at_stake(&mut self, process: u32, job: usize) {
        let (Some(interval), Some(plan)) = (self.plan.interval, self.plan.jobs.get(job)) else { return };
        let view: &JobView = &self.view.jobs[job];
        let limit = interval + plan.longest_step() + SLACK;
        let Some(safe) = view.safe.get(&process).filter(|_| !view.twice.contains(&process)) else { return };
        let well = self.view.processes.get(&process).is_some_and(|it| it.is_well_since(*safe));
        if well && self.now.saturating_sub(*safe) > limit {
            let why = format!("p{process} has not saved it since {:.3}s", safe.as_secs_f64());
            self.accuse("at stake", Some(job), why);
        }
    }

    fn result(&mut self, job: usize, taken: bool, value: &[u8]) {
        let Some(plan) = self.plan.jobs.get(job) else { return };
        let expected = crate::fleet::jobs::result(plan.steps).to_string();
        if taken {
            self.view.jobs[job].result = Some(self.now);
        }
        if taken && value != expected.as_bytes() {
            let value = String::from_utf8_lossy(value).into_owned();
            self.accuse("result", Some(job), format!("its result is {value} in place of {expected}"));
        }
    }

    /// Checks that the output is written by the newest owner that wrote.
    fn output(&mut self, job: usize, fence: Fence) {
        let Some(view) = self.view.jobs.get_mut(job) else { return };
        let before = view.output.replace(fence);
        if before.is_some_and(|before| before > fence) {
            self.accuse("older owner", Some(job), format!("output {fence} was taken after {before:?}"));
        }
    }

    /// Checks that a process that sends an output holds the job's message: after its lease ended,
    /// it must wait until the lease is verified.
    fn sends(&mut self, process: u32, job: usize, fence: Fence) {
        let holds = |message: &MessageView| {
            let own = matches!(message.state, MessageState::Leased { by, until } if by == process && until >= self.now);
            own && message.job == job
        };
        if !self.view.messages.values().any(holds) {
            self.accuse("lease", Some(job), format!("p{process} sends output {fence} without a lease"));
        }
    }
}
