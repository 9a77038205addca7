//! Workers are killed at any moment: every job still completes, with the right result.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_tests::Sandbox;
use reprieve_tests::azurite::azurite;
use tokio::time::{Instant, sleep};

use crate::support::{Walk, double, emptied, worker};

const WORKERS: usize = 2;
const CONCURRENCY: usize = 4;

/// The maximum time in which workers are killed.
const STORM: Duration = Duration::from_secs(8);

/// The lease, after which a dead worker's messages return.
const LEASE: &str = "2s";

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
    let (began, mut kills) = (Instant::now(), 0_usize);
    while began.elapsed() < STORM && sandbox.depth().await.total > 0 {
        // Kill at a random moment: wait for nothing.
        sleep(Duration::from_millis(random.random_range(100..1_200))).await;
        let victim = random.random_range(0..WORKERS);
        workers[victim].kill();
        workers[victim] = worker(&sandbox, &arguments);
        kills += 1;
    }
    // A job that was killed twice at one step is deferred by a minute if the others can't pause in
    // time. With a lease this short they may not be able to.
    emptied(&sandbox, Duration::from_secs(240)).await;

    let left_over = walk.check(&sandbox, &jobs).await;
    let redone = sandbox.journal().redone();
    println!(
        "{kills} kills, done after {:?}; {redone} of {} steps redone, {left_over} checkpoints left over",
        began.elapsed(),
        jobs.len() as u64 * walk.steps
    );
    assert!(kills >= 5, "only {kills} kills: the storm was a breeze");
    // A kill costs each job the step in progress, or the last one if it was not saved yet.
    assert!(redone <= kills * CONCURRENCY, "{redone} steps redone after {kills} kills");
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
