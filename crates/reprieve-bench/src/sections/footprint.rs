//! The idle worker's CPU time and memory, the worker's start time, and its binary's size.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use reprieve_sim::metadata::{Config, MetadataServer};
use tokio::time::{Instant, sleep};

use super::{Bench, say};
use crate::measure::{Kind, Of};
use crate::noop::noops;
use crate::place::{Durability, Place, beside_this, started};
use crate::process::Process;
use crate::wait::until;

const SECTION: &str = "footprint";
const ROUNDS: usize = 3;
const STARTS: usize = 10;
const MIB: f64 = 1_048_576.0;

/// How long an idle worker is measured: two of its longest pauses.
const WATCHED: Duration = Duration::from_secs(20);

/// The wait before that, so that the start is not measured.
const SETTLING: Duration = Duration::from_secs(2);

const VM: &str = "bench_0";

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for name in ["bench-worker", "reprieve"] {
        let size = beside_this(name).and_then(|path| Ok(fs::metadata(path)?.len()));
        match size {
            Ok(bytes) => {
                #[expect(clippy::cast_precision_loss, reason = "some megabytes")]
                let size = bytes as f64 / MIB;
                bench.add(Kind::lower(SECTION, format!("binary size: {name}"), "MiB"), size);
            }
            Err(error) => bench.missed(&format!("{SECTION}, binary size: {name}"), &error),
        }
    }
    for round in 0..bench.rounds(STARTS) {
        say(&format!("footprint, start {}", round + 1));
        start(bench).await?;
    }
    for round in 0..bench.rounds(ROUNDS) {
        say(&format!("footprint, idle workers, round {}", round + 1));
        idle(bench).await?;
    }
    Ok(())
}

/// Measures from the process's start to its first completed job, and to its log line `began`.
async fn start(bench: &mut Bench) -> Result<()> {
    let place = Place::new(&bench.work, Durability::PowerLoss)?;
    let _producer = place.enqueue(noops(1)?).await?;
    let watch = place.watch()?;
    let (began, at_once) = (Instant::now(), Duration::from_millis(1));
    let mut worker = place.worker(&[])?;
    let mut ready = None;
    until("the first job is done", Duration::from_secs(30), at_once, || {
        if ready.is_none() && worker.logged("worker started")?.is_some() {
            ready = Some(began.elapsed());
        }
        Ok(watch.is_empty()?.then_some(()))
    })
    .await?;
    let done = began.elapsed();
    worker.stop().await?;
    let ready = ready.context("the worker did a job before it logged that it began")?;
    bench.add(Kind::lower(SECTION, "start until it says that it began", "ms"), ready.as_secs_f64() * 1e3);
    bench.add(Kind::lower(SECTION, "start until the first job is done", "ms"), done.as_secs_f64() * 1e3);
    Ok(())
}

/// Measures two idle workers at the same time, each with its own store. One of them polls a
/// metadata service every second.
async fn idle(bench: &mut Bench) -> Result<()> {
    let mock = MetadataServer::start(Config::with_vms([VM])).await?;
    let places = [(); 2].map(|()| Place::new(&bench.work, Durability::PowerLoss));
    let [alone, on_spot] = places;
    let (alone, on_spot) = (alone?, on_spot?);
    let mut workers = [
        ("without a metadata service", alone.worker(&[])?),
        ("that watches for notices", on_spot.spot_worker(&mock.vm_url(VM), &[])?),
    ];
    for (_, worker) in &workers {
        started(worker).await?;
    }
    sleep(bench.amount(SETTLING, Duration::from_millis(200))).await;
    let before = workers.iter().map(|(_, worker)| worker.usage()).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    sleep(bench.amount(WATCHED, Duration::from_secs(1))).await;
    let watched = began.elapsed().as_secs_f64();
    for ((name, worker), before) in workers.iter().zip(before) {
        let now = worker.usage()?;
        let kind = |what: &str, unit| Kind::lower(SECTION, format!("idle worker {name}: {what}"), unit);
        let share = (now.cpu_seconds - before.cpu_seconds) / watched * 100.0;
        bench.add(kind("processor", "% of a core").goal(Of::Median, 1.0), share);
        bench.add(kind("resident memory", "MiB").goal(Of::Median, 30.0), now.resident_bytes / MIB);
        bench.add(kind("threads", "threads"), now.threads);
    }
    for (_, worker) in &mut workers {
        Process::stop(worker).await?;
    }
    mock.stop().await;
    Ok(())
}
