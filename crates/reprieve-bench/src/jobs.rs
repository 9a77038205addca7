//! The jobs of the benchmarks. They are known to the worker `bench-worker` by the names in [`Job::KIND`].

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve::clock::unix_millis;
use reprieve::worker::WorkerBuilder;
use reprieve::{Job, JobContext, JobError, Step, async_trait};
use serde::{Deserialize, Serialize};

/// Adds all of them to a worker.
pub fn all(worker: WorkerBuilder) -> WorkerBuilder {
    worker.job(Noop).job(Ticks).job(Yields).job(Ignores).job(Blocks).job(Carries)
}

/// How long a job goes on that does not yield: far longer than any drain.
const STUBBORN: Duration = Duration::from_mins(2);

/// Does nothing, with a payload that is read and let go.
#[derive(Debug)]
pub struct Noop;

/// Notes a tick in a journal and waits, so many times: each tick is a step.
#[derive(Debug)]
pub struct Ticks;

/// What [`Ticks`] is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TicksArgs {
    /// How many.
    pub ticks: u64,
    /// How long it waits after each, in milliseconds.
    pub tick_ms: u64,
    /// Where they are noted.
    pub journal: PathBuf,
}

/// Says in the journal, which is its argument, that it runs, and waits to be interrupted.
#[derive(Debug)]
pub struct Yields;

/// Says that it runs, and waits without looking whether it is interrupted.
#[derive(Debug)]
pub struct Ignores;

/// Says that it runs, and holds on to its thread.
#[derive(Debug)]
pub struct Blocks;

/// Has a checkpoint of so many bytes after its first step, says that it was saved, and waits to be interrupted.
#[derive(Debug)]
pub struct Carries;

/// What [`Carries`] is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CarriesArgs {
    /// How many bytes.
    pub bytes: usize,
    /// Where it says so.
    pub journal: PathBuf,
}

/// Adds the line `<unix ms> <pid> <tick>` to a journal, whole even if the process is killed the next moment: it is one
/// write to a file opened for appending.
///
/// # Errors
/// The file's.
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
