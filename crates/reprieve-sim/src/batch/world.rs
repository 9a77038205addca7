//! Plays a batch: asks for machines, boots them, takes them away, and replaces them, until the jobs are done.
//!
//! It follows the strategy as docs/planning.md describes it, and shares no code with the model but what chance decides
//! and what machines cost. What the model says of jobs is left to the workers.

mod ends;

use std::collections::BTreeMap;
use std::time::Duration;

use reprieve_core::envelope::{Data, Envelope};
use reprieve_core::ports::{NewMessage, Queue};
use reprieve_core::{Error, ErrorKind, JobId, Result};
use reprieve_plan::Cost;
use reprieve_plan::fleet::{Draws, Evictions, Losing, Model, Strategy, Upkeep};
use serde_json::value::to_raw_value;
use tokio::time::{Instant, advance, sleep, sleep_until};

use super::jobs::{KIND, Work, whole_ms};
use super::place::{Place, Role, Vm};
use super::process::{Process, SetUp, Shared};
use super::{Played, places};

/// How often to look at the queues; also while they can't be empty soon.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_EARLY: Duration = Duration::from_secs(15);

/// How far the clock jumps at most while jobs compute and nothing else happens: far below a lease, which is renewed
/// when a third of it is over. It stops this long before anything is due, and goes on as usual.
pub(super) const JUMP_MS: u64 = 15_000;
const AHEAD_MS: u64 = 200;

/// How long the clock goes as usual before that is looked at again.
const AGAIN_MS: u64 = 500;

/// What is due. What concerns a machine names its start, and is void after another.
#[derive(Debug, Clone, Copy)]
enum Due {
    Ask { place: usize },
    Booted { place: usize, start: u32 },
    LifeEnds { place: usize, start: u32 },
    Gone { place: usize, start: u32 },
    Loss { losing: Losing },
    Price,
    Capacity { most: u32 },
    ScaleIn,
    Look,
}

/// A world at one moment. Times are milliseconds since it began.
pub(super) struct World<'a> {
    model: &'a Model,
    strategy: &'a Strategy,
    draws: Draws,
    set_up: SetUp,
    /// How far the clock jumps at most; zero if it never does.
    jump_ms: u64,
    shared: Shared,
    began: Instant,
    places: Vec<Place>,
    due: BTreeMap<(u64, u64), Due>,
    scheduled: u64,
    /// The most Spot machines that can be had, and how that goes on.
    capacity: u32,
    capacities: Box<dyn Iterator<Item = (u64, u32)> + 'a>,
    losses: u32,
    choices: u32,
    /// When the fleet's queue became empty.
    empty_ms: Option<u64>,
    processes: u32,
    played: Played,
    cost: Cost,
}

impl<'a> World<'a> {
    pub(super) fn new(model: &'a Model, strategy: &'a Strategy, seed: u64, jump_ms: u64) -> Self {
        let began = Instant::now();
        Self {
            model,
            strategy,
            draws: Draws::new(seed),
            set_up: SetUp::new(model, strategy, seed),
            jump_ms,
            shared: Shared::begin(began),
            began,
            places: Vec::new(),
            due: BTreeMap::new(),
            scheduled: 0,
            capacity: u32::MAX,
            capacities: Box::new(std::iter::empty()),
            losses: 0,
            choices: 0,
            empty_ms: None,
            processes: 0,
            played: Played::default(),
            cost: Cost::default(),
        }
    }

    /// Plays it until no message is left, or until the model's limit.
    pub(super) async fn play(mut self) -> Result<Played> {
        self.send().await?;
        self.begin();
        while let Some(((at_ms, _), due)) = self.due.pop_first() {
            if at_ms > self.model.limit_ms {
                break;
            }
            self.reach(at_ms).await;
            if self.happen(due).await? {
                self.played.finished_ms = Some(self.now_ms());
                break;
            }
        }
        self.end().await
    }

    fn now_ms(&self) -> u64 {
        whole_ms(self.began.elapsed())
    }

    /// Goes to this time: as usual, or by jumps while all machines boot or compute.
    async fn reach(&self, at_ms: u64) {
        while self.now_ms() < at_ms {
            let now_ms = self.now_ms();
            let quiet_ms =
                self.quiet_until_ms().min(at_ms).saturating_sub(AHEAD_MS).min(now_ms + self.jump_ms);
            if quiet_ms > now_ms + AHEAD_MS {
                advance(Duration::from_millis(quiet_ms - now_ms)).await;
                // All that was due is done before the clock goes on.
                sleep(Duration::from_millis(1)).await;
            } else {
                let at_ms = at_ms.min(now_ms + AGAIN_MS);
                sleep_until(self.began + Duration::from_millis(at_ms)).await;
            }
        }
    }

