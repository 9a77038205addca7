//! From the death of a worker, killed without notice, until another worker on the machine resumes
//! its job.

use std::time::Duration;

use anyhow::Result;
use reprieve_core::clock::unix_millis;

use super::{Bench, say};
use crate::jobs::TicksArgs;
use crate::journal;
use crate::measure::{Kind, Of};
use crate::place::{Durability, Place, job, started};
use crate::wait::until;

const SECTION: &str = "recovery";
const ROUNDS: usize = 10;

/// The default lease: the upper limit of any recovery, however the death goes unnoticed.
const LEASE_MS: f64 = 60_000.0;

/// Longer than a lease.
const PATIENCE: Duration = Duration::from_secs(90);

const POLL: Duration = Duration::from_millis(5);

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for round in 0..bench.rounds(ROUNDS) {
        say(&format!("recovery, round {}", round + 1));
        let (recovered_ms, redone) = trial(bench).await?;
        let name = "SIGKILL until another worker's first step";
        bench.add(Kind::lower(SECTION, name, "ms").goal(Of::Worst, LEASE_MS), recovered_ms);
        bench.add(Kind::lower(SECTION, "steps redone, of those saved one by one", "steps"), redone);
    }
    Ok(())
}

/// Returns the time until the next step, in milliseconds, and the number of repeated steps.
async fn trial(bench: &Bench) -> Result<(f64, f64)> {
    let place = Place::new(&bench.work, Durability::PowerLoss)?;
    let noted = place.path("journal");
    let args = TicksArgs { ticks: 10_000, tick_ms: 20, journal: noted.clone() };
    let _producer = place.enqueue(vec![job("ticks", &args)?]).await?;
    let each = ["--checkpoint-every", "0s"];
    let worker = place.worker(&each)?;
    let running = || Ok((!journal::read(&noted)?.is_empty()).then_some(()));
    until("the job runs", PATIENCE, POLL, running).await?;
    let other = place.worker(&each)?;
    started(&other).await?;
    let (pid, ticked) = (worker.pid(), journal::read(&noted)?.len());
    // Wait for some steps after the second worker's start, so that it is fully idle.
    let some = || Ok((journal::read(&noted)?.len() > ticked + 10).then_some(()));
    until("the job goes on", PATIENCE, POLL, some).await?;

    let killed_at = unix_millis();
    worker.kill().await?;
    let resumed = || Ok(journal::read(&noted)?.into_iter().find(|tick| tick.pid != pid));
    let first = until("another worker goes on with the job", PATIENCE, POLL, resumed).await?;
    let redone = journal::redone(&journal::read(&noted)?);
    #[expect(clippy::cast_precision_loss, reason = "some milliseconds, and few steps")]
    Ok(((first.at_unix_ms - killed_at) as f64, redone as f64))
}
