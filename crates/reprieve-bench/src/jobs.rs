//! The benchmarks' jobs. [`Job::KIND`] names them for the worker `bench-worker`.

mod crunching;
mod large;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve::clock::unix_millis;
use reprieve::worker::WorkerBuilder;
use reprieve::{Job, JobContext, JobError, Step, async_trait};
use serde::{Deserialize, Serialize};

pub use crunching::{Crunches, CrunchesArgs, Waited, Waits, WaitsArgs};
pub use large::{
    Attaches, AttachesArgs, AttachesTook, Computes, ComputesArgs, ComputesAt, Copies, change, floats,
};

/// Adds all benchmark jobs to a worker.
pub fn all(worker: WorkerBuilder) -> WorkerBuilder {
    let worker = worker.job(Noop).job(Ticks).job(Yields).job(Ignores).job(Blocks).job(Carries);
    worker.job(Computes).job(Attaches).job(Copies).job(Crunches).job(Waits)
}

/// The run time of a job that does not yield: far longer than any drain.
const STUBBORN: Duration = Duration::from_mins(2);

/// Reads its payload and does nothing.
#[derive(Debug)]
pub struct Noop;

/// Writes a tick to a journal and waits, repeatedly; each tick is a step.
#[derive(Debug)]
pub struct Ticks;

/// The arguments of [`Ticks`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TicksArgs {
    /// The number of ticks.
    pub ticks: u64,
    /// The wait after each tick, in milliseconds.
    pub tick_ms: u64,
    /// The journal's path.
    pub journal: PathBuf,
}

/// Writes to the journal, which is its argument, that it runs, and waits to be interrupted.
#[derive(Debug)]
pub struct Yields;

/// Writes that it runs, and waits without checking for an interruption.
#[derive(Debug)]
pub struct Ignores;

/// Writes that it runs, and blocks its thread.
#[derive(Debug)]
pub struct Blocks;

/// Saves a large checkpoint after its first step, writes that it is saved, and waits to be
/// interrupted.
#[derive(Debug)]
pub struct Carries;

/// The arguments of [`Carries`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CarriesArgs {
    /// The checkpoint's length in bytes.
    pub bytes: usize,
    /// The journal's path.
    pub journal: PathBuf,
}

/// Adds the line `<unix ms> <pid> <tick>` to a journal. The line is complete even if the process is
/// killed right after: it is one write to a file opened for appending.
///
/// # Errors
/// Fails when the file can't be opened or written.
pub fn note(journal: &Path, tick: u64) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(journal)?;
    file.write_all(format!("{} {} {tick}\n", unix_millis(), std::process::id()).as_bytes())
}

#[async_trait]
impl Job for Noop {
    const KIND: &'static str = "noop";
    type Args = String;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &String) {}

    async fn step(&self, _: &JobContext, _: &String, (): ()) -> Result<Step<(), ()>, JobError> {
        Ok(Step::Done(()))
    }
}

#[async_trait]
impl Job for Ticks {
    const KIND: &'static str = "ticks";
    type Args = TicksArgs;
    type Checkpoint = u64;
    type Output = ();

    fn begin(&self, _: &TicksArgs) -> u64 {
        0
    }

    async fn step(&self, cx: &JobContext, args: &TicksArgs, at: u64) -> Result<Step<u64, ()>, JobError> {
        cx.progress(at, args.ticks);
        if at >= args.ticks {
            return Ok(Step::Done(()));
        }
        note(&args.journal, at).map_err(JobError::retry)?;
        tokio::time::sleep(Duration::from_millis(args.tick_ms)).await;
        Ok(Step::Continue(at + 1))
    }
}

#[async_trait]
impl Job for Yields {
    const KIND: &'static str = "yields";
    type Args = PathBuf;
    type Checkpoint = u64;
    type Output = ();

    fn begin(&self, _: &PathBuf) -> u64 {
        0
    }

    async fn step(&self, cx: &JobContext, journal: &PathBuf, at: u64) -> Result<Step<u64, ()>, JobError> {
        note(journal, at).map_err(JobError::retry)?;
        cx.interrupted().await;
        Ok(Step::Continue(at + 1))
    }
}

#[async_trait]
impl Job for Ignores {
    const KIND: &'static str = "ignores";
    type Args = PathBuf;
    type Checkpoint = u64;
    type Output = ();

    fn begin(&self, _: &PathBuf) -> u64 {
        0
    }

    async fn step(&self, _: &JobContext, journal: &PathBuf, at: u64) -> Result<Step<u64, ()>, JobError> {
        note(journal, at).map_err(JobError::retry)?;
        tokio::time::sleep(STUBBORN).await;
        Ok(Step::Continue(at + 1))
    }
}

#[async_trait]
impl Job for Blocks {
    const KIND: &'static str = "blocks";
    type Args = PathBuf;
    type Checkpoint = u64;
    type Output = ();

    fn begin(&self, _: &PathBuf) -> u64 {
        0
    }

    #[expect(clippy::disallowed_methods, reason = "that it can't be woken is the point")]
    async fn step(&self, _: &JobContext, journal: &PathBuf, at: u64) -> Result<Step<u64, ()>, JobError> {
        note(journal, at).map_err(JobError::retry)?;
        std::thread::sleep(STUBBORN);
        Ok(Step::Continue(at + 1))
    }
}

#[async_trait]
impl Job for Carries {
    const KIND: &'static str = "carries";
    type Args = CarriesArgs;
    type Checkpoint = String;
    type Output = ();

    fn begin(&self, _: &CarriesArgs) -> String {
        String::new()
    }

    async fn step(
        &self,
        cx: &JobContext,
        args: &CarriesArgs,
        cargo: String,
    ) -> Result<Step<String, ()>, JobError> {
        if cargo.is_empty() {
            return Ok(Step::Continue("x".repeat(args.bytes)));
        }
        note(&args.journal, 0).map_err(JobError::retry)?;
        cx.interrupted().await;
        Ok(Step::Continue(cargo))
    }
}
