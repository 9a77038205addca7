//! Jobs on slots: received, done, or interrupted.

use rand::Rng;

use super::machine::{Phase, Role, Slot};
use super::model::Work;
use super::pace::Pace;
use super::run::{Event, Run};

impl Work {
    fn pace(&self) -> Pace {
        Pace { save_ms: self.save_ms, interval: self.checkpoint_ms }
    }
}

impl Run<'_> {
    /// Gives an idle slot a job, or lets it wait for one.
    pub(super) fn offer(&mut self, machine: usize, slot: usize) {
        let of_swap = self.machines[machine].role == Role::Swap;
        let epoch = self.machines[machine].epoch;
        let queue = self.jobs.queue(of_swap);
        if let Some(job) = queue.jobs.pop_front() {
            return self.run_job(job, machine, slot);
        }
        queue.free.push((machine, epoch, slot));
        if of_swap {
            self.schedule_idle(machine);
        }
    }

    /// Receives a job that was interrupted: on a slot that waits, or later.
    pub(super) fn receive(&mut self, job: usize) {
        let of_swap = self.jobs.states[job].is_swapped;
        while let Some((machine, epoch, slot)) = self.jobs.queue(of_swap).free.pop() {
            let place = &self.machines[machine];
            if place.epoch == epoch && place.phase == Phase::Working {
                return self.run_job(job, machine, slot);
            }
        }
        self.jobs.queue(of_swap).jobs.push_back(job);
        if of_swap {
            self.request_swap();
        }
    }

    fn run_job(&mut self, job: usize, machine: usize, slot: usize) {
        let work = &self.model.work;
        let (left_ms, is_saved) = (self.jobs.states[job].left_ms, self.jobs.states[job].is_saved);
        let restore_ms = if is_saved { work.restore_ms } else { 0 };
        self.outcome.restores += u64::from(is_saved);
        let done_ms = self.now_ms.saturating_add(restore_ms).saturating_add(work.pace().duration_ms(left_ms));
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
        let (pace, left_ms) = (self.model.work.pace(), self.jobs.states[job].left_ms);
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
        let left_ms = self.jobs.states[job].left_ms;
        let mut progress = work.pace().after(left_ms, elapsed_ms.saturating_sub(restore_ms));
        let mut stopped_ms = self.now_ms;
        let saves_at_last = work.checkpoint_ms.is_some()
            && progress.unsaved_ms > 0
            && lead_ms.is_some_and(|lead_ms| progress.save_left_ms <= lead_ms);
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
        self.count_interruption(job, progress.saved_ms);
        let visible_ms =
            if lead_ms.is_some() { stopped_ms } else { stopped_ms.saturating_add(self.lease_left_ms()) };
        self.schedule(visible_ms, Event::Visible { job });
    }

    fn count_interruption(&mut self, job: usize, saved_ms: u64) {
        let state = &mut self.jobs.states[job];
        state.left_ms -= saved_ms;
        state.is_saved |= saved_ms > 0;
        state.interruptions = if saved_ms > 0 { 1 } else { state.interruptions + 1 };
        if !state.is_swapped && self.strategy.swap.is_some_and(|swap| state.interruptions >= swap.after) {
            self.jobs.move_away(job);
            self.outcome.swaps += 1;
            self.note_empty();
        }
    }

    /// What is left of a lease that is renewed in each third of it.
    fn lease_left_ms(&mut self) -> u64 {
        let lease_ms = self.model.machines.lease_ms;
        self.random.random_range(lease_ms - lease_ms / 3..=lease_ms)
    }
}
