//! Jobs with large data: the time and the size of saves of 20 MB of floats, beside the same as JSON, a
//! drain of two such jobs, an attachment of 1 GiB, streams of 300 MB, and the memory that they take.

#![expect(clippy::cast_precision_loss, reason = "lengths of megabytes")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reprieve_core::ledger::is_entry;
use reprieve_core::record::open;
use reprieve_core::{BlobName, JobId, Producer};
use reprieve_local::LocalStore;
use reprieve_sim::metadata::{Config, MetadataServer};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{Bench, checkpoint, say};
use crate::jobs::{AttachesArgs, AttachesTook, ComputesArgs, change, floats};
use crate::journal;
use crate::measure::{Kind, Of, median};
use crate::place::{Durability, Place, job};
use crate::process::Process;
use crate::wait::until;

const SECTION: &str = "large";
const ROUNDS: usize = 5;

/// 20 MB.
const FLOATS: usize = 2_500_000;
const FLOAT_BYTES: f64 = 8.0;

/// The saves of a round.
const SAVES: usize = 5;

/// The length of the attachment.
const ATTACHED: u64 = 1 << 30;

const MIB: f64 = 1_048_576.0;

/// The goals of a save, of its size, of a drain, and of the memory beside twice the stored state.
const SAVE_MS: f64 = 150.0;
const SIZE: f64 = 1.15;
const DRAIN_MS: f64 = 1_000.0;
const MEMORY: f64 = 16.0 * MIB;
const ATTACHED_MEMORY: f64 = 64.0 * MIB;

/// Lets glibc return large buffers to the system when they are freed, as docs/service.md advises.
const RETURN_MEMORY: &[(&str, &str)] =
    &[("MALLOC_MMAP_THRESHOLD_", "1048576"), ("MALLOC_TRIM_THRESHOLD_", "1048576")];

const NOTICE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);
const VM: &str = "bench_0";

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for round in 0..bench.rounds(ROUNDS) {
        say(&format!("large, round {}", round + 1));
        for durability in Durability::ALL {
            saves(bench, durability).await?;
        }
        for jobs in [1, 2] {
            drain(bench, jobs, RETURN_MEMORY).await?;
        }
        drain(bench, 1, &[]).await?;
        attachment(bench, RETURN_MEMORY).await?;
        attachment(bench, &[]).await?;
        for megabytes in [30, 300] {
            copy(bench, megabytes).await?;
        }
    }
    Ok(())
}

