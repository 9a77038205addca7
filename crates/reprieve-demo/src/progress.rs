//! The present progress of each job and its holder, from the journal and the logs.

use std::collections::HashMap;

use crate::frame::BANDS;
use crate::journal::{Entry, StepEvent};
use crate::log::{Drained, LogEvent, Logged};

/// All jobs.
#[derive(Debug)]
pub(crate) struct Progress {
    jobs: Vec<Job>,
    numbers: HashMap<String, usize>,
}

/// The progress of one job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Job {
    /// The steps that were ever done.
    pub(crate) done: u32,
    pub(crate) state: State,
    /// Whether a worker has logged that its result is stored and its message deleted.
    completed: bool,
    delivery: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum State {
    #[default]
    Waiting,
    Held(Holder),
    /// Released, or its holder was killed.
    Interrupted,
    Finished,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) vm: String,
    /// The step it began with.
    pub(crate) first: u32,
    /// Whether it has done one.
    pub(crate) moved: bool,
}

/// An update to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Update {
    /// An interrupted job resumes.
    Resumed { job: usize, vm: String, step: u32 },
    /// A VM has released its jobs.
    Released { vm: String, report: Drained },
}

impl Progress {
    /// Of jobs with these ids, in the order of their numbers.
    pub(crate) fn new(ids: &[String]) -> Self {
        let numbers: HashMap<_, _> =
            ids.iter().enumerate().map(|(number, id)| (id.clone(), number)).collect();
        Self { jobs: vec![Job::default(); numbers.len()], numbers }
    }

    /// Every job, in the order of their numbers.
    pub(crate) fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// The share of done steps, in thousandths.
    pub(crate) fn done_permille(&self) -> u32 {
        let done: usize = self.jobs.iter().map(|job| job.done as usize).sum();
        u32::try_from(done * 1_000 / (self.jobs.len() * BANDS as usize).max(1)).unwrap_or(u32::MAX)
    }

    /// Whether the logs show that every job is completed.
    pub(crate) fn all_completed(&self) -> bool {
        self.jobs.iter().all(|job| job.completed)
    }

    /// Whether `vm` has work to lose: it has done a step of a job that it holds.
    pub(crate) fn is_at_work(&self, vm: &str) -> bool {
        self.held_by(vm).any(|holder| holder.moved)
    }

    fn held_by(&self, vm: &str) -> impl Iterator<Item = &Holder> {
        self.jobs.iter().filter_map(move |job| match &job.state {
            State::Held(holder) if holder.vm == vm => Some(holder),
            _ => None,
        })
    }

    /// Takes in a line of the journal.
    pub(crate) fn entered(&mut self, entry: &Entry) -> Option<Update> {
        let Entry { vm, job: number, delivery, step, what, .. } = entry;
        let job = self.jobs.get_mut(*number)?;
        // An entry of an earlier owner changes nothing.
        if *delivery < job.delivery {
            return None;
        }
        let is_new = *delivery > job.delivery;
        // A worker may receive a job without starting it.
        let was_begun = std::mem::replace(&mut job.delivery, *delivery) > 0;
        if is_new {
            job.state = State::Held(Holder { vm: vm.clone(), first: *step, moved: false });
        }
        if *what == StepEvent::Done {
            job.done = job.done.max(step + 1);
            match &mut job.state {
                _ if step + 1 == BANDS => job.state = State::Finished,
                State::Held(holder) => holder.moved = true,
                State::Waiting | State::Interrupted | State::Finished => {}
            }
        }
        (is_new && was_begun).then(|| Update::Resumed { job: *number, vm: vm.clone(), step: *step })
    }

    /// Takes in a line of a log.
    pub(crate) fn logged(&mut self, logged: &Logged) -> Option<Update> {
        match &logged.what {
            LogEvent::Completed { id } => {
                if let Some(job) = self.numbers.get(id).and_then(|&number| self.jobs.get_mut(number)) {
                    job.state = State::Finished;
                    job.completed = true;
                }
                None
            }
            LogEvent::Drained(report) => {
                self.gone(&logged.vm);
                Some(Update::Released { vm: logged.vm.clone(), report: *report })
            }
        }
    }

