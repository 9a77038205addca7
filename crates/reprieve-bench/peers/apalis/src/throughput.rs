//! Jobs that do nothing, enqueued and then drained by worker processes.
//!
//! How it is measured, each with its reason:
//!
//! - One job at a time is a `push` that is awaited before the next; in a batch is `push_bulk` with 1,000 jobs at a time,
//!   into a database of its own, as what is drained is what was enqueued one by one.
//! - A worker process is this program's `work`. The drain is over when no job is left in any status but Done, asked
//!   every 10 ms: a read in WAL mode, on partial indices, which no writer waits for.
//! - The database is set up once more before the clock starts, so that it has its statistics (see `queue.rs`).

use std::env;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use apalis::prelude::TaskSink;
use apalis_sqlite::SqlitePool;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use serde::Serialize;
use tokio::fs;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::queue::{self, Job};

const LIMIT: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_millis(10);
const BATCH: usize = 1_000;

#[derive(Serialize)]
pub struct Report {
    enqueue_seconds: f64,
    enqueue_batch_seconds: f64,
    drain_seconds: f64,
    /// User and system time of all the workers.
    cpu_seconds: f64,
    /// The most that one worker had in memory.
    rss_bytes: u64,
    completed: i64,
}

pub async fn measure(dir: &Path, jobs: usize, processes: usize) -> anyhow::Result<Report> {
    let one_by_one = tempfile::Builder::new().prefix("apalis-").tempdir_in(dir)?;
    let batched = tempfile::Builder::new().prefix("apalis-batch-").tempdir_in(dir)?;
    let enqueue_batch_seconds = enqueue_in_batches(batched.path(), jobs).await?;
    let enqueue_seconds = enqueue_one_by_one(one_by_one.path(), jobs).await?;

    let pool = queue::open(one_by_one.path()).await?;
    let started = Instant::now();
    let mut workers = (0..processes).map(|_| spawn(one_by_one.path())).collect::<anyhow::Result<Vec<_>>>()?;
    // Past the limit it goes on, with fewer completed.
    let _ = timeout(LIMIT, drained(&pool)).await;
    let drain_seconds = started.elapsed().as_secs_f64();

    let mut rss_bytes = 0;
    for worker in &mut workers {
        if let Some(status) = worker.try_wait()? {
            bail!("a worker ended with {status} before it was stopped");
        }
        rss_bytes = rss_bytes.max(peak_memory(worker).await?);
    }
    for worker in &mut workers {
        stop(worker).await?;
    }
    // The workers are the only children there were.
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu = usage.user_time() + usage.system_time();
    let completed =
        sqlx::query_scalar("SELECT count(*) FROM Jobs WHERE status = 'Done'").fetch_one(&pool).await?;
    pool.close().await;
    Ok(Report {
        enqueue_seconds,
        enqueue_batch_seconds,
        drain_seconds,
        cpu_seconds: Duration::from_micros(cpu.num_microseconds().try_into()?).as_secs_f64(),
        rss_bytes,
        completed,
    })
}

async fn enqueue_one_by_one(dir: &Path, jobs: usize) -> anyhow::Result<f64> {
    let pool = queue::open(dir).await?;
    let mut queue = queue::of(&pool);
    let started = Instant::now();
    for _ in 0..jobs {
        queue.push(noop()).await?;
    }
    let seconds = started.elapsed().as_secs_f64();
    pool.close().await;
    Ok(seconds)
}

async fn enqueue_in_batches(dir: &Path, jobs: usize) -> anyhow::Result<f64> {
    let pool = queue::open(dir).await?;
    let mut queue = queue::of(&pool);
    let started = Instant::now();
    for first in (0..jobs).step_by(BATCH) {
        let size = BATCH.min(jobs - first);
        queue.push_bulk((0..size).map(|_| noop()).collect()).await?;
    }
    let seconds = started.elapsed().as_secs_f64();
    pool.close().await;
    Ok(seconds)
}

fn noop() -> Job {
    Job::Noop { payload: "x".repeat(200) }
}

fn spawn(dir: &Path) -> anyhow::Result<Child> {
    Ok(Command::new(env::current_exe()?)
        .arg("work")
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()?)
}

async fn drained(pool: &SqlitePool) -> sqlx::Result<()> {
    let left = "SELECT EXISTS (SELECT 1 FROM Jobs WHERE status IN ('Queued', 'Pending', 'Failed'))
                    OR EXISTS (SELECT 1 FROM Jobs WHERE status = 'Running')";
    while sqlx::query_scalar(left).fetch_one(pool).await? {
        sleep(POLL).await;
    }
    Ok(())
}

/// From /proc, because getrusage includes the memory of the parent that a child was forked from.
async fn peak_memory(worker: &Child) -> anyhow::Result<u64> {
    let id = worker.id().context("a worker ended before it was stopped")?;
    let status = fs::read_to_string(format!("/proc/{id}/status")).await?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in /proc")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}

async fn stop(worker: &mut Child) -> anyhow::Result<()> {
    let id = worker.id().context("a worker ended before it was stopped")?;
    kill(Pid::from_raw(id.try_into()?), Signal::SIGTERM)?;
    let status = worker.wait().await?;
    ensure!(status.success(), "a worker ended with {status}");
    Ok(())
}