    /// Until when no job does anything but compute, and no machine has a slot that is free; now, if that is not so.
    fn quiet_until_ms(&self) -> u64 {
        let slots = self.set_up.settings.concurrency;
        let quiet_ms = |place: &Place| match &place.vm {
            None | Some(Vm { process: None, .. }) => u64::MAX,
            Some(Vm { gone_ms: Some(_), .. }) => 0,
            Some(Vm { process: Some(process), .. }) => process.busy.computes_until_ms(slots).unwrap_or(0),
        };
        self.places.iter().map(quiet_ms).min().unwrap_or(0)
    }

    fn at(&mut self, at_ms: u64, due: Due) {
        self.scheduled += 1;
        self.due.insert((at_ms, self.scheduled), due);
    }

    fn after(&mut self, delay_ms: u64, due: Due) {
        self.at(self.now_ms().saturating_add(delay_ms), due);
    }

    async fn send(&self) -> Result<()> {
        let no_json = |error| Error::new(ErrorKind::Internal, "send a job", "no JSON").with_source(error);
        let is_cut = self.model.work.checkpoint_ms.is_some();
        let mut messages = Vec::new();
        for (number, ms) in self.model.work.jobs_ms.iter().enumerate() {
            let args = to_raw_value(&Work { ms: *ms, is_cut }).map_err(no_json)?;
            let job = JobId::parse(format!("{KIND}-{number}"))?;
            let body = Envelope::new(job, KIND, Data::Inline(args)).to_body();
            messages.push(NewMessage { body, delay: Duration::ZERO });
        }
        self.shared.queue.send(messages).await.map(drop)
    }

    fn begin(&mut self) {
        let jobs = self.model.work.jobs_ms.len() as u64;
        let (wanted, delay_ms) = match self.strategy.upkeep {
            Upkeep::Autoscale { delay_ms, .. } => (self.wanted(jobs), delay_ms),
            _ => (self.strategy.instances, 0),
        };
        let (regular, spot) = self.strategy.mix.split(wanted);
        self.places = places(regular, spot, self.strategy.swap.map_or(0, |swap| swap.instances));
        for place in 0..wanted {
            // The base is there whatever the messages are.
            let at_ms = if place < self.strategy.mix.base { 0 } else { delay_ms };
            self.at(at_ms, Due::Ask { place: usize::try_from(place).unwrap_or_default() });
        }
        match &self.model.market.evictions {
            Evictions::Each(_) => {}
            Evictions::Together(_) => self.schedule_loss(),
            Evictions::Capacity(series) => {
                self.capacities = Box::new(series.counts_from(self.draws.begins_ms(series)));
                self.capacity = self.capacities.next().map_or(0, |(_, most)| most);
                self.schedule_capacity();
            }
        }
        for at_ms in self.model.market.spot.changes() {
            self.at(at_ms, Due::Price);
        }
        self.after(whole_ms(LOOK), Due::Look);
    }

    fn schedule_loss(&mut self) {
        if let Evictions::Together(bursts) = &self.model.market.evictions {
            let (after_ms, losing) = self.draws.loss(bursts, self.losses);
            self.losses += 1;
            self.after(after_ms, Due::Loss { losing });
        }
    }

    fn schedule_capacity(&mut self) {
        if let Some((at_ms, most)) = self.capacities.next() {
            self.at(at_ms, Due::Capacity { most });
        }
    }

    /// The machines that autoscale wants for so many messages.
    fn wanted(&self, messages: u64) -> u32 {
        let needed = messages.div_ceil(u64::from(self.model.machines.slots));
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        needed.max(self.strategy.mix.base).min(self.strategy.instances)
    }

    /// Does what is due. Returns whether no message is left.
    async fn happen(&mut self, due: Due) -> Result<bool> {
        match due {
            Due::Ask { place } => self.ask(place).await?,
            Due::Booted { place, start } if self.is_present(place, start) => self.booted(place)?,
            Due::LifeEnds { place, start } if self.is_present(place, start) => self.evict(place, false),
            Due::Gone { place, start } if self.is_present(place, start) => self.leave(place),
            Due::Booted { .. } | Due::LifeEnds { .. } | Due::Gone { .. } => {}
            Due::Loss { losing } => {
                let exposed = self.exposed();
                self.evict_some(&exposed, losing.of(exposed.len()));
                self.schedule_loss();
            }
            Due::Price => self.compare_prices(),
            Due::Capacity { most } => {
                self.capacity = most;
                let exposed = self.exposed();
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                self.evict_some(&exposed, exposed.len().saturating_sub(most));
                self.schedule_capacity();
            }
            Due::ScaleIn => self.scale_in(),
            Due::Look => return self.look().await,
        }
        Ok(false)
    }

