//! One run: events in the order of their time.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_chacha::ChaCha8Rng;

use super::draws::{Draws, Losing};
use super::jobs::Jobs;
use super::machine::{Machine, Role};
use super::model::{Evictions, Model};
use super::outcome::Outcome;
use super::prices::PriceSteps;
use super::strategy::{Strategy, Upkeep};
use crate::vm_state::MaxPrice;

/// Runs the jobs of `model` under `strategy` once.
///
/// The same seed gives the same result, and the same [`Draws`] for all strategies: how long each machine boots and
/// lives, the moment of a series at which it begins, and when how large a share of the machines is lost together.
/// `model` and `strategy` must have passed their checks.
#[must_use]
pub fn simulate(model: &Model, strategy: &Strategy, seed: u64) -> Outcome {
    simulate_within(model, strategy, seed, u64::MAX)
}

/// Likewise, but gives up beyond so many events: the outcome of such a run has more, and says nothing else.
pub(crate) fn simulate_within(model: &Model, strategy: &Strategy, seed: u64, events_max: u64) -> Outcome {
    let mut run = Run::new(model, strategy, seed);
    run.begin();
    while !run.jobs.are_done() && !run.is_stuck() && run.scheduled <= events_max {
        let Some(Reverse(next)) = run.events.pop() else { break };
        if next.at_ms > model.limit_ms {
            break;
        }
        run.now_ms = next.at_ms;
        run.handle(next.event);
    }
    run.end()
}

/// What happens at a moment. An event of a machine whose epoch has passed is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A machine is asked for.
    Request { machine: usize },
    /// A machine has booted.
    Ready { machine: usize, epoch: u32 },
    /// A job is done.
    Done { machine: usize, epoch: u32, slot: usize },
    /// The life of a machine ends.
    Evict { machine: usize, epoch: u32 },
    /// A machine with a notice is gone.
    Gone { machine: usize, epoch: u32 },
    /// The fleet's queue has been empty for as long as autoscale waits.
    ScaleIn,
    /// A machine for moved jobs may be idle.
    Idle { machine: usize, epoch: u32 },
    /// An interrupted job can be received again.
    Visible { job: usize },
    /// A share of the machines is lost.
    Burst,
    /// The Spot price rises above the maximum.
    Price,
    /// The number of machines that can be had changes.
    Capacity { most: u32 },
}

impl Event {
    /// Its place among the events of one moment: a job that is done then is not lost, and a machine that is asked for then
    /// finds the market as it is from then on.
    const fn rank(self) -> Rank {
        match self {
            Self::Done { .. } => Rank::Done,
            Self::Price | Self::Capacity { .. } => Rank::Market,
            _ => Rank::Other,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Done,
    Market,
    Other,
}

/// An event with its time. Of one moment and rank, the one that was scheduled first comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled {
    at_ms: u64,
    rank: Rank,
    number: u64,
    event: Event,
}

/// A run at one moment.
pub(super) struct Run<'a> {
    pub(super) model: &'a Model,
    pub(super) strategy: &'a Strategy,
    pub(super) now_ms: u64,
    pub(super) machines: Vec<Machine>,
    pub(super) jobs: Jobs,
    /// The requests that are scheduled.
    pub(super) requested: u32,
    /// The machines of the fleet that run, and those of them that are Spot.
    pub(super) running: u32,
    pub(super) spot_running: u32,
    /// The most Spot machines that can be had.
    pub(super) capacity: u32,
    /// What Spot machines cost: no more than regular ones.
    pub(super) billed: Cow<'a, PriceSteps>,
    pub(super) draws: Draws,
    pub(super) random: ChaCha8Rng,
    pub(super) outcome: Outcome,
    /// Since when the fleet's queue is empty; moved jobs may be left.
    pub(super) empty_since_ms: Option<u64>,
    /// The rest of the series, as changes of the capacity.
    capacities: Option<Box<dyn Iterator<Item = (u64, u32)> + 'a>>,
    /// The next loss, and how many times several machines were evicted at once.
    losing: Option<Losing>,
    losses: u32,
    choices: u32,
    events: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
}

impl<'a> Run<'a> {
    fn new(model: &'a Model, strategy: &'a Strategy, seed: u64) -> Self {
        let draws = Draws::new(seed);
        Self {
            model,
            strategy,
            now_ms: 0,
            machines: Vec::new(),
            jobs: Jobs::new(&model.work.jobs_ms),
            requested: 0,
            running: 0,
            spot_running: 0,
            capacity: u32::MAX,
            billed: model.market.spot.up_to(model.market.regular),
            random: draws.others(),
            draws,
            outcome: Outcome::default(),
            empty_since_ms: None,
            capacities: None,
            losing: None,
            losses: 0,
            choices: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
        }
    }

    pub(super) fn schedule(&mut self, at_ms: u64, event: Event) {
        self.scheduled += 1;
        let rank = event.rank();
        self.events.push(Reverse(Scheduled { at_ms, rank, number: self.scheduled, event }));
    }

    /// Makes the places of the fleet, and asks for machines.
    fn begin(&mut self) {
        let (wanted, delay_ms) = match self.strategy.upkeep {
            Upkeep::Autoscale { delay_ms, .. } => (self.wanted(), delay_ms),
            Upkeep::Nobody | Upkeep::Restore { .. } | Upkeep::Maintain { .. } => (self.strategy.instances, 0),
        };
        let (regular, _) = self.strategy.mix.split(wanted);
        self.begin_market();
        for index in 0..wanted {
            let role = if index < regular { Role::Regular } else { Role::Spot };
            self.machines.push(Machine::new(role, self.model.machines.slots));
            // The base is there whatever the messages are.
            let at_ms = if index < self.strategy.mix.base { 0 } else { delay_ms };
            self.request(self.machines.len() - 1, at_ms);
        }
        for _ in 0..self.strategy.swap.map_or(0, |swap| swap.instances) {
            self.machines.push(Machine::new(Role::Swap, self.model.machines.slots));
        }
    }

