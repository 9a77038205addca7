//! Shared by these tests.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use reprieve_core::JobId;
use reprieve_core::record::{Record, Status};
use reprieve_sim::storage::{Config, StorageServer};
use reprieve_tests::{Line, Sandbox, Walked, Worker, until};
use serde_json::{Value, json};
use tokio::time::sleep;

/// The time limit of an undisturbed operation, on a machine that may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How often a test polls a store: each poll costs the store as much as a worker's call.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A walk: its number of steps, each of which writes an output, and their duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) steps: u64,
    pub(crate) each_ms: u64,
}

impl Walk {
    /// Enqueues this number of walks.
    pub(crate) async fn enqueue(self, sandbox: &Sandbox, jobs: usize) -> Vec<JobId> {
        sandbox.enqueue("walk", vec![self.args(sandbox); jobs]).await
    }

    fn args(self, sandbox: &Sandbox) -> Value {
        json!({"steps": self.steps, "each_ms": self.each_ms, "journal": sandbox.journal().path()})
    }

    /// Checks that every job is completed once with the right result, and that none is poisoned.
    /// Returns the number of leftover records, except those that mark a finished job: their worker
    /// died or lost the job between settling it and cleaning up.
    pub(crate) async fn check(self, sandbox: &Sandbox, jobs: &[JobId]) -> usize {
        assert_eq!(sandbox.depth().await.poisoned, Some(0), "{:?}", sandbox.dead_letters().await);
        let mut left_over = 0;
        for job in jobs {
            let walked: Walked = sandbox.result(job).await.expect("every job has a result");
            assert_eq!(walked.sum, self.sum(), "no step was left out or counted twice");
            assert_eq!(sandbox.count(&format!("walks/{job}/")).await as u64, self.steps);
            let record = sandbox.record(job).await;
            // The record of a finished job stays only where its worker died before it was removed.
            let is_mark = |record: &Record| record.status == Status::Done && record.expires_unix_ms.is_some();
            left_over += usize::from(record.is_some_and(|record| !is_mark(&record)));
        }
        left_over
    }

    /// Returns the digest of a whole walk.
    pub(crate) const fn sum(self) -> u64 {
        self.steps * (self.steps - 1) / 2
    }
}

/// Starts a test's own storage double.
pub(crate) async fn double() -> StorageServer {
    StorageServer::start(Config::default()).await.expect("a storage double")
}

/// Starts a worker with the test jobs. Without a metadata service unless `arguments` name one.
pub(crate) fn worker(sandbox: &Sandbox, arguments: &[&str]) -> Worker {
    let off: &[&str] = if arguments.contains(&"--metadata-url") { &[] } else { &["--metadata-url", "off"] };
    Worker::start(sandbox, Path::new(env!("CARGO_BIN_EXE_test-jobs")), [off, arguments].concat())
}

/// Waits until this number of different jobs has begun.
pub(crate) async fn begun(sandbox: &Sandbox, jobs: usize) {
    until(&format!("{jobs} jobs have begun"), PATIENCE, async || {
        let begun: BTreeSet<_> = sandbox.journal().read().into_iter().map(|stepped| stepped.job).collect();
        (begun.len() >= jobs).then_some(())
    })
    .await;
}

/// Waits until this worker has begun this number of different jobs.
pub(crate) async fn begun_by(sandbox: &Sandbox, worker: &Worker, jobs: usize) {
    until(&format!("the worker has begun {jobs} jobs"), PATIENCE, async || {
        let steps = sandbox.journal().read().into_iter().filter(|stepped| stepped.pid == worker.pid());
        (steps.map(|stepped| stepped.job).collect::<BTreeSet<_>>().len() >= jobs).then_some(())
    })
    .await;
}

/// Waits until no message is left.
pub(crate) async fn emptied(sandbox: &Sandbox, limit: Duration) {
    until("the queue is empty", limit, async || {
        let left = sandbox.depth().await.total;
        if left > 0 {
            sleep(LOOK_EVERY).await;
        }
        (left == 0).then_some(())
    })
    .await;
}

/// Waits for the report of a drain in the worker's log.
pub(crate) async fn drained(worker: &Worker) -> Drained {
    until("the worker has drained", PATIENCE, async || worker.log().lines("drained").pop()).await.into()
}

/// The fields of a drain's log line that tests use.
#[derive(Debug)]
pub(crate) struct Drained {
    pub(crate) held: u64,
    pub(crate) unstarted: u64,
    pub(crate) saved: u64,
    pub(crate) cut: u64,
    pub(crate) finished: u64,
    pub(crate) leases_lost: u64,
    pub(crate) abandoned: u64,
    pub(crate) work_lost: Duration,
    /// From the notice until the last message was released or abandoned.
    pub(crate) released_after: Duration,
}

impl From<Line> for Drained {
    fn from(line: Line) -> Self {
        Self {
            held: line.number("held"),
            unstarted: line.number("unstarted"),
            saved: line.number("saved"),
            cut: line.number("cut"),
            finished: line.number("finished"),
            leases_lost: line.number("leases_lost"),
            abandoned: line.number("abandoned"),
            work_lost: Duration::from_millis(line.number("work_lost_ms")),
            released_after: Duration::from_millis(line.number("released_after_ms")),
        }
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, unstarted, saved, cut, finished, leases_lost, abandoned, work_lost, released_after } =
            self;
        write!(
            f,
            "notice to released {} ms: of {held} held, {unstarted} unstarted, {saved} saved, {cut} cut, {finished} \
             finished, {leases_lost} lost, {abandoned} abandoned; {} ms of work lost",
            released_after.as_millis(),
            work_lost.as_millis()
        )
    }
}

/// Returns the number of logged job failures: attempts that count against the job.
pub(crate) fn failures(worker: &Worker) -> usize {
    worker.log().lines("a job failed; retrying it").len()
}

/// Reads a gauge of a worker that was started with `--listen 127.0.0.1:0`.
pub(crate) fn gauge(worker: &Worker, name: &str) -> Option<u64> {
    let answer = worker.get("/metrics")?;
    answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}
