//! What a job costs with a thousand, a hundred thousand and a million others waiting: it should make no difference.
//!
//! Through the whole worker, while as many are enqueued as it completes, so that the depth stays; and one cycle of the
//! store's own operations (send, receive, renew, complete), alone and of sixteen tasks at a time. The stores take
//! turns, and are compared within a round, so that whatever else the machine does meanwhile slows all of them.

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

/// How much dearer a job may be than with the fewest waiting.
const FLAT: Option<f64> = Some(1.15);

/// What is measured of the store alone. The slowest of some thousand renewals is for looking at: one pause of the disk
/// decides it.
const STORE: [(&str, Option<f64>); 3] = [
    ("store, per cycle alone", FLAT),
    ("store, per cycle of 16", FLAT),
    ("store, renewal of 16 at p99", None),
];

/// How many jobs are measured, after how many that are not.
const MEASURED: u64 = 20_000;
const WARMING_UP: u64 = 2_000;

/// How many are enqueued at a time to keep the depth: a quarter of the smallest.
const FED: usize = 250;

/// How often a trial is tried in which the queue runs empty.
const TRIES: usize = 10;

const CYCLES_ALONE: usize = 1_000;
const TASKS: usize = 16;
const CYCLES_EACH: usize = 500;
const LEASE: Duration = Duration::from_secs(60);
const BODY_BYTES: usize = 200;
const PATIENCE: Duration = Duration::from_mins(3);

/// A store with so many jobs waiting in it.
struct Deep {
    name: &'static str,
    depth: usize,
    place: Place,
    local: LocalStore,
    watch: Watch,
    /// Another of so many messages, for the cycles: those of no job.
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
        // In each round another one begins.
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

/// Notes the round's costs, in the order of depth, and what each is as a multiple of that at the smallest depth.
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

    /// What a job costs. A thousand jobs are done within some forty milliseconds: when this process pauses for that long,
    /// the queue was not as deep as it should be, and that trial does not count.
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

/// Lets a worker work, and enqueues what it completes; returns what a job cost, in microseconds, or nothing when the queue
/// ran empty.
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
        ensure!(began.elapsed() < PATIENCE, "the worker was not done in time: {}", worker.last_words());
    }
}

/// What a cycle costs alone, what it costs when sixteen tasks do them at once, and how long a renewal takes then.
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

/// Returns how long the renewal took, in microseconds.
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
