//! A whole worker, whose job is stopped and continued.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use rand::Rng;
use rand::distr::Alphanumeric;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::ports::Store;
use reprieve_core::record::{Place, Record, open};
use reprieve_core::worker::{Settings, Worker, stopping};
use reprieve_core::{Job, JobContext, JobError, JobId, NewJob, Producer, Step};
use tokio::time::timeout;

use crate::bench::{Bench, PATIENCE, eventually};

/// The step that waits for an interruption. A worker that is stopped there has saved this state, and
/// then saves the next one.
const WAITS_AT: u64 = 3;

/// Random, so that no compression makes it short.
static TEXT: LazyLock<String> =
    LazyLock::new(|| rand::rng().sample_iter(Alphanumeric).take(LARGE).map(char::from).collect());

/// More than any row, and still more when it is compressed.
const LARGE: usize = 600 << 10;

/// Counts its steps, and carries text.
#[derive(Clone)]
struct Carries {
    bytes: usize,
    /// The states that steps began with.
    began: Arc<Mutex<Vec<u64>>>,
}

#[async_trait::async_trait]
impl Job for Carries {
    const KIND: &'static str = "carries";
    type Args = ();
    type Checkpoint = (u64, String);
    type Output = ();

    fn begin(&self, (): &()) -> (u64, String) {
        (0, String::new())
    }

    async fn step(
        &self,
        cx: &JobContext,
        (): &(),
        (at, _): (u64, String),
    ) -> Result<Step<(u64, String), ()>, JobError> {
        self.began.lock().unwrap().push(at);
        if at >= WAITS_AT {
            cx.interrupted().await;
        }
        Ok(Step::Continue((at + 1, TEXT[..self.bytes].to_owned())))
    }
}

/// Runs a worker until the job waits, and stops it; returns the states that steps began with.
pub(crate) async fn run(store: &Store, bytes: usize) -> Vec<u64> {
    let job = Carries { bytes, began: Arc::default() };
    let began = Arc::clone(&job.began);
    let settings =
        Settings { checkpoint_every: CheckpointEvery::Every(Duration::ZERO), ..Settings::default() };
    let worker = Worker::builder(store.clone()).settings(settings).job(job).build().unwrap();
    let (stopper, stopping) = stopping();
    let running = tokio::spawn(worker.run(stopping));
    let waits = async || began.lock().unwrap().last().is_some_and(|at| *at >= WAITS_AT);
    eventually("the job waits", waits).await;
    stopper.stop();
    timeout(PATIENCE, running).await.expect("the worker stops").unwrap();
    began.lock().unwrap().clone()
}

/// Enqueues a job, and runs it until it has saved two checkpoints with this many bytes of text.
pub(crate) async fn interrupted_job(store: &Store, bytes: usize) -> JobId {
    let jobs = Producer::new(store.clone()).enqueue(vec![NewJob::of::<Carries>(&()).unwrap()]).await.unwrap();
    assert_eq!(run(store, bytes).await, [0, 1, 2, 3]);
    jobs[0].clone()
}

async fn record(store: &Store, job: &JobId) -> Record {
    open(&store.records.load(job).await.unwrap().expect("it was saved").bytes).unwrap()
}

/// A job whose newest checkpoints are damaged continues at the one before, or from its beginning.
async fn continues_after(damage: impl Fn(&Path)) {
    for (damaged, continued_at) in [(0, 4), (1, 3), (2, 0)] {
        let bench = Bench::new();
        let store = bench.open_worker().await;
        let job = interrupted_job(&store, LARGE).await;
        let checkpoints = record(&store, &job).await.checkpoints;
        assert_eq!((checkpoints.len(), bench.files("payloads").len()), (2, 2));
        for checkpoint in &checkpoints[..damaged] {
            let Place::Payload(name) = &checkpoint.place else { panic!("it is too large for the record") };
            let find = "SELECT file FROM payload WHERE name = ?1";
            let file: String = bench.conn().query_row(find, [name.as_str()], |row| row.get(0)).unwrap();
            damage(&bench.path().with_extension("db.d").join("payloads").join(file));
        }
        let began = run(&store, LARGE).await;
        assert_eq!(began[0], continued_at, "with {damaged} damaged checkpoints");
    }
}

#[tokio::test]
async fn a_job_whose_payload_file_is_missing_continues_at_the_checkpoint_before() {
    continues_after(|file| std::fs::remove_file(file).unwrap()).await;
}

#[tokio::test]
async fn a_job_whose_payload_file_is_shortened_continues_at_the_checkpoint_before() {
    continues_after(|file| {
        let whole = std::fs::read(file).unwrap();
        std::fs::write(file, &whole[..whole.len() / 2]).unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_job_whose_payload_file_is_changed_continues_at_the_checkpoint_before() {
    continues_after(|file| {
        let mut bytes = std::fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(file, bytes).unwrap();
    })
    .await;
}

/// A file that can be opened, and whose read fails as that of a file on a bad sector does.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_job_whose_payload_file_can_not_be_read_continues_at_the_checkpoint_before() {
    continues_after(|file| {
        std::fs::remove_file(file).unwrap();
        std::os::unix::fs::symlink("/proc/self/mem", file).unwrap();
    })
    .await;
    continues_after(|file| {
        std::fs::remove_file(file).unwrap();
        std::fs::create_dir(file).unwrap();
    })
    .await;
}
