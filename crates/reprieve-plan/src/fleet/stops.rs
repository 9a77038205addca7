//! Evictions, and the other ends of machines.

use super::machine::{Asked, Phase, Role, Slot};
use super::run::{Event, Run};
use super::strategy::Upkeep;
use crate::vm_state::{Input, VmState};

impl Run<'_> {
    /// Evicts a Spot machine that runs: with a notice, if there is one.
    pub(super) fn evict(&mut self, machine: usize, for_price: bool) {
        let place = &self.machines[machine];
        if !place.is_exposed() {
            return;
        }
        let is_booting = place.phase == Phase::Booting;
        self.outcome.evictions += 1;
        self.outcome.price_evictions += u32::from(for_price);
        self.outcome.boot_evictions += u32::from(is_booting);
        self.machines[machine].evicted_for_price = for_price;
        let lead_ms = if is_booting { None } else { self.notice_ms(machine) };
        let lost_ms = self.outcome.time.lost_ms;
        for slot in 0..self.machines[machine].slots.len() {
            self.interrupt(machine, slot, lead_ms);
        }
        self.outcome.unsaved += u64::from(self.outcome.time.lost_ms > lost_ms);
        match lead_ms {
            None => self.leave(machine),
            Some(lead_ms) => {
                let gone_ms = self.now_ms.saturating_add(lead_ms);
                let place = &mut self.machines[machine];
                place.epoch += 1;
                place.phase = Phase::Leaving { gone_ms };
                let epoch = place.epoch;
                self.schedule(gone_ms, Event::Gone { machine, epoch });
            }
        }
    }

    /// The time that a notice leaves; `None` without one. It is the machine's last boot that enables notices.
    fn notice_ms(&self, machine: usize) -> Option<u64> {
        let (notice, place) = (self.model.market.notice?, &self.machines[machine]);
        let is_blind = self.now_ms - place.working_since_ms < notice.blind_ms;
        (!is_blind && place.is_announced).then_some(notice.lead_ms)
    }

    /// Takes an evicted machine away, and asks for another if anybody does.
    pub(super) fn leave(&mut self, machine: usize) {
        self.settle(machine);
        // Also for a price that has fallen again since the notice: that takes nothing back.
        let conditions = self.conditions(false);
        let place = &mut self.machines[machine];
        place.epoch += 1;
        place.phase = Phase::Away;
        place.state = place.state.after(Input::Evict, &conditions);
        if place.state == VmState::Deleted {
            place.disks_since_ms = None;
        }
        self.running -= 1;
        self.spot_running -= 1;
        self.replace(machine);
    }

    fn replace(&mut self, machine: usize) {
        match self.strategy.upkeep {
            Upkeep::Nobody => {}
            Upkeep::Restore { .. } if self.machines[machine].evicted_for_price => {}
            Upkeep::Restore { every_ms, for_ms } => {
                self.machines[machine].restores_until_ms = self.now_ms.saturating_add(for_ms);
                if every_ms <= for_ms {
                    self.request(machine, self.now_ms.saturating_add(every_ms));
                }
            }
            Upkeep::Maintain { delay_ms } | Upkeep::Autoscale { delay_ms, .. } => {
                self.request(machine, self.now_ms.saturating_add(delay_ms));
            }
        }
    }

    /// Bills a machine until now, and counts the time of its slots.
    ///
    /// One with a notice is billed until it is gone. Jobs that still run have lost what is not saved.
    pub(super) fn settle(&mut self, machine: usize) {
        for slot in 0..self.machines[machine].slots.len() {
            self.interrupt(machine, slot, None);
        }
        let place = &self.machines[machine];
        let (from_ms, slots) = (place.allocated_ms, place.slots.len() as u64);
        let to_ms = match place.phase {
            Phase::Leaving { gone_ms } => gone_ms,
            Phase::Away | Phase::Booting | Phase::Working => self.now_ms,
        };
        match place.phase {
            Phase::Away => {}
            Phase::Booting => self.outcome.time.booting_ms += (to_ms - from_ms) * slots,
            Phase::Working | Phase::Leaving { .. } => {
                for slot in &place.slots {
                    if let Slot::Idle { since_ms } = slot {
                        self.outcome.time.idle_ms += to_ms - since_ms;
                    }
                }
            }
        }
        if place.phase != Phase::Away {
            self.outcome.slot_ms += (to_ms - from_ms) * slots;
            self.bill_cores(machine, from_ms, to_ms);
        }
        if let Some(since_ms) = &mut self.machines[machine].disks_since_ms {
            self.outcome.cost.disks += self.model.market.disks.cost(1, to_ms - *since_ms);
            *since_ms = to_ms;
        }
    }

    fn bill_cores(&mut self, machine: usize, from_ms: u64, to_ms: u64) {
        let market = &self.model.market;
        let is_spot = self.machines[machine].role == Role::Spot;
        if is_spot {
            // The price of a Spot machine, whose limit is a regular one's, and never its maximum.
            self.outcome.cost.spot += self.billed.cost(from_ms, to_ms, market.regular);
        } else {
            self.outcome.cost.regular += market.regular.cost(1, to_ms - from_ms);
        }
        self.outcome.add_hours(from_ms, to_ms, is_spot);
    }

    /// Asks for as many machines for moved jobs as there are such jobs, up to the most.
    pub(super) fn request_swap(&mut self) {
        let Some(swap) = self.strategy.swap else { return };
        let slots = self.machines.first().map_or(1, |machine| machine.slots.len()).max(1);
        let mut missing = self.jobs.waiting_for_swap().div_ceil(slots);
        for machine in 0..self.machines.len() {
            let place = &self.machines[machine];
            if place.role != Role::Swap || missing == 0 {
                continue;
            }
            match place.phase {
                // It was asked for, or will take jobs when it has booted.
                Phase::Booting => missing -= 1,
                Phase::Away if place.asked == Asked::Scheduled => missing -= 1,
                Phase::Away => {
                    missing -= 1;
                    self.machines[machine].asked = Asked::Scheduled;
                    self.request(machine, self.now_ms.saturating_add(swap.delay_ms));
                }
                Phase::Working | Phase::Leaving { .. } => {}
            }
        }
    }

    pub(super) fn schedule_idle(&mut self, machine: usize) {
        if let Some(swap) = self.strategy.swap {
            let epoch = self.machines[machine].epoch;
            self.schedule(self.now_ms.saturating_add(swap.lingers_ms), Event::Idle { machine, epoch });
        }
    }

    /// Deletes a machine for moved jobs that has had none for a while.
    pub(super) fn stop_idle(&mut self, machine: usize) {
        let Some(swap) = self.strategy.swap else { return };
        if self.machines[machine].is_idle_since(self.now_ms.saturating_sub(swap.lingers_ms)) {
            self.delete(machine);
        }
    }

    fn delete(&mut self, machine: usize) {
        self.settle(machine);
        let place = &mut self.machines[machine];
        place.epoch += 1;
        place.phase = Phase::Away;
        place.state = VmState::Deleted;
        place.disks_since_ms = None;
    }

    /// The time without a message after which autoscale goes back; zero without it.
    pub(super) const fn lingers_ms(&self) -> u64 {
        match self.strategy.upkeep {
            Upkeep::Autoscale { lingers_ms, .. } => lingers_ms,
            Upkeep::Nobody | Upkeep::Restore { .. } | Upkeep::Maintain { .. } => 0,
        }
    }

    /// Whether autoscale takes the machine away when there is no message: it is above the base.
    pub(super) fn is_scaled(&self, machine: usize) -> bool {
        let is_above = u32::try_from(machine).is_ok_and(|index| index >= self.strategy.mix.base);
        let is_of_fleet = self.machines[machine].role != Role::Swap;
        matches!(self.strategy.upkeep, Upkeep::Autoscale { .. }) && is_above && is_of_fleet
    }

    /// Notes when the fleet's queue becomes empty. Nothing returns to it.
    pub(super) fn note_empty(&mut self) {
        if self.jobs.of_fleet() == 0 && self.empty_since_ms.is_none() {
            self.empty_since_ms = Some(self.now_ms);
            self.schedule(self.now_ms.saturating_add(self.lingers_ms()), Event::ScaleIn);
        }
    }

    /// Deletes the machines above the base. One with a notice goes by itself.
    pub(super) fn scale_in(&mut self) {
        for machine in 0..self.machines.len() {
            let place = &self.machines[machine];
            if self.is_scaled(machine) && matches!(place.phase, Phase::Booting | Phase::Working) {
                let is_spot = place.role == Role::Spot;
                self.delete(machine);
                self.running -= 1;
                self.spot_running -= u32::from(is_spot);
            }
        }
    }
}