/// Saves by a job, and the same floats as JSON through the store's port, as it was done before
/// MessagePack.
async fn saves(bench: &mut Bench, durability: Durability) -> Result<()> {
    let number = bench.amount(FLOATS, 10_000);
    let place = Place::new(&bench.work, durability)?;
    let args = ComputesArgs { floats: number, saves: SAVES, journal: place.path("journal"), ends: true };
    let local = place.enqueue(vec![job("computes", &args)?]).await?;
    let worker = place.worker(&["--concurrency", "1"])?;
    let took: Vec<f64> = result(&local, &worker).await?;
    worker.kill().await?;
    let ours = median(&took);

    let mut state = floats(number);
    let id = JobId::parse("json")?;
    let (mut json, mut version, mut bytes) = (Vec::new(), None, 0);
    for number in 0..=SAVES {
        change(&mut state);
        let began = Instant::now();
        let encoded = serde_json::to_vec(&state)?;
        bytes = encoded.len();
        let write = checkpoint::write(number as u64, encoded);
        version = Some(local.store().records.put(&id, version.as_ref(), write).await?);
        json.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let (json, name) = (median(&json), durability.as_str());
    let kind = |what: &str| Kind::lower(SECTION, format!("{what}, {name}"), "ms");
    bench.add(kind("encode and save 20 MB of floats").goal(Of::Median, SAVE_MS), ours);
    bench.add(kind("encode and save 20 MB of floats as JSON").reference(true), json);
    let ratio = Kind::higher(SECTION, format!("JSON ÷ ours, time, {name}"), "×");
    bench.add(ratio, json / ours);
    if durability == Durability::PowerLoss {
        let size = bytes as f64 / (number as f64 * FLOAT_BYTES);
        bench.add(Kind::lower(SECTION, "JSON's size ÷ that of the floats", "×").reference(true), size);
    }
    Ok(())
}

/// A drain of these jobs. Of two it measures the time, of one the size and the memory.
async fn drain(
    bench: &mut Bench,
    jobs: usize,
    environment: &'static [(&'static str, &'static str)],
) -> Result<()> {
    let number = bench.amount(FLOATS, 10_000);
    let place = Place::new(&bench.work, Durability::PowerLoss)?.with(environment);
    let journal = place.path("journal");
    let args = ComputesArgs { floats: number, saves: 1, journal: journal.clone(), ends: false };
    let new = (0..jobs).map(|_| job("computes", &args)).collect::<Result<_>>()?;
    let local = place.enqueue(new).await?;
    let mock = MetadataServer::start(Config::with_vms([VM])).await?;
    let worker = place.spot_worker(&mock.vm_url(VM), &["--concurrency", &jobs.to_string()])?;
    let running = || Ok((journal::read(&journal)?.len() >= jobs).then_some(()));
    until("all jobs run", PATIENCE, POLL, running).await.with_context(|| worker.log_tail())?;
    mock.evict(VM, NOTICE)?;
    let report = until("the drain has ended", PATIENCE, POLL, || worker.logged("drained")).await?;
    let peak = worker.usage()?.resident_bytes_peak;
    worker.kill().await?;
    mock.stop().await;
    ensure!(report["saved"].as_u64() == Some(jobs as u64), "not all were saved: {report}");
    let released = report["released_after_ms"].as_u64().context("a drain did not log its time")?;
    let page = local.store().records.page("", None).await?;
    let listed = page.entries.iter().find(|it| !is_entry(&it.job)).context("there is no record")?;
    let stored = local.store().records.load(&listed.job).await?.context("the record is gone")?;
    let record = open(&stored.bytes).map_err(anyhow::Error::msg)?;
    let stored = record.checkpoints.first().context("there is no checkpoint")?.bytes as f64;
    if jobs == 1 {
        let plain = number as f64 * FLOAT_BYTES;
        bench.add(
            Kind::lower(SECTION, "stored size ÷ that of the floats", "×").goal(Of::Worst, SIZE),
            stored / plain,
        );
        let most = (2.0 * stored + MEMORY) / MIB;
        let name = format!("a worker's memory with one state of 20 MB, {}", how(environment));
        let memory = Kind::lower(SECTION, name, "MiB");
        let goal = !environment.is_empty();
        let memory = if goal { memory.goal(Of::Worst, most) } else { memory };
        bench.add(memory, peak / MIB);
    } else {
        let name = "notice received until two jobs with 20 MB each are saved and released";
        bench.add(
            Kind::lower(SECTION, name, "ms").goal(Of::Worst, DRAIN_MS),
            f64::from(u32::try_from(released)?),
        );
    }
    Ok(())
}

async fn attachment(bench: &mut Bench, environment: &'static [(&'static str, &'static str)]) -> Result<()> {
    let bytes = bench.amount(ATTACHED, 8 << 20);
    let place = Place::new(&bench.work, Durability::PowerLoss)?.with(environment);
    let local = place.enqueue(vec![job("attaches", &AttachesArgs { bytes })?]).await?;
    let worker = place.worker(&["--concurrency", "1"])?;
    let AttachesTook { first, again, read } = result(&local, &worker).await?;
    let peak = worker.usage()?.resident_bytes_peak;
    worker.kill().await?;
    if !environment.is_empty() {
        for (what, took) in [
            ("attach 1 GiB and save", first),
            ("attach it again with one part in a hundred changed", again),
            ("read it", read),
        ] {
            bench.add(Kind::lower(SECTION, what, "ms"), took);
        }
    }
    let name = format!("a worker's memory with an attachment of 1 GiB, {}", how(environment));
    let memory = Kind::lower(SECTION, name, "MiB");
    bench.add(memory.goal(Of::Worst, ATTACHED_MEMORY / MIB), peak / MIB);
    Ok(())
}

/// Copies an input of so many megabytes to an output.
async fn copy(bench: &mut Bench, megabytes: usize) -> Result<()> {
    let place = Place::new(&bench.work, Durability::PowerLoss)?;
    let local = place.open().await?;
    let producer = Producer::new(local.store());
    let input = std::io::Cursor::new(vec![7; bench.amount(megabytes, 1) * 1_000_000]);
    producer.write_input("in", input).await?;
    producer.enqueue(vec![job("copies", &"in")?]).await?;
    let worker = place.worker(&["--concurrency", "1"])?;
    let took: f64 = result(&local, &worker).await?;
    let peak = worker.usage()?.resident_bytes_peak;
    worker.kill().await?;
    let name = format!("copy an input of {megabytes} MB to an output, as streams");
    bench.add(Kind::lower(SECTION, &*name, "ms"), took);
    bench.add(Kind::lower(SECTION, format!("a worker's memory for that: {megabytes} MB"), "MiB"), peak / MIB);
    Ok(())
}

const fn how(environment: &[(&str, &str)]) -> &'static str {
    if environment.is_empty() { "glibc's defaults" } else { "as docs/service.md advises" }
}

/// Waits for the result of the only job.
pub(super) async fn result<T: DeserializeOwned>(local: &LocalStore, worker: &Process) -> Result<T> {
    let blobs = local.store().blobs;
    let began = Instant::now();
    loop {
        if let Some(name) = blobs.list("results/").await?.first() {
            let json = blobs.get(&BlobName::clone(name)).await?.context("a result is gone")?;
            return Ok(serde_json::from_slice(&json)?);
        }
        ensure!(began.elapsed() < PATIENCE, "no result after {PATIENCE:?}: {}", worker.log_tail());
        tokio::time::sleep(POLL).await;
    }
}
