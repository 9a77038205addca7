//! Fleets whose machines are taken back by a known law, with real workers that write the ledger, on a paused clock:
//! the band of the ledger's survival curve must hold the law's own curve.
//!
//! Nearly nothing happens between two evictions, so the clock jumps there, as for a machine that is frozen. It goes as
//! usual around each event. Leases are longer than any jump.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::ledger::{Ledger, Machine, Summary};
use reprieve_core::memory::{self, ManualNotices};
use reprieve_core::ports::Store;
use reprieve_core::process::Gate;
use reprieve_core::worker::{Settings, Stopper, Worker, stopping};
use reprieve_core::{
    Job, JobContext, JobError, NewJob, Notice, NoticeKind, Producer, Result, Step, WorkerId, clock,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use crate::fleet::paused_runtime;

/// The ages at which the curve is compared, in hours.
pub const AGES_H: [u32; 3] = [1, 6, 12];

/// How many of a hundred fleets the band must hold the true curve in, at each age.
pub const HELD_PERCENT: usize = 90;

/// The machines that run at once, and for how long they are watched.
const SLOTS: usize = 20;
const LASTS: Duration = Duration::from_hours(72);

/// The law, in events per hour: machines end alone, and at moments that strike a part of those that live. From both
/// follows how long a machine lives: by an exponential distribution, whatever its age.
const ALONE: f64 = 1.0 / 40.0;
const MOMENTS: f64 = 1.0 / 8.0;
const SHARE: f64 = 0.4;

/// The share of evictions that nothing announces.
const UNHEARD: f64 = 0.2;
const NOTICE: Duration = Duration::from_secs(30);

/// From an eviction to the boot of the next machine, and from there to the start of its worker.
const BOOTS_AFTER: Duration = Duration::from_mins(2);
const STARTS_AFTER: Duration = Duration::from_secs(45);

/// The longest jump of the clock, and a lease that outlasts several.
const JUMP: Duration = Duration::from_mins(20);
const LEASE: Duration = Duration::from_hours(2);

/// How long before an event the clock stops, so that each worker has reported of late.
const REPORTED: Duration = Duration::from_secs(12);

/// How long the clock goes as usual after an event.
const SETTLES: Duration = Duration::from_millis(1_500);

/// More jobs than slots, so that every worker always has one: a worker that dies without one is not missed.
const JOBS: usize = SLOTS + 10;

/// A job without an end.
struct Stay;

#[async_trait::async_trait]
impl Job for Stay {
    const KIND: &'static str = "stay";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(
        &self,
        cx: &JobContext,
        (): &(),
        steps: u32,
    ) -> std::result::Result<Step<u32, ()>, JobError> {
        // The first step is saved, so that the job's record names its worker.
        if cx.steps() > 0 {
            cx.interrupted().await;
        }
        Ok(Step::Continue(steps + 1))
    }
}

/// A machine, and the worker on it.
struct Vm {
    booted_unix_ms: i64,
    worker: Option<Running>,
}

struct Running {
    gate: Gate,
    notices: ManualNotices,
    task: JoinHandle<()>,
    _stopper: Stopper,
}

impl Running {
    fn kill(&self) {
        self.gate.freeze();
        self.task.abort();
    }
}

/// What happens to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Report,
    Notice,
    Evict,
    Boot,
    Start,
}

/// A time, a slot, and what is due.
type Event = (Duration, Due, usize);

struct Fleet {
    store: Store,
    began: Instant,
    slots: Vec<Option<Vm>>,
    boots: u32,
}

/// Plays the fleet of `seed` on this thread. Returns for each of [`AGES_H`] whether the band of the ledger's curve holds
/// the true share of machines that live for longer.
///
/// # Errors
/// Fails when a runtime or a worker can't be set up, which no seed should cause.
pub fn holds(seed: u64) -> Result<[bool; AGES_H.len()]> {
    let runtime = paused_runtime(seed)?;
    let _entered = runtime.enter();
    let summary = runtime.block_on(Fleet::play(seed))?;
    Ok(AGES_H.map(|hours| {
        let age_ms = i64::from(hours) * 3_600_000;
        let truth = (-(ALONE + MOMENTS * SHARE) * f64::from(hours)).exp();
        let point = summary.survival.iter().rev().find(|point| point.age_ms <= age_ms);
        point.is_some_and(|point| (point.low..=point.high).contains(&truth))
    }))
}

/// The evictions that the law brings upon the slots: their times, each with its slot and whether it is announced.
fn evictions(random: &mut SmallRng) -> Vec<(Duration, usize, bool)> {
    let end = LASTS.as_secs_f64() / 3_600.0;
    let times = |random: &mut SmallRng, per_hour: f64| {
        let (mut at, mut times) = (0.0, Vec::new());
        loop {
            at -= (1.0 - random.random::<f64>()).ln() / per_hour;
            if at >= end {
                return times;
            }
            times.push(Duration::from_secs_f64(at * 3_600.0));
        }
    };
    let mut evictions = Vec::new();
    for at in times(random, MOMENTS) {
        let is_heard = random.random::<f64>() >= UNHEARD;
        evictions
            .extend((0..SLOTS).filter(|_| random.random::<f64>() < SHARE).map(|slot| (at, slot, is_heard)));
    }
    for slot in 0..SLOTS {
        let alone = times(random, ALONE);
        evictions.extend(alone.into_iter().map(|at| (at, slot, random.random::<f64>() >= UNHEARD)));
    }
    evictions
}

