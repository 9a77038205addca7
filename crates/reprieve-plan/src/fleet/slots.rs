//! Jobs on slots: received, done, or interrupted.

use rand::Rng;

use super::jobs::{Home, Job};
use super::machine::{Phase, Role, Slot};
use super::model::Work;
use super::pace::Pace;
use super::run::{Event, Run};

/// How long a drain of a worker may take, and for which share of that and of the notice its jobs may save. Then it cuts
/// them off at their last save. (`reprieve_core::deadline` has the same.)
const DRAIN_MS: u64 = 10_000;
const SAVING_PERCENT: u64 = 60;

impl Work {
    fn pace(&self, is_careful: bool) -> Pace {
        Pace {
            save_ms: self.save_ms,
            interval: self.checkpoint_ms,
            is_careful: is_careful && self.is_careful,
        }
    }
}

/// The longest save after a notice that leaves `lead_ms`.
const fn saves_within_ms(lead_ms: u64) -> u64 {
    let whole_ms = if lead_ms < DRAIN_MS { lead_ms } else { DRAIN_MS };
    whole_ms * SAVING_PERCENT / 100
}

impl Run<'_> {
    /// Gives an idle slot a job, or lets it wait for one.
    pub(super) fn offer(&mut self, machine: usize, slot: usize) {
        let of_swap = self.machines[machine].role == Role::Swap;
        let epoch = self.machines[machine].epoch;
        while let Some(job) = self.jobs.queue(of_swap).jobs.pop_front() {
            if self.jobs.states[job].home != Home::Leaving {
                return self.run_job(job, machine, slot);
            }
            self.hand_over(job);
        }
        self.jobs.queue(of_swap).free.push((machine, epoch, slot));
        if of_swap {
            self.schedule_idle(machine);
        }
    }

    /// Receives a job that was interrupted: on a slot that waits, or later.
    pub(super) fn receive(&mut self, job: usize) {
        let of_swap = self.jobs.states[job].home == Home::Regular;
        while let Some((machine, epoch, slot)) = self.jobs.queue(of_swap).free.pop() {
            let place = &self.machines[machine];
            if place.epoch == epoch && place.phase == Phase::Working {
                if self.jobs.states[job].home == Home::Leaving {
                    self.jobs.queue(of_swap).free.push((machine, epoch, slot));
                    return self.hand_over(job);
                }
                return self.run_job(job, machine, slot);
            }
        }
        self.jobs.queue(of_swap).jobs.push_back(job);
        if of_swap {
            self.request_swap();
        }
    }

    /// Moves a job to regular machines. The worker that receives it next does that, however long it waits until then.
    fn hand_over(&mut self, job: usize) {
        self.jobs.move_away(job);
        self.outcome.swaps += 1;
        self.note_empty();
        self.receive(job);
    }

    fn run_job(&mut self, job: usize, machine: usize, slot: usize) {
        let work = &self.model.work;
        let Job { left_ms, is_saved, is_careful, .. } = self.jobs.states[job];
        let restore_ms = if is_saved { work.restore_ms } else { 0 };
        self.outcome.restores += u64::from(is_saved);
        let works_ms = work.pace(is_careful).duration_ms(left_ms);
        let done_ms = self.now_ms.saturating_add(restore_ms).saturating_add(works_ms);
        let place = &mut self.machines[machine];
        if let Slot::Idle { since_ms } = place.slots[slot] {
            self.outcome.time.idle_ms += self.now_ms - since_ms;
        }
        place.slots[slot] = Slot::Busy { since_ms: self.now_ms, restore_ms, job };
        let epoch = place.epoch;
        self.schedule(done_ms, Event::Done { machine, epoch, slot });
    }

    /// Counts a job as done, and offers its slot.
    pub(super) fn complete(&mut self, machine: usize, slot: usize) {
        let Slot::Busy { restore_ms, job, .. } = self.machines[machine].slots[slot] else { return };
        let Job { left_ms, is_careful, .. } = self.jobs.states[job];
        let pace = self.model.work.pace(is_careful);
        self.outcome.time.restoring_ms += restore_ms;
        self.outcome.time.kept_ms += left_ms;
        self.outcome.time.saving_ms += pace.duration_ms(left_ms) - left_ms;
        self.outcome.saves += pace.saves(left_ms);
        self.outcome.done += 1;
        self.jobs.finish(job);
        self.machines[machine].slots[slot] = Slot::Idle { since_ms: self.now_ms };
        self.note_empty();
        self.offer(machine, slot);
    }

    /// Stops the job of a slot, if it has one. With a notice of `lead_ms` the job saves, if it can in that time, and
    /// is released; without one its lease has to end first.
    pub(super) fn interrupt(&mut self, machine: usize, slot: usize, lead_ms: Option<u64>) {
        let Slot::Busy { since_ms, restore_ms, job } = self.machines[machine].slots[slot] else { return };
        let elapsed_ms = self.now_ms - since_ms;
        let work = &self.model.work;
        let Job { left_ms, is_careful, .. } = self.jobs.states[job];
        let mut progress = work.pace(is_careful).after(left_ms, elapsed_ms.saturating_sub(restore_ms));
        let mut stopped_ms = self.now_ms;
        let saves_at_last = work.checkpoint_ms.is_some()
            && progress.unsaved_ms > 0
            && lead_ms.is_some_and(|lead_ms| progress.save_left_ms <= saves_within_ms(lead_ms));
        if saves_at_last {
            stopped_ms += progress.save_left_ms;
            progress.saving_ms += progress.save_left_ms;
            progress.saved_ms += std::mem::take(&mut progress.unsaved_ms);
            progress.saves += 1;
        }
        let time = &mut self.outcome.time;
        time.restoring_ms += elapsed_ms.min(restore_ms);
        time.kept_ms += progress.saved_ms;
        time.lost_ms += progress.unsaved_ms;
        time.saving_ms += progress.saving_ms;
        self.outcome.saves += progress.saves;
        self.outcome.interruptions += 1;
        self.machines[machine].slots[slot] = Slot::Idle { since_ms: stopped_ms };
        self.count_interruption(job, progress.saved_ms, lead_ms.is_none());
        let visible_ms =
            if lead_ms.is_some() { stopped_ms } else { stopped_ms.saturating_add(self.lease_left_ms()) };
        self.schedule(visible_ms, Event::Visible { job });
    }

    fn count_interruption(&mut self, job: usize, saved_ms: u64, is_death: bool) {
        let state = &mut self.jobs.states[job];
        state.left_ms -= saved_ms;
        state.is_saved |= saved_ms > 0;
        // Those since it last saved something: a death comes after that, and a notice's end with it.
        if saved_ms > 0 {
            (state.interruptions, state.is_careful) = (0, false);
        }
        state.interruptions += u32::from(is_death || saved_ms == 0);
        state.is_careful |= is_death;
        if state.home != Home::Regular {
            let is_enough = self.strategy.swap.is_some_and(|swap| state.interruptions >= swap.after);
            state.home = if is_enough { Home::Leaving } else { Home::Fleet };
        }
    }

    /// What is left of a lease that is renewed in each third of it.
    fn lease_left_ms(&mut self) -> u64 {
        let lease_ms = self.model.machines.lease_ms;
        self.random.random_range(lease_ms - lease_ms / 3..=lease_ms)
    }
}
