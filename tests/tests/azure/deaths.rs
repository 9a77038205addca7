//! Workers are killed at any moment: every job still completes, with the right result.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::Redrive;
use reprieve_tests::azurite::azurite;
use reprieve_tests::{Log, Sandbox};
use tokio::time::{Instant, sleep};

use crate::support::{Walk, double, emptied, worker};

const WORKERS: usize = 2;
const CONCURRENCY: usize = 4;

/// The maximum time in which workers are killed.
const STORM: Duration = Duration::from_secs(8);

/// The lease, after which a dead worker's messages return.
const LEASE: &str = "2s";

/// Returns how many jobs a worker lost to another one while it lived: a busy machine can delay a
/// renewal until the lease has ended.
fn lapses(log: &Log) -> usize {
    let lost = log.lines("the job's lease was lost; the job is cancelled and nothing is settled");
    let superseded = log
        .lines("another owner of the job wrote to the store; the job is cancelled and its message released");
    lost.len() + superseded.len()
}

/// Kills workers while they do `jobs` walks.
async fn storm(connection_string: &str, walk: Walk, jobs: usize) {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let sandbox = Sandbox::in_account(connection_string, 1).await;
    let jobs = walk.enqueue(&sandbox, jobs).await;

    let concurrency = CONCURRENCY.to_string();
    let arguments =
        ["--concurrency", &concurrency, "--checkpoint-every", "0s", "--lease", LEASE, "--budget", "1s"];
    let mut workers: Vec<_> = (0..WORKERS).map(|_| worker(&sandbox, &arguments)).collect();
    let mut logs: Vec<_> = workers.iter().map(|worker| worker.log().clone()).collect();
    let (began, mut kills) = (Instant::now(), 0_usize);
    while began.elapsed() < STORM && sandbox.depth().await.total > 0 {
        // Kill at a random moment: wait for nothing.
        sleep(Duration::from_millis(random.random_range(100..1_200))).await;
        let victim = random.random_range(0..WORKERS);
        workers[victim].kill();
        workers[victim] = worker(&sandbox, &arguments);
        logs.push(workers[victim].log().clone());
        kills += 1;
    }
    // A job that was killed twice at one step is deferred by a minute if the others can't pause in
    // time. With a lease this short they may not be able to.
    emptied(&sandbox, Duration::from_secs(240)).await;
    let letters = sandbox.dead_letters().await;
    if !letters.is_empty() {
        // A job whose worker was killed three times before it moved, at last while it ran alone, looks like one that
        // kills. It is not lost.
        let died = |reason: &String| reason.contains("the death of their worker");
        assert!(letters.iter().all(|letter| letter.reason.as_ref().is_some_and(died)), "{letters:?}");
        assert!(letters.len() <= kills / 3, "{kills} kills, {letters:?}");
        sandbox.store().redrive(&Redrive::All).await.expect("a redrive");
        emptied(&sandbox, Duration::from_secs(240)).await;
    }

    let left_over = walk.check(&sandbox, &jobs).await;
    let (redone, lapses) = (sandbox.journal().redone(), logs.iter().map(lapses).sum::<usize>());
    println!(
        "{kills} kills, {lapses} lost leases, done after {:?}; {redone} of {} steps redone, {left_over} \
         checkpoints left over",
        began.elapsed(),
        jobs.len() as u64 * walk.steps
    );
    assert!(kills >= 5, "only {kills} kills: the storm was a breeze");
    // A kill costs each of the worker's jobs the step in progress, or the last one if it was not saved
    // yet; a lost lease costs its job the same.
    let cost = kills * CONCURRENCY + lapses;
    assert!(redone <= cost, "{redone} steps redone after {kills} kills and {lapses} lost leases");
    // Only a worker that dies between settling a job and cleaning up leaves its record.
    assert!(left_over <= kills * CONCURRENCY, "{left_over} checkpoints left over after {kills} kills");
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_killed_at_random_instants_lose_nothing_on_the_double() {
    let double = double().await;
    storm(&double.connection_string(), Walk { steps: 40, each_ms: 20 }, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_killed_at_random_instants_lose_nothing_on_azurite() {
    let Some(azurite) = azurite() else { return };
    storm(azurite.connection_string(), Walk { steps: 20, each_ms: 50 }, 24).await;
}
