//! The memory that a large checkpoint needs besides itself: the peak of a process that saves or
//! loads one, above the peak with a small checkpoint, as a multiple of its length. Measured once
//! for the port alone, which gets the whole checkpoint, and once for a worker with a job.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::jobs::CarriesArgs;
use crate::journal;
use crate::measure::Kind;
use crate::place::job;
use crate::process::Process;
use crate::sections::{Bench, say};
use crate::site;
use crate::tenancy::Tenancy;
use crate::wait::until;

const SECTION: &str = "storage checkpoint";
const ROUNDS: usize = 3;
const SMALL: usize = 4 << 10;
const LARGE: usize = 100 << 20;

const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(10);

/// The peak memory of a process that saves and of one that loads, in bytes.
struct Peaks {
    save: f64,
    load: f64,
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for round in 0..bench.rounds(ROUNDS) {
        say(&format!("{SECTION}, round {}: memory", round + 1));
        let (small, large) = (port(bench, SMALL).await?, port(bench, LARGE).await?);
        note(bench, "the port alone", &small, &large);
        let (small, large) = (worker(bench, SMALL).await?, worker(bench, LARGE).await?);
        note(bench, "a worker and its job", &small, &large);
    }
    Ok(())
}

fn note(bench: &mut Bench, who: &str, small: &Peaks, large: &Peaks) {
    #[expect(clippy::cast_precision_loss, reason = "some megabytes")]
    let payload = LARGE as f64;
    for (what, small, large) in [("save", small.save, large.save), ("load", small.load, large.load)] {
        let name = format!("{what} 100 MiB, {who}: peak memory above that of 4 KiB");
        bench.add(Kind::lower(SECTION, name, "× its length"), (large - small) / payload);
    }
}

async fn port(bench: &Bench, bytes: usize) -> Result<Peaks> {
    let site = site::Kind::DOUBLE.start(&bench.work).await?;
    let tenancy = Tenancy::new(&site, &bench.work).await?;
    let save = done(tenancy.checkpoint("save", bytes)?).await?;
    let load = done(tenancy.checkpoint("load", bytes)?).await?;
    Ok(Peaks { save, load })
}

async fn done(process: Process) -> Result<f64> {
    until("it is done", PATIENCE, POLL, || Ok((process.log_tail() == "done").then_some(())))
        .await
        .with_context(|| process.log_tail())?;
    let peak = process.usage()?.resident_bytes_peak;
    process.kill().await?;
    Ok(peak)
}

/// The first worker's job saves after its first step; the second worker resumes it.
async fn worker(bench: &Bench, bytes: usize) -> Result<Peaks> {
    let site = site::Kind::DOUBLE.start(&bench.work).await?;
    let tenancy = Tenancy::new(&site, &bench.work).await?;
    let args = CarriesArgs { bytes, journal: tenancy.path("journal") };
    tenancy.enqueue(vec![job("carries", &args)?]).await?;
    let mut peaks = [0.0; 2];
    for (number, peak) in peaks.iter_mut().enumerate() {
        let mut worker = tenancy.worker("off", &["--checkpoint-every", "0s", "--concurrency", "1"])?;
        let saved = || Ok((journal::read(&args.journal)?.len() > number).then_some(()));
        until("the checkpoint is saved", PATIENCE, POLL, saved).await.with_context(|| worker.log_tail())?;
        *peak = worker.usage()?.resident_bytes_peak;
        worker.stop().await?;
    }
    let [save, load] = peaks;
    Ok(Peaks { save, load })
}