    fn is_present(&self, place: usize, start: u32) -> bool {
        self.places[place].vm.as_ref().is_some_and(|vm| vm.start == start)
    }

    /// The places with a machine that can be evicted: a Spot machine without a notice.
    fn exposed(&self) -> Vec<usize> {
        let exposed = |place: &Place| {
            place.role == Role::Spot && place.vm.as_ref().is_some_and(|vm| vm.gone_ms.is_none())
        };
        (0..self.places.len()).filter(|place| exposed(&self.places[*place])).collect()
    }

    fn running(&self, is_it: impl Fn(Role) -> bool) -> u32 {
        let running = self.places.iter().filter(|place| place.vm.is_some() && is_it(place.role)).count();
        u32::try_from(running).unwrap_or(u32::MAX)
    }

    /// Asks for a machine. Without one, it asks again later.
    async fn ask(&mut self, place: usize) -> Result<()> {
        let role = self.places[place].role;
        if matches!(self.strategy.upkeep, Upkeep::Autoscale { .. }) && role != Role::Swap {
            let messages = self.shared.queue.depth().await?.total;
            if self.running(|role| role != Role::Swap) >= self.wanted(messages) {
                return Ok(());
            }
        }
        if role != Role::Spot || self.is_admitted(place) {
            self.allocate(place);
            return Ok(());
        }
        self.played.refusals += 1;
        let restored = match self.strategy.upkeep {
            Upkeep::Restore { every_ms, .. } if self.places[place].is_stopped => Some(every_ms),
            _ => None,
        };
        let delay_ms = restored.unwrap_or(self.model.market.retry_ms);
        if restored.is_none() || self.now_ms() + delay_ms <= self.places[place].restores_until_ms {
            self.after(delay_ms, Due::Ask { place });
        }
        Ok(())
    }

    /// Whether Azure starts a Spot machine: by the price and the capacity.
    fn is_admitted(&mut self, place: usize) -> bool {
        self.places[place].requests += 1;
        let request = self.places[place].requests;
        self.strategy.max_price.allows(self.model.market.spot.at(self.now_ms()))
            && self.running(|role| role == Role::Spot) < self.capacity
            && !self.draws.is_refused(self.model.market.refused, place, request)
    }

    fn allocate(&mut self, place: usize) {
        let (now_ms, start) = (self.now_ms(), self.places[place].starts);
        let fate = self.draws.fate(self.model, place, start);
        self.places[place].allocate(now_ms, fate.is_announced);
        self.after(fate.boot_ms, Due::Booted { place, start });
        if let Some(lives_ms) = fate.lives_ms.filter(|_| self.places[place].role == Role::Spot) {
            self.after(lives_ms, Due::LifeEnds { place, start });
        }
    }

    fn booted(&mut self, place: usize) -> Result<()> {
        let now_ms = self.now_ms();
        let Place { role, vm: Some(vm), .. } = &mut self.places[place] else { return Ok(()) };
        self.processes += 1;
        let process = Process::start(self.processes, *role == Role::Swap, &self.shared, &self.set_up)?;
        process.busy.begin(now_ms);
        (vm.process, vm.works_since_ms) = (Some(process), Some(now_ms));
        Ok(())
    }

    /// Looks at the queues. Returns whether both are empty.
    async fn look(&mut self) -> Result<bool> {
        let (fleet, calm) = (self.shared.queue.depth().await?, self.shared.calm.depth().await?);
        let now_ms = self.now_ms();
        if fleet.total == 0 && self.empty_ms.is_none() {
            self.empty_ms = Some(now_ms);
            self.after(self.lingers_ms(), Due::ScaleIn);
        }
        if fleet.total + calm.total == 0 {
            return Ok(true);
        }
        self.look_after_swap(calm.ready.unwrap_or_default());
        let places = u64::from(self.strategy.instances) * u64::from(self.model.machines.slots);
        let is_early = self.strategy.swap.is_none() && fleet.total > places;
        self.after(whole_ms(if is_early { LOOK_EARLY } else { LOOK }), Due::Look);
        Ok(false)
    }
}
