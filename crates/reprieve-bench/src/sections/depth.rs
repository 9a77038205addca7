//! The cost of a job with a thousand, a hundred thousand and a million others waiting: it should be
//! the same.
//!
//! Measured through the whole worker, while as many jobs are enqueued as it completes, so that the
//! depth stays constant. One cycle of the store's own operations (send, receive, renew, complete)
//! is measured alone and with sixteen tasks at a time. The stores take turns and are compared
//! within a round, so that other load slows all of them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use reprieve_core::ports::{NewMessage, Store};
use reprieve_core::{Producer, WorkerId};
use reprieve_local::{LocalStore, Options, QueueName};
use tokio::time::{Instant, sleep};

use super::{Bench, say};
use crate::measure::{Kind, Of, median, quantile};
use crate::noop::noops;
use crate::place::{Durability, Place};
use crate::watch::Watch;

const SECTION: &str = "depth";
const ROUNDS: usize = 5;
const DEPTHS: [(&str, usize); 3] = [("10³", 1_000), ("10⁵", 100_000), ("10⁶", 1_000_000)];

/// The limit of a job's cost as a multiple of the cost at the smallest depth.
const FLAT: Option<f64> = Some(1.15);

/// The operations of the store that are measured. The slowest renewal has no goal: one pause of the
/// disk decides it.
const STORE: [(&str, Option<f64>); 3] = [
    ("store, per cycle alone", FLAT),
    ("store, per cycle of 16", FLAT),
    ("store, renewal of 16 at p99", None),
];

/// The number of measured jobs, and of warm-up jobs before them.
const MEASURED: u64 = 20_000;
const WARMING_UP: u64 = 2_000;

/// The number of jobs enqueued at a time to keep the depth: a quarter of the smallest.
const FED: usize = 250;

/// The number of attempts at a trial when its queue runs empty.
const TRIES: usize = 10;

const CYCLES_ALONE: usize = 1_000;
const TASKS: usize = 16;
const CYCLES_EACH: usize = 500;
const LEASE: Duration = Duration::from_secs(60);
const BODY_BYTES: usize = 200;
const PATIENCE: Duration = Duration::from_mins(3);

/// A store with this number of waiting jobs.
struct Deep {
    name: &'static str,
    depth: usize,
    place: Place,
    local: LocalStore,
    watch: Watch,
    /// Creates a store with this number of messages that belong to no job, for the cycles.
    cycled: Store,
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let mut deep = Vec::new();
    for (name, depth) in DEPTHS {
        say(&format!("depth, enqueueing {name} jobs"));
        deep.push(Deep::fill(bench, name, bench.amount(depth, depth.min(3_000))).await?);
    }
    for round in 0..bench.rounds(ROUNDS) {
        let (mut worker, mut cycles) = (Vec::new(), Vec::new());
        // Each round starts with another store.
        for at in (0..deep.len()).map(|at| (at + round) % deep.len()) {
            say(&format!("depth, round {}: {} jobs", round + 1, deep[at].name));
            let scale = bench.amount(1, 10);
            worker.push((at, vec![deep[at].cost(MEASURED / scale).await?]));
            cycles.push((at, cycle_all(&deep[at].cycled, usize::try_from(scale)?).await?));
        }
        note(bench, &[("worker, per job", FLAT)], worker);
        note(bench, &STORE, cycles);
    }
    Ok(())
}

/// Adds the round's costs, in the order of depth, and each as a multiple of the cost at the
/// smallest depth.
fn note(bench: &mut Bench, what: &[(&str, Option<f64>)], mut round: Vec<(usize, Vec<f64>)>) {
    round.sort_by_key(|(at, _)| *at);
    for (column, (what, goal)) in what.iter().enumerate() {
        for (at, costs) in &round {
            let name = DEPTHS[*at].0;
            bench.add(Kind::lower(SECTION, format!("{what}, with {name} waiting"), "µs"), costs[column]);
        }
        for (at, costs) in &round[1..] {
            let name = format!("{what}, with {} ÷ with {} waiting", DEPTHS[*at].0, DEPTHS[0].0);
            let kind = Kind::lower(SECTION, name, "×");
            let kind = goal.map_or(kind.clone(), |goal| kind.goal(Of::Median, goal));
            bench.add(kind, costs[column] / round[0].1[column]);
        }
    }
}

