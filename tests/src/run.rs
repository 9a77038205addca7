//! A run of the thumbnails example over a directory of pictures: its store, workers and VMs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reprieve_core::clock::unix_millis;
use reprieve_core::ports::WorkerReport;
use reprieve_core::worker::DrainReport;
use reprieve_sim::control::evict;
use reprieve_sim::metadata::{Config, MetadataServer};
use serde::Deserialize;
use tokio::time::sleep;

use crate::{Line, Log, Sandbox, Worker, binary, until};

/// The time limit of any wait.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often the queue is checked for being empty.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// A job's result.
#[derive(Debug, Deserialize)]
pub struct Made {
    /// The number of thumbnails made.
    pub done: usize,
    /// The pictures that could not be read.
    pub failed: Vec<Unreadable>,
}

/// A picture without a thumbnail.
#[derive(Debug, Deserialize)]
pub struct Unreadable {
    /// The picture's name.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// A run that has not finished.
#[derive(Debug)]
pub struct Run {
    thumbnails: PathBuf,
    sandbox: Sandbox,
    mock: MetadataServer,
    batch: usize,
    /// The additional flags of its workers.
    flags: &'static [&'static str],
}

/// The result of a run.
#[derive(Debug)]
pub struct Finished {
    /// The thumbnails' bytes by name.
    pub thumbnails: BTreeMap<String, Vec<u8>>,
    /// The jobs' results.
    pub results: Vec<Made>,
}

/// The cost of an eviction and a kill.
#[derive(Debug)]
pub struct Cost {
    /// The report of the evicted worker's drain.
    pub drain: DrainReport,
    /// From the kill until another worker had finished the next picture of the killed worker's job,
    /// in milliseconds.
    pub recovered_ms: i64,
    /// The number of thumbnails that were made more than once.
    pub again: usize,
}

/// A picture that a worker has finished.
struct Done {
    job: String,
    name: String,
    at_unix_ms: i64,
}

fn vm(number: usize) -> String {
    format!("spot_{number}")
}

