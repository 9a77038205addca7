//! Any process is killed at any moment: every job still completes, once.

use std::path::Path;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_tests::{Sandbox, Walked, Worker, until};
use serde_json::json;
use tokio::time::{Instant, sleep};

const JOBS: usize = 24;
const STEPS: u64 = 60;
const EACH_MS: u64 = 15;
const WORKERS: usize = 2;
const CONCURRENCY: usize = 2;

/// How long workers are killed.
const STORM: Duration = Duration::from_secs(15);

fn worker(sandbox: &Sandbox) -> Worker {
    let concurrency = CONCURRENCY.to_string();
    let arguments = ["--metadata-url", "off", "--concurrency", &concurrency, "--checkpoint-every", "0s"];
    Worker::start(sandbox, Path::new(env!("CARGO_BIN_EXE_test-jobs")), arguments)
}

#[tokio::test]
async fn every_job_completes_though_workers_are_killed_at_random_instants() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let sandbox = Sandbox::new().await;
    let walk = json!({"steps": STEPS, "each_ms": EACH_MS, "journal": sandbox.journal().path()});
    let jobs = sandbox.enqueue("walk", vec![walk; JOBS]).await;

    let mut workers: Vec<_> = (0..WORKERS).map(|_| worker(&sandbox)).collect();
    let (began, mut kills) = (Instant::now(), 0_usize);
    while began.elapsed() < STORM && sandbox.depth().await.total > 0 {
        // Kill at a random moment: wait for nothing.
        sleep(Duration::from_millis(random.random_range(50..900))).await;
        let victim = random.random_range(0..WORKERS);
        workers[victim].kill();
        workers[victim] = worker(&sandbox);
        kills += 1;
    }
    let calm = Duration::from_secs(60);
    until("the queue is empty", calm, async || (sandbox.depth().await.total == 0).then_some(())).await;

    assert_eq!(sandbox.depth().await.poisoned, Some(0), "{:?}", sandbox.dead_letters().await);
    for job in &jobs {
        let walked: Walked = sandbox.result(job).await.expect("every job has a result");
        assert_eq!(walked.sum, STEPS * (STEPS - 1) / 2, "no step was left out or counted twice");
        assert_eq!(sandbox.count(&format!("walks/{job}/")).await as u64, STEPS);
    }
    assert_eq!(sandbox.count("results/").await, JOBS);
    let redone = sandbox.journal().redone();
    println!("{kills} kills in {:?}, {redone} steps of {} redone", began.elapsed(), JOBS as u64 * STEPS);
    assert!(kills >= 5, "only {kills} kills: the storm was a breeze");
    // A kill costs each job the step in progress, or the last one if it was not saved yet.
    assert!(redone <= kills * CONCURRENCY, "{redone} steps redone after {kills} kills");
    for worker in workers {
        worker.stop().await;
    }
}

/// Starts one worker after another until the queue is empty. A job aborts each of them. Returns the
/// number of deaths.
async fn restarted_until_empty(sandbox: &Sandbox, deaths_max: usize) -> usize {
    let arguments = ["--metadata-url", "off", "--concurrency", "8", "--checkpoint-every", "0s"];
    for deaths in 0..=deaths_max {
        let mut running = Worker::start(sandbox, Path::new(env!("CARGO_BIN_EXE_test-jobs")), arguments);
        let empty = until("the worker died or the queue is empty", Duration::from_secs(90), async || {
            if running.has_ended() {
                return Some(false);
            }
            (sandbox.depth().await.total == 0).then_some(true)
        });
        if empty.await {
            running.stop().await;
            return deaths;
        }
    }
    panic!("{deaths_max} deaths were not enough to find the killer: {:?}", sandbox.depth().await);
}

#[tokio::test]
async fn a_job_that_aborts_its_worker_is_poisoned_alone_wherever_it_does_that() {
    for (at, deaths_max) in [("args", 3), ("begin", 3), ("step", 4), ("hundredth", 5), ("state", 4)] {
        let sandbox = Sandbox::new().await;
        let walk = json!({"steps": 40, "each_ms": 100, "journal": sandbox.journal().path()});
        let sound = sandbox.enqueue("walk", vec![walk.clone(); 3]).await;
        let killer = sandbox.enqueue("killer", [at]).await.remove(0);
        let more = sandbox.enqueue("walk", vec![walk; 4]).await;
        let deaths = restarted_until_empty(&sandbox, deaths_max).await;
        let letters = sandbox.dead_letters().await;
        assert_eq!(letters.len(), 1, "{at}: {letters:?}");
        let reason = letters[0].reason.clone().unwrap_or_default();
        assert!(reason.contains("the death of their worker"), "{at}: {reason}");
        assert!(
            String::from_utf8_lossy(&letters[0].body).contains(killer.as_str()),
            "{at}: it is the killer"
        );
        for job in sound.iter().chain(&more) {
            let walked: Walked = sandbox.result(job).await.expect("a sound job has a result");
            assert_eq!(walked.sum, 40 * 39 / 2, "{at}");
        }
        println!("{at}: {deaths} deaths, {} steps redone", sandbox.journal().redone());
    }
}
