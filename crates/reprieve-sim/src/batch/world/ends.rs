//! Ends of machines: evictions, what follows them, and the end of the batch.

use std::time::Duration;

use reprieve_core::Result;
use reprieve_core::ports::Queue;
use reprieve_plan::fleet::Upkeep;

use super::super::Played;
use super::super::place::{Place, Role, Vm};
use super::{Due, World};

impl World<'_> {
    pub(super) fn evict_some(&mut self, exposed: &[usize], count: usize) {
        for place in self.draws.choose(self.choices, exposed, count) {
            self.evict(place, false);
        }
        self.choices += 1;
    }

    pub(super) fn compare_prices(&mut self) {
        if !self.strategy.max_price.allows(self.model.market.spot.at(self.now_ms())) {
            self.exposed().into_iter().for_each(|place| self.evict(place, true));
        }
    }

    /// Evicts a machine: with a notice if there is one, and its worker is old enough to hear it.
    pub(super) fn evict(&mut self, place: usize, for_price: bool) {
        let (now_ms, notice) = (self.now_ms(), self.model.market.notice);
        let Place { vm: Some(vm), evicted_for_price, .. } = &mut self.places[place] else { return };
        if vm.gone_ms.is_some() {
            return;
        }
        *evicted_for_price = for_price;
        self.played.evictions += 1;
        let start = vm.start;
        let heard = notice.filter(|notice| vm.is_announced && vm.works_for(now_ms) >= Some(notice.blind_ms));
        match (heard, &vm.process) {
            (Some(notice), Some(process)) => {
                process.notice(Duration::from_millis(notice.lead_ms));
                vm.gone_ms = Some(now_ms + notice.lead_ms);
                self.after(notice.lead_ms, Due::Gone { place, start });
            }
            _ => self.leave(place),
        }
    }

    /// Takes an evicted machine away. Who replaces it is part of the strategy.
    pub(super) fn leave(&mut self, place: usize) {
        self.stop(place, self.now_ms());
        match self.strategy.upkeep {
            Upkeep::Nobody => {}
            Upkeep::Restore { .. } if self.places[place].evicted_for_price => {}
            Upkeep::Restore { every_ms, for_ms } => {
                self.places[place].is_stopped = true;
                self.places[place].restores_until_ms = self.now_ms() + for_ms;
                if every_ms <= for_ms {
                    self.after(every_ms, Due::Ask { place });
                }
            }
            Upkeep::Maintain { delay_ms } | Upkeep::Autoscale { delay_ms, .. } => {
                self.after(delay_ms, Due::Ask { place });
            }
        }
    }

    /// Ends a machine, and bills it until `to_ms`.
    fn stop(&mut self, place: usize, to_ms: u64) {
        let role = self.places[place].role;
        let Some(Vm { allocated_ms, gone_ms, process, .. }) = self.places[place].vm.take() else { return };
        if let Some(process) = process {
            process.kill();
        }
        let to_ms = gone_ms.unwrap_or(to_ms);
        let (market, time_ms) = (&self.model.market, to_ms.saturating_sub(allocated_ms));
        self.cost += match role {
            Role::Spot => market.spot.cost(allocated_ms, to_ms, market.regular),
            Role::Regular | Role::Swap => market.regular.cost(1, time_ms),
        };
        self.played.machine_ms += time_ms;
    }

    pub(super) const fn lingers_ms(&self) -> u64 {
        match self.strategy.upkeep {
            Upkeep::Autoscale { lingers_ms, .. } => lingers_ms,
            _ => 0,
        }
    }

    /// Whether autoscale takes the machine of a place away when no message is left: all above the base.
    fn is_scaled(&self, place: usize) -> bool {
        let is_above = u32::try_from(place).is_ok_and(|place| place >= self.strategy.mix.base);
        let is_of_fleet = self.places[place].role != Role::Swap;
        matches!(self.strategy.upkeep, Upkeep::Autoscale { .. }) && is_above && is_of_fleet
    }

    pub(super) fn scale_in(&mut self) {
        for place in 0..self.places.len() {
            if self.is_scaled(place) {
                self.stop(place, self.now_ms());
            }
        }
    }

    /// Asks for machines for the moved jobs that wait, and lets those go that have had none for a while.
    pub(super) fn look_after_swap(&mut self, waiting: u64) {
        let Some(swap) = self.strategy.swap else { return };
        let now_ms = self.now_ms();
        let mut missing = waiting.div_ceil(u64::from(self.model.machines.slots));
        for place in 0..self.places.len() {
            let Place { role: Role::Swap, vm, asked_ms, .. } = &mut self.places[place] else { continue };
            match vm {
                None if missing > 0 => {
                    missing -= 1;
                    if asked_ms.is_none() {
                        *asked_ms = Some(now_ms);
                        self.after(swap.delay_ms, Due::Ask { place });
                    }
                }
                None => {}
                Some(Vm { process: None, .. }) => missing = missing.saturating_sub(1),
                Some(Vm { process: Some(process), .. })
                    if now_ms >= swap.lingers_ms && process.busy.is_idle_since(now_ms - swap.lingers_ms) =>
                {
                    self.stop(place, now_ms);
                }
                Some(_) => {}
            }
        }
    }

    /// Bills the machines that are left, which autoscale lets run on for a while.
    pub(super) async fn end(mut self) -> Result<Played> {
        let end_ms = self.played.finished_ms.map_or(self.model.limit_ms, |at_ms| at_ms + self.lingers_ms());
        let empty_ms = self.empty_ms.map_or(end_ms, |at_ms| at_ms + self.lingers_ms());
        for place in 0..self.places.len() {
            self.stop(place, if self.is_scaled(place) { empty_ms.min(end_ms) } else { end_ms });
        }
        for queue in [&self.shared.queue, &self.shared.calm] {
            self.played.poisoned += queue.depth().await?.poisoned.unwrap_or_default();
        }
        if self.strategy.swap.is_some() {
            self.played.moved = self.shared.moved();
        }
        self.played.cost_micros = u64::try_from(self.cost.micros()).unwrap_or(u64::MAX);
        self.played.note(&self.shared.counts, &self.model.work.jobs_ms);
        Ok(self.played)
    }
}
