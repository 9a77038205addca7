//! A run of the thumbnails example over a directory of pictures: its store, its workers, and the VMs they are on.

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

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often the queue is asked whether it is empty.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// A job's result.
#[derive(Debug, Deserialize)]
pub struct Made {
    /// Thumbnails made.
    pub done: usize,
    /// Pictures that could not be read.
    pub failed: Vec<Unreadable>,
}

/// A picture without a thumbnail.
#[derive(Debug, Deserialize)]
pub struct Unreadable {
    /// Which.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// A run that has not finished.
#[derive(Debug)]
pub struct Run {
    thumbnails: PathBuf,
    sandbox: Sandbox,
    mock: MetadataServer,
    batch: usize,
    /// What its workers are told besides what all are.
    flags: &'static [&'static str],
}

/// What a run came to.
#[derive(Debug)]
pub struct Finished {
    /// The thumbnails' bytes by name.
    pub thumbnails: BTreeMap<String, Vec<u8>>,
    /// The jobs' results.
    pub results: Vec<Made>,
}

/// What an eviction and a kill cost.
#[derive(Debug)]
pub struct Cost {
    /// What the evicted worker's drain did.
    pub drain: DrainReport,
    /// From the kill until another worker had done the next picture of the killed one's job, in milliseconds.
    pub recovered_ms: i64,
    /// Thumbnails that were made more than once.
    pub again: usize,
}

/// A picture that a worker is done with.
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
    /// When that does not work.
    pub async fn over(photos: &Path, size: u32, batch: usize) -> Self {
        let run = Self::prepared(Sandbox::new().await, batch, &[]).await;
        run.enqueue(size, &std::path::absolute(photos).expect("a path"));
        run
    }

    /// Enqueues all pictures that are in the store of `sandbox` already, as [`over`](Self::over). Its workers have `flags`
    /// besides what those of all runs have.
    ///
    /// # Panics
    /// When that does not work.
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
        Self { thumbnails: binary("thumbnails", "thumbnails"), sandbox, mock, batch, flags }
    }

    fn enqueue(&self, size: u32, what: &Path) {
        let mut command = Command::new(&self.thumbnails);
        command.args(["enqueue", "--size", &size.to_string(), "--batch", &self.batch.to_string()]);
        command.arg(what).current_dir(self.sandbox.directory()).env_clear();
        self.sandbox.point(&mut command);
        let enqueued = command.output().expect("thumbnails");
        assert!(enqueued.status.success(), "{}", String::from_utf8_lossy(&enqueued.stderr));
    }

    /// Starts a worker on VM number `number`, which does one picture at a time and saves after each.
    fn worker(&self, number: usize) -> Worker {
        let url = self.mock.vm_url(&vm(number));
        let each = ["work", "--metadata-url", &url, "--concurrency", "1", "--checkpoint-every", "0s"];
        Worker::start(&self.sandbox, &self.thumbnails, each.into_iter().chain(self.flags.iter().copied()))
    }

    /// Runs two workers to the end, and nothing happens to them.
    ///
    /// # Panics
    /// When they do not come to an end in good time.
    pub async fn undisturbed(self) -> Finished {
        let workers = [self.worker(0), self.worker(1)];
        self.finish(workers).await
    }

    /// Runs two workers, evicts one when a quarter of `expected` thumbnails is made, and kills the other when half of
    /// them is. Each is replaced.
    ///
    /// # Panics
    /// When either comes too late to matter, or a worker does not do what it should in good time.
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
        // In an account it may be a while until that is in its report, and the others must not be done by then.
        let drained = |report: &WorkerReport| report.last_drain.is_some();
        let report = evicted.says(&self.sandbox, "the evicted worker reports its drain", drained).await;
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

    /// The batch that `worker` has begun and that is still more than a picture away from its end, whoever began it.
    fn half_done(&self, worker: &Worker, all: &[&Worker]) -> Option<String> {
        let job = steps(worker.log()).pop()?.job;
        let every = all.iter().flat_map(|worker| steps(worker.log()));
        let done: BTreeSet<_> = every.filter(|step| step.job == job).map(|step| step.name).collect();
        (done.len() + 1 < self.batch).then_some(job)
    }

    /// Waits until nothing is left to do, and checks that nothing was given up.
    async fn finish(&self, workers: impl IntoIterator<Item = Worker>) -> Finished {
        let empty = async || {
            // A storage emulator that is asked all the time has time for little else.
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

/// Waits until these workers have made `count` thumbnails, as they say: the store need not be asked for that.
async fn made(count: usize, by: &[&Worker]) {
    let made = || by.iter().map(|worker| worker.log().lines("thumbnail").len()).sum::<usize>();
    until(&format!("there are {count} thumbnails"), PATIENCE, async || (made() >= count).then_some(())).await;
}

/// All that a worker did, in that order.
fn steps(log: &Log) -> Vec<Done> {
    let lines = log.lines("thumbnail").into_iter().chain(log.lines("no thumbnail"));
    let done = |line: Line| Done {
        job: line.text("job").to_owned(),
        name: line.text("name").to_owned(),
        at_unix_ms: line.at_unix_ms(),
    };
    let mut all: Vec<_> = lines.map(done).collect();
    all.sort_by_key(|done| done.at_unix_ms);
    all
}

/// How long after the kill somebody had done the next picture of `job`, in milliseconds.
fn recovered(job: &str, done: &[Done], killed_at: i64) -> i64 {
    let next = done.iter().filter(|step| step.job == job && step.at_unix_ms > killed_at);
    next.map(|step| step.at_unix_ms - killed_at).min().expect("somebody went on with it")
}