    fn begin_market(&mut self) {
        let model = self.model;
        match &model.market.evictions {
            Evictions::Each(_) => {}
            Evictions::Together(_) => self.schedule_burst(),
            Evictions::Capacity(series) => {
                let start_ms = self.draws.begins_ms(series);
                let mut counts = series.counts_from(start_ms);
                self.capacity = counts.next().map_or(0, |(_, count)| count);
                self.capacities = Some(Box::new(counts));
                self.schedule_capacity();
            }
        }
        if let MaxPrice::Of(most) = self.strategy.max_price {
            for at_ms in model.market.spot.rises_above(most) {
                self.schedule(at_ms, Event::Price);
            }
        }
    }

    fn schedule_capacity(&mut self) {
        if let Some((at_ms, most)) = self.capacities.as_mut().and_then(Iterator::next) {
            self.schedule(at_ms, Event::Capacity { most });
        }
    }

    fn schedule_burst(&mut self) {
        if let Evictions::Together(bursts) = &self.model.market.evictions {
            let (after_ms, losing) = self.draws.loss(bursts, self.losses);
            (self.losing, self.losses) = (Some(losing), self.losses + 1);
            self.schedule(self.now_ms.saturating_add(after_ms), Event::Burst);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request { machine } => self.start(machine),
            Event::Ready { machine, epoch } if self.is_present(machine, epoch) => self.boot(machine),
            Event::Done { machine, epoch, slot } if self.is_present(machine, epoch) => {
                self.complete(machine, slot);
            }
            Event::Evict { machine, epoch } if self.is_present(machine, epoch) => self.evict(machine, false),
            Event::Gone { machine, epoch } if self.is_present(machine, epoch) => self.leave(machine),
            Event::Idle { machine, epoch } if self.is_present(machine, epoch) => self.stop_idle(machine),
            Event::Ready { .. }
            | Event::Done { .. }
            | Event::Evict { .. }
            | Event::Gone { .. }
            | Event::Idle { .. } => {}
            Event::ScaleIn => self.scale_in(),
            Event::Visible { job } => self.receive(job),
            Event::Burst => self.burst(),
            Event::Price => self.compare_prices(),
            Event::Capacity { most } => self.limit(most),
        }
    }

    fn is_present(&self, machine: usize, epoch: u32) -> bool {
        self.machines[machine].epoch == epoch
    }

    /// Loses a share of the Spot machines.
    fn burst(&mut self) {
        let exposed = self.exposed().count();
        self.evict_some(self.losing.map_or(0, |losing| losing.of(exposed)));
        self.schedule_burst();
    }

    fn limit(&mut self, most: u32) {
        self.capacity = most;
        // Most changes of a long series evict nobody.
        if self.spot_running <= most {
            self.choices += 1;
            return self.schedule_capacity();
        }
        self.count_looks();
        let surplus = self.exposed().skip(usize::try_from(most).unwrap_or(usize::MAX)).count();
        self.evict_some(surplus);
        self.schedule_capacity();
    }

    /// The machines that can be evicted. One with a notice goes already.
    fn exposed(&self) -> impl Iterator<Item = usize> {
        self.machines.iter().enumerate().filter(|(_, machine)| machine.is_exposed()).map(|(index, _)| index)
    }

    fn evict_some(&mut self, count: usize) {
        let exposed: Vec<_> = self.exposed().collect();
        for machine in self.draws.choose(self.choices, &exposed, count) {
            self.evict(machine, false);
        }
        self.choices += 1;
    }

    /// Evicts the machines whose maximum the price has passed.
    fn compare_prices(&mut self) {
        if self.spot_running == 0 {
            return;
        }
        self.count_looks();
        for machine in 0..self.machines.len() {
            if self.machines[machine].is_exposed() {
                self.evict(machine, true);
            }
        }
    }

    /// To look at so many machines takes as long as an event.
    const fn count_looks(&mut self) {
        self.scheduled += self.machines.len() as u64 / 32;
    }

    /// Whether no machine is left that could do the jobs, and none will come.
    fn is_stuck(&self) -> bool {
        self.running == 0 && self.requested == 0 && self.strategy.swap.is_none()
    }

    /// Bills what is left, and returns the result. Autoscale lets machines run on for a while.
    fn end(mut self) -> Outcome {
        let finished_ms = self.jobs.are_done().then_some(self.now_ms);
        let end_ms = finished_ms.map_or(self.model.limit_ms, |at_ms| at_ms.saturating_add(self.lingers_ms()));
        let empty_ms = self.empty_since_ms.map_or(end_ms, |at_ms| at_ms.saturating_add(self.lingers_ms()));
        for machine in 0..self.machines.len() {
            let is_scaled = self.is_scaled(machine);
            self.now_ms = if is_scaled { empty_ms.min(end_ms) } else { end_ms };
            self.settle(machine);
        }
        self.outcome.finished_ms = finished_ms;
        self.outcome.events = self.scheduled;
        self.outcome.cost.always = self.model.market.always.cost(1, end_ms);
        self.outcome.cost.saves = self.model.work.save_cost.times(self.outcome.saves);
        let moved = self.outcome.saves.saturating_add(self.outcome.restores);
        self.outcome.cost.traffic = self.model.work.traffic_cost.times(moved);
        self.outcome
    }
}
