//! How late the timers of a job are beside others that compute, in their steps or by
//! `JobContext::compute`; and what a call of that costs.

use std::time::Duration;

use anyhow::{Context, Result};
use reprieve_core::Producer;

use super::large::result;
use super::{Bench, say};
use crate::jobs::{CrunchesArgs, Waited, WaitsArgs};
use crate::journal;
use crate::measure::{Kind, quantile};
use crate::place::{Durability, Place, job};
use crate::wait::until;

const SECTION: &str = "compute";
const ROUNDS: usize = 5;

/// How many jobs compute, in a worker of 64.
const OTHERS: usize = 62;

const WAITS: u32 = 500;
const CALLS: u32 = 20_000;

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for round in 0..bench.rounds(ROUNDS) {
        say(&format!("compute, round {}", round + 1));
        let alone = trial(bench, 0, false).await?;
        let call = Kind::lower(SECTION, "a call of `compute` that does nothing", "µs");
        bench.add(call, alone.call_us);
        note(bench, "alone in the worker", &alone.late_ms);
        for (name, in_step) in [("in their steps", true), ("by `compute`", false)] {
            let beside = trial(bench, OTHERS, in_step).await?;
            note(bench, &format!("beside {OTHERS} jobs that compute {name}"), &beside.late_ms);
        }
    }
    Ok(())
}

fn note(bench: &mut Bench, which: &str, late_ms: &[f64]) {
    for (what, at) in [("median", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let kind = Kind::lower(SECTION, format!("how late a timer is, {which}: {what}"), "ms");
        bench.add(kind, quantile(late_ms, at));
    }
}

async fn trial(bench: &Bench, others: usize, in_step: bool) -> Result<Waited> {
    let place = Place::new(&bench.work, Durability::PowerLoss)?;
    let journal = place.path("journal");
    let args = CrunchesArgs { in_step, journal: journal.clone() };
    let jobs = (0..others).map(|_| job("crunches", &args)).collect::<Result<_>>()?;
    let local = place.enqueue(jobs).await?;
    let worker = place.worker(&["--concurrency", "64"])?;
    let running = || Ok((others == 0 || journal::read(&journal)?.len() >= others).then_some(()));
    until("all others run", PATIENCE, POLL, running).await.with_context(|| worker.log_tail())?;
    let args = WaitsArgs { waits: bench.amount(WAITS, 20), calls: if others == 0 { CALLS } else { 0 } };
    Producer::new(local.store()).enqueue(vec![job("waits", &args)?]).await?;
    let waited = result(&local, &worker).await?;
    worker.kill().await?;
    Ok(waited)
}
