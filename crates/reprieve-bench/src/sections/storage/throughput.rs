//! No-op jobs from the queue to their deletion, with 64 in flight: the worker, a hand-written loop
//! on the same SDK, bare HTTP, and Celery, in turns.
//!
//! Azurite's calls become slower with longer queues, so the queues are filled in portions. SIGSTOP
//! stops the contestant meanwhile, and the time runs from SIGCONT until the queue is empty. The
//! first portion and the start of the process do not count: in it the contestant opens connections
//! and the worker learns how short its jobs are. Each contestant gets a fresh account.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::measure::{Kind, Of};
use crate::noop::noops;
use crate::peers::Peer;
use crate::process::Process;
use crate::sections::{Bench, say};
use crate::site::{self, Site};
use crate::tenancy::Tenancy;

const SECTION: &str = "storage throughput";
const ROUNDS: usize = 5;
const IN_FLIGHT: &str = "64";

/// The loops' messages in flight: as many as the worker's, which prefetches a batch.
const IN_HAND: &str = "96";

const MIB: f64 = 1_048_576.0;

/// The target speed, as a share of the hand-written loop on each server, and of the peer on
/// Azurite.
const OF_LOOP_ON_AZURITE: f64 = 0.9;
const OF_LOOP_ON_DOUBLE: f64 = 0.9;
const OF_CELERY: f64 = 5.0;

/// The time limit of the first portion, with the contestant's start.
const STARTING: Duration = Duration::from_mins(1);

/// The number of jobs per portion, and of portions.
#[derive(Debug, Clone, Copy)]
struct Amount {
    portion: usize,
    portions: usize,
}

/// A contestant.
#[derive(Debug, Clone, Copy)]
enum Contestant<'a> {
    Ours,
    Sdk,
    Raw,
    Peer(&'a Peer),
}

/// The result of one round of a contestant.
struct Figures {
    jobs_per_second: f64,
    cpu_us_per_job: Option<f64>,
    rss_bytes: Option<f64>,
}

impl Contestant<'_> {
    fn name(self) -> String {
        match self {
            Self::Ours => "ours".to_owned(),
            Self::Sdk => "SDK by hand".to_owned(),
            Self::Raw => "raw HTTP".to_owned(),
            Self::Peer(peer) => peer.id.clone(),
        }
    }

    const fn is_ours(self) -> bool {
        matches!(self, Self::Ours)
    }

    async fn run(self, bench: &Bench, kind: site::Kind, amount: Amount) -> Result<Figures> {
        let site = kind.start(&bench.work).await?;
        match self {
            Self::Peer(peer) => beside(bench, &site, peer, amount.portion).await,
            _ => self.drain(bench, &site, amount).await,
        }
    }

    async fn drain(self, bench: &Bench, site: &Site, amount: Amount) -> Result<Figures> {
        let tenancy = Tenancy::new(site, &bench.work).await?;
        let mut process = match self {
            Self::Ours => tenancy.worker("off", &["--concurrency", IN_FLIGHT])?,
            Self::Sdk => tenancy.by_hand("sdk", IN_HAND)?,
            _ => tenancy.by_hand("raw", IN_HAND)?,
        };
        let drained = portions(&tenancy, &process, amount).await;
        let figures = drained.with_context(|| format!("{}: {}", self.name(), process.log_tail()))?;
        if self.is_ours() {
            process.stop().await?;
            let stopped =
                process.logged("worker stopped")?.context("the worker did not log how it stopped")?;
            let jobs = amount.portion * (amount.portions + 1);
            ensure!(stopped["completed"] == jobs, "not {jobs} jobs were completed: {stopped}");
        } else {
            process.kill().await?;
        }
        Ok(figures)
    }
}

