//! A worker process.
//!
//! Settings, each with its reason:
//!
//! - A `Monitor` with `run_with_signal` on SIGTERM and `shutdown_timeout`, the documentation's graceful shutdown.
//!   5 seconds, as a Spot notice may leave 10.
//! - A worker that fails is started again (`should_restart`), three times as in the documentation.
//! - `parallelize(tokio::spawn)` as in the README: jobs run on every core. The number of jobs at a time is not limited.
//! - `poll_with_interval`, as in the SQLite crate's example: without a poll strategy an idle worker looks at the queue
//!   only at its heartbeat.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, SystemTime};

use apalis::prelude::*;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::queue::{self, Job};

const POLL: Duration = Duration::from_millis(100);
const SHUTDOWN: Duration = Duration::from_secs(5);
const RESTARTS: usize = 3;

/// Works until SIGTERM.
pub async fn run(dir: &Path) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let pool = queue::open(dir).await?;
    let dir = dir.to_owned();
    Monitor::new()
        .register(move |restart| {
            // Every worker needs a name of its own: it is how the others tell that it is dead.
            WorkerBuilder::new(format!("worker-{}-{restart}", process::id()))
                .backend(queue::of(&pool).poll_with_interval(POLL))
                .parallelize(tokio::spawn)
                .data(dir.clone())
                .build(perform)
        })
        .should_restart(|worker, _| worker.restarts() < RESTARTS)
        .shutdown_timeout(SHUTDOWN)
        .run_with_signal(async move {
            terminate.recv().await;
            Ok(())
        })
        .await?;
    Ok(())
}

async fn perform(job: Job, dir: Data<PathBuf>) -> Result<(), BoxDynError> {
    match job {
        Job::Noop { .. } => Ok(()),
        Job::Ticks { count, milliseconds } => {
            Ok(tick(&dir.join("journal"), count, Duration::from_millis(milliseconds)).await?)
        }
    }
}

/// Appends a line to the journal at each tick, and starts again from the first one when it is run again.
async fn tick(journal: &Path, count: u64, pause: Duration) -> io::Result<()> {
    let mut journal = OpenOptions::new().append(true).create(true).open(journal)?;
    for tick in 0..count {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_err(io::Error::other)?;
        let line = format!("{} {} {tick}\n", now.as_millis(), process::id());
        journal.write_all(line.as_bytes())?;
        sleep(pause).await;
    }
    Ok(())
}
