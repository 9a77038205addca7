//! The work, its deadline, and what machines for it cost.

use std::fmt;
use std::num::NonZeroU64;

use crate::money::Price;
use crate::words::{at_least, at_most};

const MINUTE_MS: u64 = 60_000;

/// A batch with a deadline, on a number of machines that run together.
///
/// The machines are all Spot, all regular, or off. One machine is the usual case; with more, jobs
/// run in waves, one in each slot, and Spot counts as available while all machines can be had.
///
/// Work is the time that machines need for jobs: their run time and their saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The number of jobs.
    pub jobs: u32,
    /// The run time of each job, without saves.
    pub job_ms: u64,
    /// The run time between two checkpoints of a job, which an eviction may lose. The first one comes later, by the time of
    /// a save. `None` for jobs that can't be cut: they lose all they did since they began, also when they move by choice.
    pub checkpoint_ms: Option<NonZeroU64>,
    /// The time that a save takes. The job does not work in it, and there is none after the last interval.
    pub save_ms: u64,
    /// The number of machines.
    pub machines: u32,
    /// The number of jobs that one machine runs at a time.
    pub slots: u32,
    /// The time from the beginning until all jobs have to be done.
    pub deadline_ms: u64,
    /// The longest time from the request for a machine until it works: allocation, boot and
    /// restore. It is billed, and no work is done in it.
    pub move_ms: u64,
    /// The time between two decisions of a policy while nothing changes.
    pub look_ms: u64,
    /// The price of a Spot machine.
    pub spot: Price,
    /// The price of a regular machine.
    pub regular: Price,
}

impl Task {
    /// One job of an hour on one machine with a deadline after two hours, as a base for
    /// `..Task::new(spot, regular)`.
    ///
    /// A checkpoint is saved every five minutes. A move takes six, as "Can't Be Late" measured for
    /// a change of machine with its restore. A policy decides every five minutes, the resolution of
    /// the traces of that paper.
    #[must_use]
    pub const fn new(spot: Price, regular: Price) -> Self {
        Self {
            jobs: 1,
            job_ms: 60 * MINUTE_MS,
            checkpoint_ms: NonZeroU64::new(5 * MINUTE_MS),
            save_ms: 0,
            machines: 1,
            slots: 1,
            deadline_ms: 120 * MINUTE_MS,
            move_ms: 6 * MINUTE_MS,
            look_ms: 5 * MINUTE_MS,
            spot,
            regular,
        }
    }

    /// Checks that the task can be planned.
    ///
    /// # Errors
    ///
    /// The first fault: an empty or endless task, or a deadline that regular machines can't meet.
    pub fn check(&self) -> Result<(), TaskError> {
        if self.jobs == 0 || self.job_ms == 0 {
            return Err(TaskError::NoWork);
        }
        if self.machines == 0 || self.slots == 0 {
            return Err(TaskError::NoMachines);
        }
        if self.look_ms == 0 {
            return Err(TaskError::NoLook);
        }
        if self.regular.nanos_per_hour() == 0 {
            return Err(TaskError::FreeRegular);
        }
        let needed_ms = self.all_regular_ms();
        if needed_ms > self.deadline_ms {
            return Err(TaskError::ImpossibleDeadline { deadline_ms: self.deadline_ms, needed_ms });
        }
        Ok(())
    }

    /// The time that a job takes with its saves.
    #[must_use]
    pub fn busy_ms(&self) -> u64 {
        let saves = self
            .checkpoint_ms
            .map_or(0, |interval| self.job_ms.saturating_sub(self.first_ms()).div_ceil(interval.get()));
        self.job_ms.saturating_add(saves.saturating_mul(self.save_ms))
    }

    /// The work of the whole batch, without moves and losses.
    #[must_use]
    pub fn work_ms(&self) -> u64 {
        u64::from(self.jobs).div_ceil(self.wave()).saturating_mul(self.busy_ms())
    }

    /// The most jobs that run at a time.
    fn wave(&self) -> u64 {
        u64::from(self.machines) * u64::from(self.slots)
    }