async fn portions(tenancy: &Tenancy<'_>, process: &Process, amount: Amount) -> Result<Figures> {
    let Amount { portion, portions } = amount;
    tenancy.enqueue(noops(portion)?).await?;
    tokio::time::timeout(STARTING, tenancy.emptied(portion)).await.context("it did not begin")??;
    let (mut seconds, mut cpu_seconds) = (0.0, 0.0);
    for _ in 0..portions {
        process.signal_all(Signal::STOP)?;
        tenancy.enqueue(noops(portion)?).await?;
        let before = process.usage()?;
        let began = Instant::now();
        process.signal_all(Signal::CONT)?;
        tenancy.emptied(portion).await?;
        seconds += began.elapsed().as_secs_f64();
        cpu_seconds += process.usage()?.cpu_seconds - before.cpu_seconds;
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let jobs = (portion * portions) as f64;
    Ok(Figures {
        jobs_per_second: jobs / seconds,
        cpu_us_per_job: Some(cpu_seconds / jobs * 1e6),
        rss_bytes: Some(process.usage()?.resident_bytes_peak),
    })
}

/// Measures a peer, which fills its queue and measures itself in the same way.
async fn beside(bench: &Bench, site: &Site, peer: &Peer, jobs: usize) -> Result<Figures> {
    let directory = tempfile::tempdir_in(&bench.work)?;
    let figures = peer.storage(directory.path(), jobs, site.queues()).await?;
    ensure!(figures.completed == jobs, "{} of {jobs} jobs were completed", figures.completed);
    #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
    let jobs = jobs as f64;
    Ok(Figures {
        jobs_per_second: jobs / figures.drain_seconds,
        cpu_us_per_job: figures.cpu_seconds.map(|seconds| seconds / jobs * 1e6),
        rss_bytes: figures.rss_bytes,
    })
}

pub(super) async fn run(bench: &mut Bench, azurite: Option<site::Kind>) -> Result<()> {
    let peers = Rc::clone(&bench.storage_peers);
    let on_azurite = bench.amount(Amount { portion: 384, portions: 8 }, Amount { portion: 96, portions: 2 });
    let on_double =
        bench.amount(Amount { portion: 10_000, portions: 3 }, Amount { portion: 1_000, portions: 2 });
    for round in 0..bench.rounds(ROUNDS) {
        if let Some(azurite) = azurite {
            let peers = peers.iter().map(Contestant::Peer);
            let all = [Contestant::Ours, Contestant::Sdk, Contestant::Raw].into_iter().chain(peers).collect();
            compete(bench, azurite, all, round, on_azurite).await;
        }
        let all = vec![Contestant::Ours, Contestant::Sdk, Contestant::Raw];
        compete(bench, site::Kind::DOUBLE, all, round, on_double).await;
    }
    Ok(())
}

/// Runs every contestant once; each round starts with another one.
async fn compete(
    bench: &mut Bench,
    kind: site::Kind,
    contestants: Vec<Contestant<'_>>,
    round: usize,
    amount: Amount,
) {
    let mut results = Vec::new();
    for at in (0..contestants.len()).map(|at| (at + round) % contestants.len()) {
        let contestant = contestants[at];
        let name = format!("{}, on {}", contestant.name(), kind.name());
        say(&format!("{SECTION}, round {}: {name}", round + 1));
        match contestant.run(bench, kind, amount).await {
            Ok(figures) => results.push((at, contestant, figures)),
            Err(error) => bench.missed(&format!("{SECTION}: {name}"), &error),
        }
    }
    // In the original order, whichever ran first.
    results.sort_by_key(|(at, ..)| *at);
    for (_, contestant, figures) in &results {
        note(bench, kind, *contestant, figures);
    }
    let ours = results.iter().find(|(_, contestant, _)| contestant.is_ours());
    let Some((_, _, ours)) = ours else { return };
    for (_, them, theirs) in results.iter().filter(|(_, contestant, _)| !contestant.is_ours()) {
        let name = format!("drain, {}: ours ÷ {}", kind.name(), them.name());
        let measure = Kind::higher(SECTION, name, "×");
        let goal = goal(kind, *them);
        let measure = goal.map_or(measure.clone(), |goal| measure.goal(Of::Median, goal));
        bench.add(measure, ours.jobs_per_second / theirs.jobs_per_second);
    }
}

fn goal(kind: site::Kind, them: Contestant<'_>) -> Option<f64> {
    match (kind, them) {
        (site::Kind::Azurite, Contestant::Sdk) => Some(OF_LOOP_ON_AZURITE),
        (site::Kind::Double(_), Contestant::Sdk) => Some(OF_LOOP_ON_DOUBLE),
        (site::Kind::Azurite, Contestant::Peer(peer)) if peer.id == "celery" => Some(OF_CELERY),
        _ => None,
    }
}

fn note(bench: &mut Bench, kind: site::Kind, who: Contestant<'_>, figures: &Figures) {
    let name = |what: &str| format!("{what}, {}: {}", kind.name(), who.name());
    let reference = !who.is_ours();
    bench.add(Kind::higher(SECTION, name("drain"), "jobs/s").reference(reference), figures.jobs_per_second);
    if let Some(cpu) = figures.cpu_us_per_job {
        bench.add(Kind::lower(SECTION, name("processor time per job"), "µs").reference(reference), cpu);
    }
    if let Some(rss) = figures.rss_bytes {
        bench.add(Kind::lower(SECTION, name("memory"), "MiB").reference(reference), rss / MIB);
    }
}
