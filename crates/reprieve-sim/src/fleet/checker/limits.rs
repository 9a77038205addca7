//! Rules about rogues: jobs that kill or fail are found within their limits, and no other job is
//! mistaken for one.

use std::time::Duration;

use reprieve_core::MessageId;
use reprieve_core::record::{
    Company, EndKind, FAILED_MAX, Record, Status, VANISHED_MAX, VANISHED_UNPROVED_MAX,
};

use super::Checker;
use crate::fleet::history::{Cause, Event, What};
use crate::fleet::plan::Nature;

impl Checker<'_> {
    pub(super) fn limits(&mut self, event: &Event) {
        let process = event.process.unwrap_or_default();
        match &event.what {
            What::Ended(cause) => self.ended(process, *cause),
            What::Frozen | What::Troubled => self.disturbed(process),
            What::Received { message, .. } => self.maybe_unheard(process, message),
            What::StepBegan { job, fence, .. } if *job < self.view.jobs.len() => {
                self.view.jobs[*job].running.insert(process, *fence);
            }
            What::Released { message, ends, .. } => self.released(message, ends),
            What::Written { job, record, state, saved, issued, .. } => {
                self.woke_early(*job, record);
                self.moved(*job, record, (*state).filter(|_| *saved), *issued);
                self.alone_too_late(*job, record, *issued);
                self.not_proved_after_all(event.process, *job, record);
            }
            What::Removed { job } if *job < self.view.jobs.len() => {
                let view = &mut self.view.jobs[*job];
                view.incidents.append(&mut view.cleared);
            }
            What::DeadLettered { message, reason } => self.dead_lettered(message, reason),
            _ => {}
        }
    }

    /// Returns whether the job's record has it run alone in this process.
    fn is_alone(&self, process: u32, job: usize) -> bool {
        let record = self.view.jobs.get(job).and_then(|job| job.record.as_ref());
        record.is_some_and(|it| {
            it.owner.company == Company::Alone && it.owner.worker.as_str() == format!("p{process}")
        })
    }

    fn ended(&mut self, process: u32, cause: Cause) {
        match cause {
            Cause::Job(job) => {
                let alone = self.is_alone(process, job);
                self.job_killed(process, job);
                if let Some(process) = self.view.process(Some(process)).filter(|_| alone) {
                    process.killed_by = Some(job);
                }
                for job in self.view.jobs_of(process) {
                    self.view.jobs[job].incidents.push(self.now);
                }
            }
            // A worker that is asked to stop twice leaves its messages to their leases.
            Cause::Killed | Cause::Evicted | Cause::Stopped => self.disturbed(process),
        }
    }

    /// Counts an incident from outside that ends or delays the process's deliveries.
    fn disturbed(&mut self, process: u32) {
        for job in self.view.jobs_of(process) {
            let alone = self.is_alone(process, job);
            let view = &mut self.view.jobs[job];
            view.incidents.push(self.now);
            view.outside.extend(alone.then_some(self.now));
        }
        if let Some(process) = self.view.process(Some(process)) {
            process.struck = Some(self.now);
        }
    }

    /// A process that is in trouble, frozen or gone may never learn of a delivery to it.
    fn maybe_unheard(&mut self, process: u32, message: &MessageId) {
        let well = self.view.processes.get(&process).is_some_and(|it| it.is_well_since(Duration::MAX));
        let job = self.view.messages.get(message).map_or(usize::MAX, |message| message.job);
        if let Some(job) = self.view.jobs.get_mut(job).filter(|_| !well) {
            job.incidents.push(self.now);
        }
    }

    /// A claim to run alone may be written after its process was disturbed, or while it is in
    /// trouble.
    fn alone_too_late(&mut self, job: usize, record: &Record, issued: Duration) {
        let number = record.owner.worker.as_str().trim_start_matches('p').parse().ok();
        let Some(process) = self.view.process(number) else { return };
        let disturbed = process.troubled || process.struck.is_some_and(|struck| struck >= issued);
        if record.owner.company == Company::Alone
            && disturbed
            && let Some(view) = self.view.jobs.get_mut(job)
        {
            view.outside.push(self.now);
        }
    }

    fn job_killed(&mut self, process: u32, job: usize) {
        let running = self.view.jobs.get(job).and_then(|job| job.running.get(&process)).copied();
        let message = self.view.held(process, job, running).or_else(|| self.view.held(process, job, None));
        let (alone, message) = (self.is_alone(process, job), message.cloned());
        let Some(view) = message.and_then(|message| self.view.messages.get_mut(&message)) else { return };
        let (all, proved) = (view.deaths.0 + 1, view.deaths.1 + u32::from(alone || view.deaths.0 < 2));
        view.deaths = (all, proved);
        if proved > VANISHED_MAX || all > VANISHED_UNPROVED_MAX {
            let why = format!("it killed {all} processes at one place, {proved} of them provably");
            self.accuse("not found", Some(job), why);
        }
    }

    /// A job that killed its process at the end of its time alone was no longer alone if the write
    /// of that state was in progress.
    fn not_proved_after_all(&mut self, process: Option<u32>, job: usize, record: &Record) {
        let killed = self.view.process(process).is_some_and(|it| it.killed_by == Some(job));
        if killed
            && record.owner.company != Company::Alone
            && let Some(message) = self.view.messages.get_mut(&record.owner.message)
        {
            message.deaths.1 = message.deaths.1.saturating_sub(1);
        }
    }

    fn released(&mut self, message: &MessageId, ends: &[reprieve_core::record::End]) {
        let Some(view) = self.view.messages.get_mut(message) else { return };
        let this = ends.iter().find(|end| end.count == view.count && end.message == *message);
        if this.is_none_or(|end| end.kind != EndKind::Failed) {
            return;
        }
        view.failures += 1;
        let (job, failures) = (view.job, view.failures);
        if failures >= FAILED_MAX {
            self.accuse(
                "not found",
                Some(job),
                format!("it failed {failures} times at one place, and goes on"),
            );
        }
    }

    /// A job that waits at its own request is not claimed before its time.
    fn woke_early(&mut self, job: usize, record: &Record) {
        let before = self.view.jobs.get(job).and_then(|job| job.record.as_ref()).map(|before| &before.status);
        if let Some(Status::Waiting { due_unix_ms }) = before
            && record.status == Status::Running
            && record.changed_unix_ms < *due_unix_ms
        {
            let early = due_unix_ms - record.changed_unix_ms;
            self.accuse("woke early", Some(job), format!("{early} ms before its time"));
        }
    }

    /// Clears the job's incidents when it moves or is redriven.
    fn moved(&mut self, job: usize, record: &Record, saved: Option<u32>, issued: Duration) {
        let Some(view) = self.view.jobs.get_mut(job) else { return };
        let redriven = view.record.as_ref().is_some_and(|before| {
            // An owner whose output was refused raises the generation, too, and keeps the account.
            let raised = before.owner.nonce == record.owner.nonce && before.status == Status::Running;
            before.generation < record.generation && !raised
        });
        if !redriven && (saved.is_none() || saved == Some(view.state.unwrap_or(0))) {
            return;
        }
        // Incidents since the write was sent happened at the job's present place.
        view.outside.retain(|at| *at >= issued);
        view.cleared.extend(view.incidents.extract_if(.., |at| *at < issued));
        for message in self.view.messages.values_mut().filter(|message| message.job == job) {
            (message.deaths, message.failures) = ((0, 0), 0);
        }
    }

    fn dead_lettered(&mut self, message: &MessageId, reason: &str) {
        let Some(job) = self.view.messages.get(message).map(|view| view.job) else { return };
        let (Some(plan), Some(view)) = (self.plan.jobs.get(job), self.view.jobs.get(job)) else { return };
        let dies = reason.contains("death of their worker");
        // Two incidents beside other jobs, and one from outside while it ran alone, look the same
        // as a killer.
        let unlucky = dies && view.incidents.len() >= VANISHED_MAX as usize && !view.outside.is_empty();
        let fits = match plan.nature {
            Nature::Healthy | Nature::Flaky(_) => false,
            Nature::Kills(_) => dies,
            Nature::Fails(_) | Nature::Curable(_) => reason.contains("this step fails"),
        };
        if !fits && !unlucky {
            let why = format!("it was poisoned, being {:?}: {reason}", plan.nature);
            self.accuse("poisoned", Some(job), why);
        }
    }
}
