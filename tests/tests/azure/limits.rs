//! Limits of a kind over several workers, and cancelled jobs.

use std::fs;
use std::time::Duration;

use reprieve_core::{Cancel, JobEnd, JobId};
use reprieve_tests::azurite::azurite;
use reprieve_tests::{Sandbox, Walked, Worker, until};

use crate::support::{PATIENCE, Walk, begun, double, emptied, worker};

const LEASE: &str = "3s";

/// Starts a worker that runs at most one walk in the whole fleet.
fn limited(sandbox: &Sandbox) -> Worker {
    let file = sandbox.path("reprieve.toml");
    fs::write(&file, "[kinds.walk]\nin-fleet = 1\n").expect("a file");
    let file = file.to_str().expect("a path in UTF-8");
    worker(sandbox, &["--config", file, "--lease", LEASE, "--budget", "1s", "--concurrency", "4"])
}

/// Returns how often another job was seen in the journal than just before.
fn switches(sandbox: &Sandbox) -> usize {
    let steps = sandbox.journal().read();
    steps.windows(2).filter(|pair| pair[0].job != pair[1].job).count()
}

/// One walk at a time, although its workers are killed.
async fn one_at_a_time(connection_string: &str) {
    const KILLS: usize = 1;
    let sandbox = Sandbox::in_account(connection_string, 1).await;
    let walk = Walk { steps: 20, each_ms: 50 };
    let jobs = walk.enqueue(&sandbox, 3).await;
    let mut workers: Vec<_> = (0..2).map(|_| limited(&sandbox)).collect();
    for kill in 1..=KILLS {
        begun(&sandbox, kill).await;
        let last = sandbox.journal().read().pop().expect("a step");
        let holder = workers.iter_mut().find(|worker| worker.pid() == last.pid).expect("its worker");
        holder.kill();
        *holder = limited(&sandbox);
    }
    emptied(&sandbox, Duration::from_secs(120)).await;
    walk.check(&sandbox, &jobs).await;
    let switches = switches(&sandbox);
    // Each kill may let another job go first. Two at once would alternate at nearly every step.
    assert!(switches < jobs.len() + 2 * KILLS, "{switches} switches between {} jobs", jobs.len());
    for worker in workers {
        worker.stop().await;
    }
    let left = sandbox.store().records.page("reprieve-slot.", None).await.expect("a list").entries;
    assert_eq!(left.len(), 0, "a slot is held by nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_of_a_kind_runs_in_the_fleet_although_workers_are_killed_on_the_double() {
    one_at_a_time(&double().await.connection_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_job_of_a_kind_runs_in_the_fleet_although_workers_are_killed_on_azurite() {
    let Some(azurite) = azurite() else { return };
    one_at_a_time(azurite.connection_string()).await;
}

async fn end(sandbox: &Sandbox, job: &JobId) -> Option<JobEnd<Walked>> {
    sandbox.store().end_of(job).await.expect("an end")
}

/// One job that runs and one that waits, beside one that is not cancelled.
async fn cancelled(connection_string: &str) {
    let sandbox = Sandbox::in_account(connection_string, 1).await;
    let long = Walk { steps: 10_000, each_ms: 50 };
    let runs = long.enqueue(&sandbox, 1).await.remove(0);
    let worker = limited(&sandbox);
    begun(&sandbox, 1).await;
    let waits = long.enqueue(&sandbox, 1).await.remove(0);
    let other = Walk { steps: 5, each_ms: 10 }.enqueue(&sandbox, 1).await.remove(0);
    let jobs = [runs.clone(), waits.clone()];
    let outcomes = sandbox.store().cancel(&jobs).await.expect("an outcome");
    assert!(outcomes.iter().all(|outcome| !matches!(outcome, Cancel::Over(_))), "{outcomes:?}");
    // The other one has the slot only when the first has stopped.
    until("the other job is done", PATIENCE, async || end(&sandbox, &other).await).await;
    let steps = sandbox.journal().read().iter().filter(|step| step.job == runs.as_str()).count();
    emptied(&sandbox, PATIENCE).await;
    for job in &jobs {
        assert_eq!(end(&sandbox, job).await, Some(JobEnd::Cancelled));
    }
    assert_eq!(sandbox.depth().await.poisoned, Some(0));
    let stepped = sandbox.journal().read();
    assert_eq!(stepped.iter().filter(|step| step.job == runs.as_str()).count(), steps, "it went on");
    assert!(stepped.iter().all(|step| step.job != waits.as_str()), "it was run");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_jobs_end_as_such_on_the_double() {
    cancelled(&double().await.connection_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_jobs_end_as_such_on_azurite() {
    let Some(azurite) = azurite() else { return };
    cancelled(azurite.connection_string()).await;
}
