//! No-op jobs, enqueued and then drained through the whole worker: Reprieve, hand-written SQLite,
//! and the peers, in turn.

use std::rc::Rc;

use anyhow::Result;

use super::{Bench, say};
use crate::contest::Contestant;
use crate::measure::{Kind, Of};
use crate::noop::Figures;
use crate::peers::Peer;
use crate::place::Durability;

const SECTION: &str = "throughput";
const JOBS: usize = 50_000;
const ROUNDS: usize = 3;
const PROCESSES: [usize; 2] = [1, 4];

/// A typical setting for jobs that only wait. The default, the number of cores, is for jobs that
/// compute, and is measured, too.
const CONCURRENCY: &str = "64";

const MIB: f64 = 1_048_576.0;

/// The target speedup.
const OF_RAW: f64 = 0.5;
const OF_PEERS: [(&str, f64); 3] = [("apalis", 3.0), ("huey", 6.0), ("bullmq", 1.0)];

/// The contestants of a round and their figures.
type Results<'a> = Vec<(Contestant<'a>, Figures)>;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let jobs = bench.amount(JOBS, 2_000);
    let peers = Rc::clone(&bench.peers);
    for round in 0..bench.rounds(ROUNDS) {
        for processes in PROCESSES {
            let results = compete(bench, contestants(&peers, processes), round, jobs, processes).await;
            #[expect(clippy::cast_precision_loss, reason = "as many jobs as a disk holds")]
            let jobs = jobs as f64;
            note_rates(bench, jobs, processes, &results);
            note_ratios(bench, processes, &results);
        }
    }
    Ok(())
}

fn contestants(peers: &[Peer], processes: usize) -> Vec<Contestant<'_>> {
    let mut all = Durability::ALL.map(|durability| Contestant::Ours(durability, CONCURRENCY)).to_vec();
    if processes == 1 {
        all.push(Contestant::Ours(Durability::PowerLoss, "auto"));
    }
    // One thread, whatever the number of worker processes.
    all.extend(Durability::ALL.map(Contestant::Raw));
    all.extend(peers.iter().map(Contestant::Peer));
    all
}

/// Runs every contestant once; each round starts with another one. The results are in the original
/// order.
async fn compete<'a>(
    bench: &mut Bench,
    contestants: Vec<Contestant<'a>>,
    round: usize,
    jobs: usize,
    processes: usize,
) -> Results<'a> {
    let mut results = Vec::new();
    for at in (0..contestants.len()).map(|at| (at + round) % contestants.len()) {
        let (contestant, name) = (contestants[at], contestants[at].name());
        say(&format!("throughput, round {}: {name}, {}", round + 1, with(processes)));
        match contestant.run(&bench.work, jobs, processes).await {
            Ok(figures) => results.push((at, contestant, figures)),
            Err(error) => bench.missed(&format!("{SECTION}, {}: {name}", with(processes)), &error),
        }
    }
    results.sort_by_key(|(at, ..)| *at);
    results.into_iter().map(|(_, contestant, figures)| (contestant, figures)).collect()
}

/// Reads one value from a contestant's figures.
type Value = fn(&Figures) -> Option<f64>;

/// The durations that become jobs per second.
const WITH_WORKERS: [(&str, Value); 2] = [
    ("drain", |figures| Some(figures.drain_seconds)),
    ("enqueue and drain", |figures| Some(figures.together_seconds())),
];

/// The same while no worker runs, so that the number of workers makes no difference.
const WITHOUT_WORKERS: [(&str, Value); 2] = [
    ("enqueue one at a time", |figures| Some(figures.enqueue_seconds)),
    ("enqueue in batches", |figures| figures.enqueue_batch_seconds),
];

/// The costs of a drain.
const COSTS: [(&str, &str, Value); 3] = [
    ("processor time of a drain", "s", |figures| figures.cpu_seconds),
    ("a server's processor time of a drain", "s", |figures| figures.server_cpu_seconds),
    ("memory of a worker", "MiB", |figures| figures.rss_bytes.map(|bytes| bytes / MIB)),
];