    /// The jobs that run once `done_ms` of the work is done.
    #[must_use]
    pub fn running_at(&self, done_ms: u64) -> u64 {
        let begun = (done_ms / self.busy_ms()).saturating_mul(self.wave());
        u64::from(self.jobs).saturating_sub(begun).min(self.wave())
    }

    /// The time that the batch takes on regular machines alone.
    #[must_use]
    pub fn all_regular_ms(&self) -> u64 {
        self.work_ms().saturating_add(self.move_ms)
    }

    /// The time that the net keeps for `work_left_ms` of work: the work, and two moves by choice, each of which saves
    /// first.
    #[must_use]
    pub fn reserve_ms(&self, work_left_ms: u64) -> u64 {
        let move_ms = self.move_ms.saturating_add(self.leave_ms());
        work_left_ms.saturating_add(move_ms.saturating_mul(2))
    }

    /// The longest time that a move by choice takes on the machine that it leaves: a save.
    #[must_use]
    pub fn leave_ms(&self) -> u64 {
        self.checkpoint_ms.map_or(0, |_| self.save_ms)
    }

    /// The work of `done_ms` that an eviction leaves: finished jobs, and checkpoints of the present ones.
    #[must_use]
    pub fn saved_ms(&self, done_ms: u64) -> u64 {
        let in_job = done_ms % self.busy_ms();
        let Some(cycle) = self.cycle_ms() else { return done_ms - in_job };
        let unsaved_ms = in_job.checked_sub(self.first_save_ends_ms()).map_or(in_job, |later| later % cycle);
        done_ms - unsaved_ms
    }

    /// The run time of one slot in `done_ms` of work: without saves.
    #[must_use]
    pub fn ran_ms(&self, done_ms: u64) -> u64 {
        let (jobs, in_job) = (done_ms / self.busy_ms(), done_ms % self.busy_ms());
        let in_job = self.cycle_ms().zip(self.checkpoint_ms).map_or(in_job, |(cycle, interval)| {
            let first_ms = self.first_ms();
            in_job.checked_sub(self.first_save_ends_ms()).map_or(in_job.min(first_ms), |later| {
                first_ms + later / cycle * interval.get() + (later % cycle).min(interval.get())
            })
        });
        jobs.saturating_mul(self.job_ms).saturating_add(in_job)
    }

    /// The work of a job before its first save: workers count an interval from the beginning of a save to that of the next,
    /// and the first one from the beginning of the job.
    fn first_ms(&self) -> u64 {
        self.cycle_ms().map_or(u64::MAX, NonZeroU64::get)
    }

    fn first_save_ends_ms(&self) -> u64 {
        self.first_ms().saturating_add(self.save_ms)
    }

    /// From the beginning of an interval to that of the next.
    fn cycle_ms(&self) -> Option<NonZeroU64> {
        self.checkpoint_ms.map(|interval| interval.saturating_add(self.save_ms))
    }

    /// The most work that one eviction can lose.
    #[must_use]
    pub fn loss_max_ms(&self) -> u64 {
        let busy_ms = self.busy_ms();
        self.first_save_ends_ms().min(busy_ms)
    }
}

/// A reason why a task can't be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskError {
    /// There is no job, or jobs take no time.
    NoWork,
    /// There is no machine to run on, or no slot.
    NoMachines,
    /// The time between two decisions is zero.
    NoLook,
    /// A regular machine costs nothing, so there is nothing to save.
    FreeRegular,
    /// Regular machines alone take longer than the deadline allows.
    ImpossibleDeadline {
        /// The deadline.
        deadline_ms: u64,
        /// The time that regular machines take.
        needed_ms: u64,
    },
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWork => f.write_str("the task has no work: give at least one job, and its run time"),
            Self::NoMachines => f.write_str("the task has no machine, or no slot on one: give at least one"),
            Self::NoLook => {
                f.write_str("the time between two decisions is zero: give at least a millisecond")
            }
            Self::FreeRegular => {
                f.write_str("the regular price is zero: give the price of a regular machine")
            }
            Self::ImpossibleDeadline { deadline_ms, needed_ms } => write!(
                f,
                "the deadline of {} can't be met: regular machines alone take {}, so allow more time or more machines",
                at_most(*deadline_ms),
                at_least(*needed_ms),
            ),
        }
    }
}

impl std::error::Error for TaskError {}