impl Deep {
    async fn fill(bench: &Bench, name: &'static str, depth: usize) -> Result<Self> {
        let place = Place::new(&bench.work, Durability::PowerLoss)?;
        let local = place.open().await?;
        let producer = Producer::new(local.store());
        let options = Options::new(QueueName::parse("cycled")?).owned_by(WorkerId::unique());
        let cycled = LocalStore::open(&place.path("cycled.db"), options).await?.store();
        for _ in (0..depth).step_by(1_000) {
            producer.enqueue(noops(1_000)?).await?;
            cycled.queue.send(vec![message(); 1_000]).await?;
        }
        let watch = place.watch()?;
        Ok(Self { name, depth, place, local, watch, cycled })
    }

    /// Returns the cost of a job. A thousand jobs take about forty milliseconds: when this process
    /// pauses for that long, the queue runs empty and the trial is repeated.
    async fn cost(&self, measured: u64) -> Result<f64> {
        for _ in 0..TRIES {
            if let Some(cost) = drain(self, measured).await? {
                return Ok(cost);
            }
            say(&format!("depth: the queue with {} ran empty; once more", self.name));
            Producer::new(self.local.store()).enqueue(noops(self.depth)?).await?;
        }
        bail!("the queue with {} ran empty {TRIES} times: too much else runs here", self.name)
    }
}

/// Runs a worker and enqueues one job for each that it completes. Returns the cost of a job in
/// microseconds, or `None` when the queue ran empty.
async fn drain(deep: &Deep, measured: u64) -> Result<Option<f64>> {
    let producer = Producer::new(deep.local.store());
    let first = deep.watch.oldest()?.context("there is nothing to measure with")?;
    let (mut fed, mut measuring) = (0, None);
    let mut worker = deep.place.worker(&["--concurrency", "64"])?;
    let began = Instant::now();
    loop {
        let Some(oldest) = deep.watch.oldest()? else {
            worker.stop().await?;
            return Ok(None);
        };
        let done = oldest - first;
        match measuring {
            None if done >= WARMING_UP => measuring = Some((Instant::now(), done)),
            Some((since, before)) if done >= before + measured => {
                let micros = since.elapsed().as_secs_f64() * 1e6;
                worker.stop().await?;
                #[expect(clippy::cast_precision_loss, reason = "some thousands")]
                return Ok(Some(micros / (done - before) as f64));
            }
            _ => {}
        }
        if done >= fed + FED as u64 {
            producer.enqueue(noops(FED)?).await?;
            fed += FED as u64;
        } else {
            sleep(Duration::from_millis(1)).await;
        }
        ensure!(began.elapsed() < PATIENCE, "the worker was not done in time: {}", worker.log_tail());
    }
}

/// Returns the cost of a cycle alone, of a cycle with sixteen tasks, and the duration of a renewal
/// then.
async fn cycle_all(store: &Store, scale: usize) -> Result<Vec<f64>> {
    let mut alone = Vec::new();
    for _ in 0..CYCLES_ALONE / scale {
        let began = Instant::now();
        cycle(store).await?;
        alone.push(micros(began));
    }
    let began = Instant::now();
    let each = CYCLES_EACH / scale;
    let tasks = (0..TASKS).map(|_| async {
        let mut renewals = Vec::with_capacity(each);
        for _ in 0..each {
            renewals.push(cycle(store).await?);
        }
        anyhow::Ok(renewals)
    });
    let renewals = try_join_all(tasks).await?.concat();
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let together = micros(began) / renewals.len() as f64;
    Ok(vec![median(&alone), together, quantile(&renewals, 0.99)])
}

/// Returns the duration of the renewal, in microseconds.
async fn cycle(store: &Store) -> Result<f64> {
    store.queue.send(vec![message()]).await?;
    let delivery = store.queue.receive(1, LEASE).await?.pop().context("the queue is empty")?;
    let began = Instant::now();
    let receipt = store.queue.renew(&delivery.receipt, LEASE).await?;
    let renewal = micros(began);
    store.queue.complete(&receipt).await?;
    Ok(renewal)
}

fn message() -> NewMessage {
    NewMessage { body: vec![b'x'; BODY_BYTES], delay: Duration::ZERO }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cycle_leaves_the_queue_as_deep_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new(QueueName::parse("cycled").unwrap()).owned_by(WorkerId::unique());
        let store = LocalStore::open(&directory.path().join("a.db"), options).await.unwrap().store();
        store.queue.send(vec![message(); 3]).await.unwrap();
        let costs = cycle_all(&store, 250).await.unwrap();
        assert!(costs.len() == 3 && costs.iter().all(|cost| *cost > 0.0), "{costs:?}");
        assert_eq!(store.queue.depth().await.unwrap().total, 3);
    }
}
