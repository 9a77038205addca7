//! Requests for machines, and their boots.

use super::machine::{Asked, Machine, Phase, Role, Slot};
use super::run::{Event, Run};
use super::strategy::Upkeep;
use crate::vm_state::{Conditions, Input, VmState};

impl Run<'_> {
    /// The machines that autoscale wants: one for each slot's worth of messages of the fleet's queue, leased ones
    /// included.
    pub(super) fn wanted(&self) -> u32 {
        let needed = self.jobs.of_fleet().div_ceil(u64::from(self.model.machines.slots));
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        needed.max(self.strategy.mix.base).min(self.strategy.instances)
    }

    pub(super) fn request(&mut self, machine: usize, at_ms: u64) {
        self.requested += 1;
        self.schedule(at_ms, Event::Request { machine });
    }

    /// Starts a machine, or tries again later.
    pub(super) fn start(&mut self, machine: usize) {
        self.requested -= 1;
        if !self.is_wanted(machine) {
            return;
        }
        let state = self.machines[machine].state;
        let is_admitted = match self.machines[machine].role {
            Role::Regular | Role::Swap => true,
            Role::Spot => {
                let input = if state == VmState::Stopped { Input::Restart } else { Input::Deploy };
                let capacity = self.has_capacity(machine);
                let conditions = self.conditions(capacity);
                state.after(input, &conditions) == VmState::Running
            }
        };
        if is_admitted {
            self.allocate(machine);
        } else {
            self.outcome.refusals += 1;
            self.machines[machine].asked = Asked::Refused;
            self.count_quota();
            self.try_later(machine);
        }
    }

    /// Whether anybody still wants the machine. Autoscale wants fewer as messages become fewer.
    fn is_wanted(&self, machine: usize) -> bool {
        match (self.machines[machine].role, self.strategy.upkeep) {
            (Role::Spot | Role::Regular, Upkeep::Autoscale { .. }) => self.running < self.wanted(),
            (Role::Spot | Role::Regular | Role::Swap, _) => true,
        }
    }

    /// What a Spot machine meets now.
    pub(super) fn conditions(&self, capacity: bool) -> Conditions {
        Conditions {
            max_price: self.strategy.max_price,
            price: self.model.market.spot.at(self.now_ms),
            capacity,
            policy: self.strategy.policy,
        }
    }

    fn has_capacity(&mut self, machine: usize) -> bool {
        let place = &mut self.machines[machine];
        place.requests += 1;
        self.spot_running < self.capacity
            && !self.draws.is_refused(self.model.market.refused, machine, place.requests)
    }

    /// Azure tries to restore a machine for a while; everybody else tries until there is one.
    fn try_later(&mut self, machine: usize) {
        let restores = match self.strategy.upkeep {
            Upkeep::Restore { every_ms, .. } if self.machines[machine].state == VmState::Stopped => {
                Some(every_ms)
            }
            _ => None,
        };
        let at_ms = self.now_ms.saturating_add(restores.unwrap_or(self.model.market.retry_ms));
        if restores.is_none() || at_ms <= self.machines[machine].restores_until_ms {
            self.request(machine, at_ms);
        }
    }

    fn allocate(&mut self, machine: usize) {
        let now_ms = self.now_ms;
        let fate = self.draws.fate(self.model, machine, self.machines[machine].starts);
        let place = &mut self.machines[machine];
        place.epoch += 1;
        place.starts += 1;
        place.is_announced = fate.is_announced;
        place.phase = Phase::Booting;
        place.asked = Asked::Not;
        place.state = VmState::Running;
        place.allocated_ms = now_ms;
        place.disks_since_ms.get_or_insert(now_ms);
        let (epoch, role) = (place.epoch, place.role);
        if role != Role::Swap {
            self.running += 1;
        }
        if role == Role::Spot {
            self.spot_running += 1;
            // A life begins with the allocation, so that it may end during the boot.
            if let Some(lives_ms) = fate.lives_ms {
                self.schedule(now_ms.saturating_add(lives_ms), Event::Evict { machine, epoch });
            }
        }
        self.count_quota();
        self.schedule(now_ms.saturating_add(fate.boot_ms), Event::Ready { machine, epoch });
    }

    /// Counts what the quota has to allow: also machines that the market did not give, since it may do so at any time.
    fn count_quota(&mut self) {
        // More than all there are, there never are.
        let most = u64::from(self.outcome.spot_quota) + u64::from(self.outcome.regular_quota);
        if most >= self.machines.len() as u64 {
            return;
        }
        let (mut spot, mut regular) = (0, 0);
        let counts = |machine: &&Machine| machine.state.holds_disks() || machine.asked == Asked::Refused;
        for machine in self.machines.iter().filter(counts) {
            if machine.role == Role::Spot { spot += 1 } else { regular += 1 }
        }
        self.outcome.spot_quota = self.outcome.spot_quota.max(spot);
        self.outcome.regular_quota = self.outcome.regular_quota.max(regular);
    }

    /// Lets a machine that has booted take jobs.
    pub(super) fn boot(&mut self, machine: usize) {
        let (now_ms, place) = (self.now_ms, &mut self.machines[machine]);
        let booting_ms = (now_ms - place.allocated_ms) * place.slots.len() as u64;
        self.outcome.time.booting_ms += booting_ms;
        place.phase = Phase::Working;
        place.working_since_ms = now_ms;
        place.slots.fill(Slot::Idle { since_ms: now_ms });
        for slot in 0..self.machines[machine].slots.len() {
            self.offer(machine, slot);
        }
    }
}