    /// Notes that `vm` holds nothing any more.
    pub(crate) fn gone(&mut self, vm: &str) {
        for job in &mut self.jobs {
            if matches!(&job.state, State::Held(holder) if holder.vm == vm) {
                job.state = State::Interrupted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> Entry {
        Entry::read(line).expect("a line of a journal")
    }

    fn progress() -> Progress {
        Progress::new(&["a".to_owned(), "b".to_owned()])
    }

    #[test]
    fn progress_counts_every_step_once() {
        let mut progress = progress();
        for line in ["1 vm-1 0 1 0 done", "2 vm-1 0 1 1 done", "3 vm-2 0 2 1 done", "4 vm-1 1 1 0 done"] {
            assert!(progress.entered(&entry(line)).is_none_or(|news| matches!(news, Update::Resumed { .. })));
        }
        assert_eq!((progress.jobs()[0].done, progress.jobs()[1].done), (2, 1));
        assert_eq!(progress.done_permille(), 3_000 / (2 * BANDS));
    }

    #[test]
    fn a_vm_has_something_to_lose_once_it_has_done_a_step() {
        let mut progress = progress();
        progress.entered(&entry("1 vm-1 0 1 0 began"));
        assert!(!progress.is_at_work("vm-1"));
        progress.entered(&entry("2 vm-1 0 1 0 done"));
        assert!(progress.is_at_work("vm-1") && !progress.is_at_work("vm-2"));
        progress.gone("vm-1");
        assert!(!progress.is_at_work("vm-1"));
        assert_eq!(progress.jobs()[0].state, State::Interrupted);
    }

    #[test]
    fn a_job_that_goes_on_is_news_and_an_older_owner_is_not() {
        let mut progress = progress();
        assert_eq!(progress.entered(&entry("1 vm-1 1 1 0 began")), None);
        let goes_on = Update::Resumed { job: 1, vm: "vm-2".into(), step: 5 };
        assert_eq!(progress.entered(&entry("2 vm-2 1 2 5 began")), Some(goes_on));
        assert_eq!(progress.entered(&entry("3 vm-1 1 1 6 began")), None);
        assert_eq!(progress.entered(&entry("3 vm-2 0 2 0 began")), None, "no VM had begun it before");
        let holder = Holder { vm: "vm-2".into(), first: 5, moved: false };
        assert_eq!(progress.jobs()[1].state, State::Held(holder));
    }

    #[test]
    fn a_drain_gives_back_only_what_that_vm_still_holds() {
        let mut progress = progress();
        progress.entered(&entry("1 vm-1 0 1 0 done"));
        progress.entered(&entry("2 vm-1 1 1 0 done"));
        // The next owner was faster than the log.
        progress.entered(&entry("3 vm-2 1 2 1 began"));
        let report =
            Drained { held: 2, released_after_ms: 9, quiesced_after_ms: 9, work_lost_ms: 0, abandoned: 0 };
        let drained = Logged { at_unix_ms: 4, vm: "vm-1".into(), what: LogEvent::Drained(report) };
        assert_eq!(progress.logged(&drained), Some(Update::Released { vm: "vm-1".into(), report }));
        assert_eq!(progress.jobs()[0].state, State::Interrupted);
        assert!(matches!(&progress.jobs()[1].state, State::Held(holder) if holder.vm == "vm-2"));
    }

    #[test]
    fn a_job_is_finished_by_its_last_step_or_by_its_log() {
        let mut progress = progress();
        progress.entered(&entry(&format!("1 vm-1 0 1 {} done", BANDS - 1)));
        let completed =
            Logged { at_unix_ms: 2, vm: "vm-1".into(), what: LogEvent::Completed { id: "b".into() } };
        assert_eq!(progress.logged(&completed), None);
        assert!(progress.jobs().iter().all(|job| job.state == State::Finished));
        assert!(!progress.all_completed(), "what is done is not completed before its message is gone");
        let completed =
            Logged { at_unix_ms: 3, vm: "vm-1".into(), what: LogEvent::Completed { id: "a".into() } };
        assert_eq!(progress.logged(&completed), None);
        assert!(progress.all_completed());
    }
}