impl Run {
    /// Enqueues all of `photos`, `batch` to a job, for thumbnails of `size`.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn over(photos: &Path, size: u32, batch: usize) -> Self {
        let run = Self::prepared(Sandbox::new().await, batch, &[]).await;
        run.enqueue(size, &std::path::absolute(photos).expect("a path"));
        run
    }

    /// Enqueues all pictures that are already in the store of `sandbox`, as [`over`](Self::over).
    /// `flags` are additional flags of its workers.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn over_uploads(
        sandbox: Sandbox,
        size: u32,
        batch: usize,
        flags: &'static [&'static str],
    ) -> Self {
        let run = Self::prepared(sandbox, batch, flags).await;
        run.enqueue(size, Path::new("--uploaded"));
        run
    }

    async fn prepared(sandbox: Sandbox, batch: usize, flags: &'static [&'static str]) -> Self {
        let mock = MetadataServer::start(Config::with_vms((0..4).map(vm))).await.expect("a mock");
        Self { thumbnails: binary("thumbnails"), sandbox, mock, batch, flags }
    }

    fn enqueue(&self, size: u32, what: &Path) {
        let mut command = Command::new(&self.thumbnails);
        command.args(["enqueue", "--size", &size.to_string(), "--batch", &self.batch.to_string()]);
        command.arg(what).current_dir(self.sandbox.directory()).env_clear();
        self.sandbox.point(&mut command);
        let enqueued = command.output().expect("thumbnails");
        assert!(enqueued.status.success(), "{}", String::from_utf8_lossy(&enqueued.stderr));
    }

    /// Starts a worker on VM number `number`. It processes one picture at a time and saves after
    /// each.
    fn worker(&self, number: usize) -> Worker {
        let url = self.mock.vm_url(&vm(number));
        let each = ["work", "--metadata-url", &url, "--concurrency", "1", "--checkpoint-every", "0s"];
        Worker::start(&self.sandbox, &self.thumbnails, each.into_iter().chain(self.flags.iter().copied()))
    }

    /// Runs two workers to the end, undisturbed.
    ///
    /// # Panics
    /// When they do not finish in time.
    pub async fn undisturbed(self) -> Finished {
        let workers = [self.worker(0), self.worker(1)];
        self.finish(workers).await
    }

    /// Runs two workers, evicts one when a quarter of `expected` thumbnails is made, and kills the
    /// other at half. Each is replaced.
    ///
    /// # Panics
    /// When either comes too late to matter, or a worker does not do its part in time.
    pub async fn disturbed(self, expected: usize) -> (Finished, Cost) {
        let (evicted, mut killed) = (self.worker(0), self.worker(1));
        made(expected / 4, &[&evicted, &killed]).await;
        evict(&self.mock.url(), &vm(0), Duration::from_secs(30)).await.expect("an eviction");
        let drained = async || (!evicted.log().lines("drained").is_empty()).then_some(());
        until("the evicted worker has drained", PATIENCE, drained).await;
        let third = self.worker(2);

        made(expected / 2, &[&evicted, &killed, &third]).await;
        let busy = "the worker to be killed is in the middle of a batch";
        let job = until(busy, PATIENCE, async || self.half_done(&killed, &[&evicted, &killed, &third])).await;
        let killed_at = unix_millis();
        killed.kill();
        assert!(self.sandbox.count("thumbnails/").await < expected, "it was killed too late to matter");
        let fourth = self.worker(3);
        // In a storage account the report may take a while, and the others must not finish before
        // it.
        let drained = |report: &WorkerReport| report.last_drain.is_some();
        let report = evicted.reports(&self.sandbox, "the evicted worker reports its drain", drained).await;
        let logs = [&evicted, &killed, &third, &fourth].map(|worker| worker.log().clone());
        let finished = self.finish([evicted, third, fourth]).await;

        let done: Vec<_> = logs.iter().flat_map(steps).collect();
        let names: BTreeSet<_> = done.iter().map(|step| &step.name).collect();
        let cost = Cost {
            drain: report.last_drain.expect("a drain"),
            recovered_ms: recovered(&job, &done, killed_at),
            again: done.len() - names.len(),
        };
        (finished, cost)
    }

    /// The batch that `worker` has begun and that still needs more than one picture.
    fn half_done(&self, worker: &Worker, all: &[&Worker]) -> Option<String> {
        let job = steps(worker.log()).pop()?.job;
        let every = all.iter().flat_map(|worker| steps(worker.log()));
        let done: BTreeSet<_> = every.filter(|step| step.job == job).map(|step| step.name).collect();
        (done.len() + 1 < self.batch).then_some(job)
    }

    /// Waits until no job is left, and checks that no job was dead-lettered.
    async fn finish(&self, workers: impl IntoIterator<Item = Worker>) -> Finished {
        let empty = async || {
            // An emulator that is polled all the time has time for little else.
            sleep(ASK_EVERY).await;
            (self.sandbox.depth().await.total == 0).then_some(())
        };
        until("the queue is empty", PATIENCE, empty).await;
        assert_eq!(self.sandbox.depth().await.poisoned, Some(0));
        let results = self.sandbox.blobs("results/").await.into_values();
        let results = results.map(|json| serde_json::from_slice(&json).expect("a result")).collect();
        for worker in workers {
            worker.stop().await;
        }
        Finished { thumbnails: self.sandbox.blobs("thumbnails/").await, results }
    }
}

/// Waits until these workers have logged `count` thumbnails, so that the store need not be polled.
async fn made(count: usize, by: &[&Worker]) {
    let made = || by.iter().map(|worker| worker.log().lines("made a thumbnail").len()).sum::<usize>();
    until(&format!("there are {count} thumbnails"), PATIENCE, async || (made() >= count).then_some(())).await;
}

/// Returns all pictures of a worker, in order.
fn steps(log: &Log) -> Vec<Done> {
    let lines = log.lines("made a thumbnail").into_iter().chain(log.lines("failed to make a thumbnail"));
    let done = |line: Line| Done {
        job: line.text("job").to_owned(),
        name: line.text("name").to_owned(),
        at_unix_ms: line.at_unix_ms(),
    };
    let mut all: Vec<_> = lines.map(done).collect();
    all.sort_by_key(|done| done.at_unix_ms);
    all
}

/// Returns the time from the kill until another worker had finished the next picture of `job`, in
/// milliseconds.
fn recovered(job: &str, done: &[Done], killed_at: i64) -> i64 {
    let next = done.iter().filter(|step| step.job == job && step.at_unix_ms > killed_at);
    next.map(|step| step.at_unix_ms - killed_at).min().expect("another worker resumed the job")
}
