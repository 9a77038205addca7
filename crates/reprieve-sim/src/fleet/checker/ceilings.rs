//! Rules about limits of kinds and about cancelled jobs: no more jobs of a kind run at once than may, and a
//! job that was cancelled soon runs nowhere and is in no poison queue.

use std::collections::BTreeMap;
use std::time::Duration;

use reprieve_core::{Fence, MessageId};

use super::Checker;
use crate::fleet::history::{Event, What};

/// How long after a job was cancelled a worker may still run it that reaches the store.
const STOPS_WITHIN: Duration = Duration::from_secs(12);

/// How long after that the worker of a job may still write how it ended: requests may arrive late.
const LATE: Duration = Duration::from_secs(60);

impl Checker<'_> {
    pub(super) fn ceilings(&mut self, event: &Event) {
        let process = event.process.unwrap_or_default();
        if event.at > self.now_before {
            // What happens at one moment has happened by the next.
            self.no_more_than_may();
        }
        self.now_before = event.at;
        match &event.what {
            What::StepBegan { job, fence, .. } => self.entered(process, *job, *fence),
            What::StepLeft { job, fence } => {
                if let Some(job) = self.view.jobs.get_mut(*job) {
                    job.inside.remove(&(process, *fence));
                }
            }
            What::Ended(_) => {
                for job in &mut self.view.jobs {
                    job.inside.retain(|(inside, _)| *inside != process);
                }
            }
            What::CancelAsked { job } => {
                self.view.jobs[*job].asked_to_cancel.get_or_insert(event.at);
            }
            What::Cancelled { job } => {
                self.view.jobs[*job].cancelled.get_or_insert(event.at);
            }
            What::DeadLettered { message, .. } => self.is_no_poison(message),
            _ => {}
        }
    }

    /// Whether there is a limit for jobs of its kind.
    pub(super) fn is_limited(&self, job: usize) -> bool {
        match self.plan.jobs.get(job).map(|job| job.kind) {
            Some(0) => self.plan.in_fleet.is_some(),
            Some(1) => self.plan.per_worker.is_some(),
            _ => false,
        }
    }

    fn entered(&mut self, process: u32, job: usize, fence: Fence) {
        let Some(view) = self.view.jobs.get_mut(job) else { return };
        view.inside.insert((process, fence));
        let Some(cancelled) = view.cancelled.filter(|at| self.now > *at + STOPS_WITHIN) else { return };
        let is_well = self.view.processes.get(&process).is_some_and(|it| it.is_well_since(cancelled));
        if is_well {
            let why = format!("p{process} runs it, and it was cancelled at {:.3}s", cancelled.as_secs_f64());
            self.accuse("cancelled", Some(job), why);
        }
    }

    fn is_no_poison(&mut self, message: &MessageId) {
        let Some(job) = self.view.messages.get(message).map(|view| view.job) else { return };
        let cancelled = self.view.jobs.get(job).and_then(|view| view.cancelled);
        if cancelled.is_some_and(|at| self.now > at + LATE) {
            self.accuse("cancelled", Some(job), "it is in the poison queue");
        }
    }

    /// Checks how many jobs of each limited kind run: a process that is frozen runs none.
    fn no_more_than_may(&mut self) {
        if let Some(most) = self.plan.in_fleet {
            let count = self.running(0).count();
            if count > most as usize {
                let why = format!("{count} jobs of the first kind run, and {most} may");
                self.accuse("too many", None, why);
            }
        }
        if let Some(most) = self.plan.per_worker {
            let mut by_process = BTreeMap::<u32, usize>::new();
            self.running(1).for_each(|process| *by_process.entry(process).or_default() += 1);
            if let Some((process, count)) = by_process.into_iter().find(|(_, count)| *count > most) {
                let why = format!("{count} jobs of the second kind run in p{process}, and {most} may");
                self.accuse("too many", None, why);
            }
        }
    }

    /// The process of each delivery that is in a step of a job of this kind.
    fn running(&self, kind: usize) -> impl Iterator<Item = u32> {
        let runs = |process: &u32| {
            self.view.processes.get(process).is_some_and(|process| !process.frozen && !process.ended)
        };
        let jobs = self.plan.jobs.iter().zip(&self.view.jobs).filter(move |(plan, _)| plan.kind == kind);
        let inside = jobs.flat_map(|(_, view)| view.inside.iter().map(|(process, _)| *process));
        inside.filter(runs)
    }
}