#[cfg(test)]
mod tests {
    use super::{MINUTE_MS, Task, TaskError};
    use crate::money::Price;

    fn task() -> Task {
        Task::new(Price::from_nanos_per_hour(1), Price::from_nanos_per_hour(3))
    }

    #[test]
    fn an_impossible_deadline_is_refused_with_what_it_takes() {
        let task = Task { jobs: 5, machines: 2, deadline_ms: 180 * MINUTE_MS, ..task() };
        assert_eq!(
            task.check().unwrap_err().to_string(),
            "the deadline of 180 min can't be met: regular machines alone take 186 min, so allow more time \
             or more machines"
        );
        assert_eq!(Task { deadline_ms: 186 * MINUTE_MS, ..task }.check(), Ok(()));
    }

    #[test]
    fn empty_tasks_are_refused() {
        assert_eq!(Task { jobs: 0, ..task() }.check(), Err(TaskError::NoWork));
        assert_eq!(Task { job_ms: 0, ..task() }.check(), Err(TaskError::NoWork));
        assert_eq!(Task { machines: 0, ..task() }.check(), Err(TaskError::NoMachines));
        assert_eq!(Task { slots: 0, ..task() }.check(), Err(TaskError::NoMachines));
        assert_eq!(Task { look_ms: 0, ..task() }.check(), Err(TaskError::NoLook));
        let free = Price::from_nanos_per_hour(0);
        assert_eq!(Task { regular: free, ..task() }.check(), Err(TaskError::FreeRegular));
    }

    #[test]
    fn an_eviction_leaves_finished_jobs_and_checkpoints() {
        let task = task();
        assert_eq!(task.saved_ms(13 * MINUTE_MS), 10 * MINUTE_MS);
        assert_eq!(task.saved_ms(64 * MINUTE_MS), 60 * MINUTE_MS);
        let whole = Task { checkpoint_ms: None, ..task };
        assert_eq!(whole.saved_ms(59 * MINUTE_MS), 0);
        assert_eq!(whole.saved_ms(61 * MINUTE_MS), 60 * MINUTE_MS);
        assert_eq!((task.loss_max_ms(), whole.loss_max_ms()), (5 * MINUTE_MS, 60 * MINUTE_MS));
    }

    #[test]
    fn saves_are_part_of_the_work_but_not_of_what_is_lost() {
        // 60 min have 11 saves of 2 min: after 7 min, and then after 5 min each.
        let task = Task { save_ms: 2 * MINUTE_MS, ..task() };
        assert_eq!((task.busy_ms(), task.work_ms()), (82 * MINUTE_MS, 82 * MINUTE_MS));
        let saved = [8, 9, 15, 16, 22, 23].map(|minutes| task.saved_ms(minutes * MINUTE_MS) / MINUTE_MS);
        assert_eq!(saved, [0, 9, 9, 16, 16, 23]);
        let ran = [4, 7, 8, 9, 15, 81, 82, 86].map(|minutes| task.ran_ms(minutes * MINUTE_MS) / MINUTE_MS);
        assert_eq!(ran, [4, 7, 7, 7, 12, 59, 60, 64]);
        assert_eq!(task.loss_max_ms(), 9 * MINUTE_MS);
        let short = |job_ms| Task { job_ms, ..task }.busy_ms();
        assert_eq!([7, 8].map(|minutes| short(minutes * MINUTE_MS) / MINUTE_MS), [7, 10]);
        assert_eq!(task.reserve_ms(0), 2 * (2 + 6) * MINUTE_MS);
        let whole = Task { checkpoint_ms: None, ..task };
        assert_eq!((whole.work_ms(), whole.reserve_ms(0)), (60 * MINUTE_MS, 12 * MINUTE_MS));
    }

    #[test]
    fn jobs_run_in_every_slot_and_those_left_in_the_last_wave() {
        let task = Task { jobs: 14, machines: 3, slots: 2, ..task() };
        assert_eq!(task.work_ms(), 180 * MINUTE_MS);
        let running = [0, 60, 119, 120, 180].map(|minutes| task.running_at(minutes * MINUTE_MS));
        assert_eq!(running, [6, 6, 6, 2, 0]);
    }
}
