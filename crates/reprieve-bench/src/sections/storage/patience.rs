//! The trials that take minutes: a job of ten minutes with the default lease, and an idle worker.
//! The server counts their requests while the rest is measured. Both send a request only every few
//! seconds.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use reprieve_sim::storage::Operation;
use tokio::time::{Instant, sleep};

use super::counting::{self, Counted, Counting};
use super::transactions::SECTION;
use crate::jobs::TicksArgs;
use crate::measure::Kind;
use crate::place::{job, started};
use crate::sections::{Bench, say};
use crate::site;
use crate::tenancy::Tenancy;
use crate::wait::until;

/// The latency of the account. The duration of a save decides how often the worker saves.
const AWAY: site::Kind = site::Kind::Double(Duration::from_millis(10));

/// How long an idle worker takes to reach its longest pause.
const SETTLING: Duration = Duration::from_secs(30);

/// How long an idle worker's requests are counted.
const WATCHED: Duration = Duration::from_mins(9);

/// The duration of the job, in seconds: one step each.
const LONG: u64 = 600;

const HOUR: f64 = 3_600.0;
const MONTH: f64 = 30.0 * 24.0 * HOUR;

/// The requests of both.
#[derive(Debug)]
pub(super) struct Asked {
    long: Result<Counted>,
    /// The counted time, in seconds.
    idle: Result<(Counted, f64)>,
}

/// Runs both at the same time.
pub(super) async fn ask(work: &Path, quick: bool) -> Asked {
    say(&format!("{SECTION}: a job of ten minutes and an idle worker, beside the rest"));
    let (long, idle) = tokio::join!(long(work, quick), idle(work, quick));
    Asked { long, idle }
}

async fn long(work: &Path, quick: bool) -> Result<Counted> {
    let site = AWAY.start(work).await?;
    let (tenancy, server) = (Tenancy::new(&site, work).await?, site.counting()?);
    let flags: &[&str] =
        if quick { &["--lease", "3s", "--budget", "1s", "--checkpoint-every", "2s"] } else { &[] };
    let worker = tenancy.worker("off", &[&["--concurrency", "1"], flags].concat())?;
    started(&worker).await?;
    let ticks = if quick { 8 } else { LONG };
    let args = TicksArgs { ticks, tick_ms: 1_000, journal: tenancy.path("journal") };
    let counting = Counting::begin(server, &tenancy)?;
    tenancy.enqueue(vec![job("ticks", &args)?]).await?;
    let limit = Duration::from_secs(ticks * 2 + 60);
    let done = until("the long job is done", limit, Duration::from_millis(20), || {
        let counted = counting.so_far(server);
        // Its record, if it has one, is removed last.
        let cleared = counted.records == 0 || counted.all.requests(Operation::BlobDelete) == 1;
        let over = counted.all.answered(Operation::Delete, 204) == 1 && cleared;
        Ok(over.then_some(counted))
    });
    let counted = done.await.with_context(|| worker.log_tail())?;
    worker.kill().await?;
    Ok(counted)
}

async fn idle(work: &Path, quick: bool) -> Result<(Counted, f64)> {
    let site = AWAY.start(work).await?;
    let (tenancy, server) = (Tenancy::new(&site, work).await?, site.counting()?);
    let worker = tenancy.worker("off", &[])?;
    started(&worker).await?;
    sleep(if quick { Duration::from_secs(1) } else { SETTLING }).await;
    let (counting, began) = (Counting::begin(server, &tenancy)?, Instant::now());
    sleep(if quick { Duration::from_secs(10) } else { WATCHED }).await;
    let counted = counting.so_far(server);
    let seconds = began.elapsed().as_secs_f64();
    worker.kill().await?;
    Ok((counted, seconds))
}

/// Adds the counts to the measures.
pub(super) fn note(bench: &mut Bench, asked: Asked) {
    match asked.long {
        Ok(counted) => note_long(bench, &counted),
        Err(error) => bench.missed(&format!("{SECTION}, a job of ten minutes"), &error),
    }
    match asked.idle {
        Ok((counted, seconds)) => note_idle(bench, &counted, seconds),
        Err(error) => bench.missed(&format!("{SECTION}, an idle worker"), &error),
    }
}

fn note_long(bench: &mut Bench, counted: &Counted) {
    let mut add = |what: &str, unit, value| {
        let name = format!("a job of ten minutes, 10 ms away: {what}");
        bench.add(Kind::lower(SECTION, name, unit), value);
    };
    add("all", "transactions", counted.by_jobs() - counted.of(Operation::Send));
    add("receives", "transactions", counted.of(Operation::Receive));
    add("renewals", "transactions", counted.of(Operation::Update));
    add("looks for cancelled jobs, and for its result", "transactions", counted.reads_by_jobs());
    add("records written", "transactions", counted.blobs_by_jobs());
    add("deletes, of the message and its record", "transactions", {
        counted.of(Operation::Delete) + counted.of(Operation::BlobDelete)
    });
    add("the worker's own meanwhile", "transactions", counted.by_worker());
    add(
        "a thousand of them, reports and enqueueing included, at list prices",
        "$",
        counting::of(counted) * 1e3,
    );
}

fn note_idle(bench: &mut Bench, counted: &Counted, seconds: f64) {
    let mut add = |what: &str, unit, value| {
        bench.add(Kind::lower(SECTION, format!("an idle worker: {what}"), unit), value);
    };
    let hours = seconds / HOUR;
    add("all", "transactions/h", (counted.by_jobs() + counted.by_worker()) / hours);
    add("receives", "transactions/h", counted.of(Operation::Receive) / hours);
    add("its own reports, and that its machine lives", "transactions/h", counted.by_worker() / hours);
    add("30 days of it, at list prices", "$", counting::of(counted) / seconds * MONTH);
}