/// Returns the rates to compare: as many jobs in less time.
fn compared(processes: usize) -> impl Iterator<Item = (&'static str, Value)> {
    let without = WITHOUT_WORKERS.into_iter().filter(move |_| processes == 1);
    WITH_WORKERS.into_iter().chain(without)
}

fn note_rates(bench: &mut Bench, jobs: f64, processes: usize, results: &Results<'_>) {
    let named = |what: &str, who: &Contestant<'_>| format!("{what}, {}: {}", with(processes), who.name());
    for (what, seconds) in compared(processes) {
        for (who, figures) in results {
            let Some(seconds) = seconds(figures) else { continue };
            let kind = Kind::higher(SECTION, named(what, who), "jobs/s").reference(!who.is_ours());
            bench.add(kind, jobs / seconds);
        }
    }
    for (what, unit, cost) in COSTS {
        for (who, figures) in results {
            let Some(cost) = cost(figures) else { continue };
            bench.add(Kind::lower(SECTION, named(what, who), unit).reference(!who.is_ours()), cost);
        }
    }
}

/// Adds the speed of each of Reprieve's contestants as a multiple of each other contestant's in the
/// same round.
fn note_ratios(bench: &mut Bench, processes: usize, results: &Results<'_>) {
    for (us, ours) in results {
        for (them, theirs) in results.iter().filter(|(them, _)| are_rivals(us, them)) {
            for (what, seconds) in compared(processes) {
                let (Some(ours), Some(theirs)) = (seconds(ours), seconds(theirs)) else { continue };
                let name = format!("{what}, {}: {} ÷ {}", with(processes), us.name(), them.name());
                let kind = Kind::higher(SECTION, name, "×");
                // The goals apply to draining, alone and with enqueueing.
                let goal = goal(us, them).filter(|_| WITH_WORKERS.iter().any(|(goals, _)| *goals == what));
                bench.add(goal.map_or(kind.clone(), |goal| kind.goal(Of::Median, goal)), theirs / ours);
            }
        }
    }
}

/// Hand-written SQLite is compared only at the same durability. The peers' durability is their own
/// choice.
fn are_rivals(us: &Contestant<'_>, them: &Contestant<'_>) -> bool {
    match (us, them) {
        (Contestant::Ours(_, "auto"), _) => false,
        (Contestant::Ours(ours, _), Contestant::Raw(theirs)) => ours == theirs,
        (us, Contestant::Peer(_)) => us.is_ours(),
        _ => false,
    }
}

/// Returns the target speedup. Our default, which survives a power loss, should outrun the peers.
fn goal(us: &Contestant<'_>, them: &Contestant<'_>) -> Option<f64> {
    match (us, them) {
        (_, Contestant::Raw(_)) => Some(OF_RAW),
        (Contestant::Ours(Durability::PowerLoss, _), Contestant::Peer(peer)) => {
            OF_PEERS.iter().find(|(id, _)| *id == peer.id).map(|(_, goal)| *goal)
        }
        _ => None,
    }
}

fn with(processes: usize) -> String {
    if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_that_of_the_same_durability() {
        let [lasting, fast] = Durability::ALL.map(|durability| Contestant::Ours(durability, CONCURRENCY));
        let [ceiling, other] = Durability::ALL.map(Contestant::Raw);
        assert!(are_rivals(&lasting, &ceiling) && are_rivals(&fast, &other));
        assert!(
            !are_rivals(&lasting, &other) && !are_rivals(&lasting, &fast) && !are_rivals(&ceiling, &lasting)
        );
        assert!(!are_rivals(&Contestant::Ours(Durability::PowerLoss, "auto"), &ceiling));
        assert_eq!(goal(&fast, &other), Some(OF_RAW));
    }

    #[test]
    fn enqueueing_is_reported_once() {
        let names = |processes| compared(processes).map(|(what, _)| what).collect::<Vec<_>>();
        assert_eq!(names(4), ["drain", "enqueue and drain"]);
        assert_eq!(names(1).len(), 4);
    }
}