/// All events, in their order.
fn events(random: &mut SmallRng) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for (at, slot, is_heard) in evictions(random) {
        events.push((at.saturating_sub(REPORTED), Due::Report, slot));
        if is_heard {
            events.push((at.saturating_sub(NOTICE), Due::Notice, slot));
        }
        events.push((at, Due::Evict, slot));
        events.push((at + BOOTS_AFTER, Due::Boot, slot));
        events.push((at + BOOTS_AFTER + STARTS_AFTER, Due::Start, slot));
    }
    // Some more machines, by which the last deaths are found.
    for slot in 0..SLOTS + JOBS {
        let boots = if slot < SLOTS { Duration::ZERO } else { LASTS + LEASE * 2 };
        events.push((boots, Due::Boot, slot));
        events.push((boots + STARTS_AFTER, Due::Start, slot));
    }
    events.sort_by_key(|(at, ..)| *at);
    events
}

impl Fleet {
    /// Plays all events, and returns the figures of the ledger for the time in which the law held.
    async fn play(seed: u64) -> Result<Summary> {
        let store = memory::store();
        let jobs = (0..JOBS).map(|_| NewJob::of::<Stay>(&())).collect::<Result<Vec<_>>>()?;
        Producer::new(store.clone()).enqueue(jobs).await?;
        let slots = (0..SLOTS + JOBS).map(|_| None).collect();
        let mut fleet = Self { store: store.clone(), began: Instant::now(), slots, boots: 0 };
        let since = clock::unix_millis();
        let events = events(&mut SmallRng::seed_from_u64(seed));
        for together in events.chunk_by(|one, next| one.0 == next.0) {
            fleet.reach(together[0].0).await;
            for (_, due, slot) in together {
                fleet.happen(*due, *slot)?;
            }
            sleep(SETTLES).await;
        }
        fleet.reach(LASTS + LEASE * 2 + Duration::from_mins(10)).await;
        let until = since + i64::try_from(LASTS.as_millis()).unwrap_or(i64::MAX);
        let entries = Ledger::new(Arc::clone(&store.records)).read(since).await?;
        let reports = store.roster.reports(Duration::from_hours(24)).await?;
        Ok(Summary::of(&entries, &reports, since, until))
    }

    /// Goes to this time since the beginning, by jumps.
    async fn reach(&self, at: Duration) {
        let at = self.began + at;
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            advance(left.min(JUMP)).await;
            // All that was due is done before the clock goes on.
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn happen(&mut self, due: Due, slot: usize) -> Result<()> {
        let vm = &mut self.slots[slot];
        match due {
            Due::Report => {}
            Due::Notice => {
                if let Some(worker) = vm.as_ref().and_then(|vm| vm.worker.as_ref()) {
                    let notice = Notice::now("eviction", NoticeKind::Preempt).at(Instant::now() + NOTICE);
                    worker.notices.notice(notice);
                }
            }
            Due::Evict => {
                if let Some(worker) = vm.take().and_then(|vm| vm.worker) {
                    worker.kill();
                }
            }
            Due::Boot => {
                vm.get_or_insert_with(|| Vm { booted_unix_ms: clock::unix_millis(), worker: None });
            }
            Due::Start => {
                if let Some(vm) = vm.as_mut().filter(|vm| vm.worker.is_none()) {
                    self.boots += 1;
                    vm.worker = Some(start(&self.store, self.boots, vm.booted_unix_ms)?);
                }
            }
        }
        Ok(())
    }
}

fn start(store: &Store, number: u32, booted_unix_ms: i64) -> Result<Running> {
    let (gate, notices, (stopper, stopping)) = (Gate::new(), ManualNotices::answered(), stopping());
    let machine = Machine { booted_unix_ms: Some(booted_unix_ms), ..Machine::default() };
    let settings = Settings {
        concurrency: 1,
        lease: LEASE,
        checkpoint_every: CheckpointEvery::Every(Duration::ZERO),
        ..Settings::default()
    };
    let worker = Worker::builder(store.clone())
        .id(WorkerId::new(format!("w{number}")))
        .boot(format!("boot-{number}"))
        .machine(async { machine })
        .interruptions(Arc::new(notices.clone()))
        .settings(settings)
        .job(Stay)
        .build()?;
    let task = tokio::spawn(gate.clone().run(async move {
        worker.run(stopping).await;
    }));
    Ok(Running { gate, notices, task, _stopper: stopper })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask simulate --survival 200` plays as many as the promise is about.
    #[test]
    fn the_band_of_the_ledger_holds_the_true_curve_in_most_fleets() {
        const FLEETS: usize = 12;
        let mut held = [0; AGES_H.len()];
        for seed in 0..FLEETS as u64 {
            for (held, holds) in held.iter_mut().zip(holds(seed).unwrap()) {
                *held += usize::from(holds);
            }
        }
        assert!(held.iter().all(|held| *held >= FLEETS - 3), "of {FLEETS}: {held:?}");
    }
}
