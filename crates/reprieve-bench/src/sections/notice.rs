//! From a notice until every lease is released, with 1, 8, 64 and 256 jobs in flight: jobs that
//! yield, jobs that ignore the interruption, and jobs that block their threads.
//!
//! The worker polls the mock metadata service as it would poll the real one. Two clocks are read.
//! The worker's own report counts from the receipt of the notice; the goals apply to it. The store,
//! watched from outside, counts from the announcement, up to a polling interval earlier.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::Rng;
use reprieve_sim::metadata::{Config, MetadataServer};
use tokio::time::{Instant, sleep};

use super::{Bench, say};
use crate::journal;
use crate::measure::{Kind, Of, quantile};
use crate::place::{Durability, Place, job};
use crate::wait::until;

const SECTION: &str = "notice";
const IN_FLIGHT: [usize; 4] = [1, 8, 64, 256];

/// The longest notice that Azure gives a Spot VM.
const NOTICE: Duration = Duration::from_secs(30);

/// The goals: at p99 for jobs that yield, and for every job.
const YIELDED_MS: f64 = 1_000.0;
const ALWAYS_MS: f64 = 10_000.0;

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// How often the store is read while leases are released: release times are rounded up to this.
const FAST_POLL: Duration = Duration::from_millis(2);

const VM: &str = "bench_0";

/// A kind of job, its name in the results, its release, and its number of rounds.
struct Behavior {
    kind: &'static str,
    name: &'static str,
    released: &'static str,
    rounds: usize,
}

const BEHAVIORS: [Behavior; 3] = [
    Behavior { kind: "yields", name: "jobs that yield", released: "saved", rounds: 10 },
    Behavior { kind: "ignores", name: "jobs that ignore it", released: "cut", rounds: 3 },
    Behavior { kind: "blocks", name: "jobs that block their threads", released: "cut", rounds: 3 },
];

/// The result of one notice, in milliseconds.
struct Drained {
    /// The worker's own report.
    released: f64,
    /// When each lease was seen free, after the announcement.
    freed: Vec<f64>,
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for behavior in &BEHAVIORS {
        for round in 0..bench.rounds(behavior.rounds) {
            for in_flight in IN_FLIGHT {
                if bench.quick && in_flight > 8 {
                    continue;
                }
                say(&format!("notice, round {}: {}, {in_flight} in flight", round + 1, behavior.name));
                let drained = trial(bench, behavior, in_flight).await?;
                note(bench, behavior, in_flight, &drained);
            }
        }
    }
    Ok(())
}

fn note(bench: &mut Bench, behavior: &Behavior, in_flight: usize, drained: &Drained) {
    let name = |what: &str| format!("{}, {in_flight} in flight: {what}", behavior.name);
    let all = Kind::lower(SECTION, name("notice received until all are released"), "ms");
    let yields = behavior.kind == "yields";
    let goal = if yields { all.goal(Of::P99, YIELDED_MS) } else { all.goal(Of::Worst, ALWAYS_MS) };
    bench.add(goal, drained.released);
    for (what, at) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let kind =
            Kind::lower(SECTION, name(&format!("announced until released, {what} of the leases")), "ms");
        bench.add(kind, quantile(&drained.freed, at));
    }
}

async fn trial(bench: &mut Bench, behavior: &Behavior, in_flight: usize) -> Result<Drained> {
    let place = Place::new(&bench.work, Durability::PowerLoss)?;
    let noted = place.path("journal");
    let jobs = (0..in_flight).map(|_| job(behavior.kind, &noted)).collect::<Result<_>>()?;
    let _producer = place.enqueue(jobs).await?;
    let (watch, mock) = (place.watch()?, MetadataServer::start(Config::with_vms([VM])).await?);
    let worker = place.spot_worker(&mock.vm_url(VM), &["--concurrency", &in_flight.to_string()])?;
    let running = || Ok((journal::read(&noted)?.len() >= in_flight).then_some(()));
    let all_run = until("all jobs run", PATIENCE, POLL, running).await;
    all_run.with_context(|| worker.log_tail())?;
    ensure!(watch.free()? == 0, "more jobs ran than are held");
    // Announce at a random moment between two polls.
    sleep(Duration::from_millis(bench.random.random_range(0..1_000))).await;

    mock.evict(VM, NOTICE)?;
    let announced = Instant::now();
    let mut freed = Vec::with_capacity(in_flight);
    let all = until("all leases are released", PATIENCE, FAST_POLL, || {
        let (free, now) = (watch.free()?, announced.elapsed().as_secs_f64() * 1e3);
        freed.resize(free.max(freed.len()), now);
        Ok((freed.len() == in_flight).then_some(()))
    });
    all.await.with_context(|| worker.log_tail())?;
    let report = until("the drain has ended", PATIENCE, POLL, || worker.logged("drained")).await?;
    let count =
        |field: &str| report[field].as_u64().with_context(|| format!("a drain did not log its {field}"));
    ensure!(count(behavior.released)? == in_flight as u64, "not all were released as expected: {report}");
    // Jobs that block their threads do not end by themselves.
    worker.kill().await?;
    mock.stop().await;
    let released = u32::try_from(count("released_after_ms")?)?;
    Ok(Drained { released: f64::from(released), freed })
}
