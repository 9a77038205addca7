//! Signals to a worker process, and its reports to systemd.

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use reprieve_tests::{Sandbox, Walked, Worker, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

const JOBS: &str = env!("CARGO_BIN_EXE_test-jobs");
const PATIENCE: Duration = Duration::from_secs(30);

fn worker(sandbox: &Sandbox, arguments: &[&str]) -> Worker {
    let arguments = ["--metadata-url", "off", "--concurrency", "1"].iter().chain(arguments);
    Worker::start(sandbox, Path::new(JOBS), arguments)
}

/// The arguments of a walk.
fn walk(sandbox: &Sandbox, steps: u64, each_ms: u64) -> Value {
    json!({"steps": steps, "each_ms": each_ms, "journal": sandbox.journal().path()})
}

/// Waits until the journal has `steps` entries.
async fn stepped(sandbox: &Sandbox, steps: usize) {
    until("some steps are done", PATIENCE, async || (sandbox.journal().read().len() >= steps).then_some(()))
        .await;
}

#[tokio::test]
async fn a_terminated_worker_releases_its_jobs_and_another_resumes_them() {
    let sandbox = Sandbox::new().await;
    let job = sandbox.enqueue("walk", [walk(&sandbox, 40, 50)]).await.remove(0);
    let mut first = worker(&sandbox, &[]);
    stepped(&sandbox, 10).await;

    let asked = Instant::now();
    first.signal(Signal::TERM);
    let status = first.ended(PATIENCE).await;
    println!("SIGTERM to exit: {} ms", asked.elapsed().as_millis());
    assert_eq!(status.code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(2), "it took {:?}", asked.elapsed());
    let drain = first.log().lines("drained").remove(0);
    assert_eq!((drain.number("held"), drain.number("saved"), drain.number("work_lost_ms")), (1, 1, 0));
    let depth = sandbox.depth().await;
    assert_eq!((depth.total, depth.ready, depth.leased), (1, Some(1), Some(0)));
    assert_eq!(sandbox.report(first.pid()).await, None, "the worker left the roster");

    let second = worker(&sandbox, &[]);
    let walked: Walked = until("the job is done", PATIENCE, async || sandbox.result(&job).await).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (39 * 40 / 2, 2, second.pid()));
    assert_eq!(sandbox.journal().redone(), 0, "no step was done twice");
    second.stop().await;
}

#[tokio::test]
async fn a_second_signal_ends_a_worker_that_waits_for_a_stubborn_job() {
    let sandbox = Sandbox::new().await;
    sandbox.enqueue("spin", [json!({"steps": 1, "each_ms": 60_000})]).await;
    let mut stubborn = worker(&sandbox, &[]);
    let held = |report: &reprieve_core::ports::WorkerReport| report.in_flight.len() == 1;
    stubborn.reports(&sandbox, "it holds the job", held).await;

    stubborn.signal(Signal::TERM);
    until("the worker drains", PATIENCE, async || {
        stubborn.log().lines("stage changed").iter().any(|line| line.text("to") == "shutdown").then_some(())
    })
    .await;
    let asked = Instant::now();
    stubborn.signal(Signal::TERM);
    let status = stubborn.ended(PATIENCE).await;
    println!("second SIGTERM to exit: {} ms, {status}", asked.elapsed().as_millis());
    assert!(asked.elapsed() < Duration::from_secs(1), "it took {:?}", asked.elapsed());
    assert_eq!(status.code(), Some(1), "its message was not released, so it exits with 1");
}

#[tokio::test]
async fn a_worker_that_was_frozen_past_its_lease_cannot_disturb_its_successor() {
    let sandbox = Sandbox::new().await;
    let job = sandbox.enqueue("walk", [walk(&sandbox, 4, 1000)]).await.remove(0);
    let brief = ["--lease", "1500ms", "--budget", "1s", "--checkpoint-every", "0s"];
    let zombie = worker(&sandbox, &brief);
    stepped(&sandbox, 2).await;
    // In the middle of its second step, before its output and checkpoint are written.
    zombie.signal(Signal::STOP);

    let successor = worker(&sandbox, &brief);
    let stopped = Instant::now();
    until("the successor has the job", PATIENCE, async || {
        sandbox.journal().read().iter().any(|stepped| stepped.pid == successor.pid()).then_some(())
    })
    .await;
    println!("SIGSTOP to taken over: {} ms", stopped.elapsed().as_millis());
    zombie.signal(Signal::CONT);
    until("the zombie has logged the lost lease", PATIENCE, async || {
        let lines =
            zombie.log().lines("the job's lease was lost; the job is cancelled and nothing is settled");
        (lines.len() == 1).then_some(())
    })
    .await;
    let walked: Walked = until("the job is done", PATIENCE, async || sandbox.result(&job).await).await;
    assert_eq!((walked.sum, walked.delivery, walked.pid), (6, 2, successor.pid()));
    let outputs = sandbox.blobs(&format!("walks/{job}/")).await;
    let by = |pid: u32, step: u64| format!("step {step} by {pid}").into_bytes();
    let expected =
        [by(zombie.pid(), 0), by(successor.pid(), 1), by(successor.pid(), 2), by(successor.pid(), 3)];
    assert!(outputs.into_values().eq(expected), "each output is by the owner of its time");
    assert_eq!(sandbox.journal().redone(), 1, "only the step that the freeze cut was done again");

    // The worker has recovered, and takes jobs as before.
    successor.stop().await;
    let next = sandbox.enqueue("walk", [walk(&sandbox, 1, 1)]).await.remove(0);
    let walked: Walked = until("the next job is done", PATIENCE, async || sandbox.result(&next).await).await;
    assert_eq!(walked.pid, zombie.pid());
    assert_eq!(sandbox.depth().await.poisoned, Some(0));
    zombie.stop().await;
}

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    /// Starts a worker under it, with a watchdog of a second.
    fn start(sandbox: &Sandbox, store: &str) -> (Self, Worker) {
        Self::start_with(sandbox, store, &[])
    }

    /// The same with further environment variables.
    fn start_with(sandbox: &Sandbox, store: &str, more: &[(&str, &str)]) -> (Self, Worker) {
        let socket = sandbox.path("notify.sock");
        let manager = Self(UnixDatagram::bind(&socket).expect("a socket"));
        manager.0.set_nonblocking(true).expect("a mode");
        let arguments = ["--metadata-url", "off", "--concurrency", "1"];
        let socket = socket.to_str().expect("a path");
        let own = [("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "1000000")];
        let environment = [&own, more].concat();
        let worker = Worker::start_on(store, sandbox.directory(), Path::new(JOBS), arguments, &environment);
        (manager, worker)
    }

    /// Receives the next report.
    async fn next(&self) -> BTreeSet<String> {
        let mut buffer = [0; 1_000];
        let length = until("a report", PATIENCE, async || self.0.recv(&mut buffer).ok()).await;
        String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned).collect()
    }

    /// Receives reports until there is none for a second, when systemd would kill the worker.
    async fn falls_silent(&self) {
        let (mut last, mut buffer) = (Instant::now(), [0; 1_000]);
        until("the worker reports no more", PATIENCE, async || {
            while self.0.recv(&mut buffer).is_ok() {
                last = Instant::now();
            }
            (last.elapsed() >= Duration::from_secs(1)).then_some(())
        })
        .await;
    }

    /// Receives reports until one has all `lines`.
    async fn reports(&self, lines: &[&str]) {
        let mut seen = Vec::new();
        while !lines.iter().all(|line| seen.last().is_some_and(|report: &BTreeSet<_>| report.contains(*line)))
        {
            assert!(seen.len() < 200, "{lines:?} is not in {seen:?}");
            seen.push(self.next().await);
        }
    }
}

#[tokio::test]
async fn systemd_hears_that_a_worker_is_ready_and_alive_beside_a_job_that_blocks_and_that_it_stops() {
    let sandbox = Sandbox::new().await;
    sandbox.enqueue("spin", [json!({"steps": 1, "each_ms": 4_000})]).await;
    let (systemd, mut worker) = Manager::start(&sandbox, &sandbox.address());
    systemd.reports(&["READY=1", "WATCHDOG=1"]).await;
    let held = |report: &reprieve_core::ports::WorkerReport| report.in_flight.len() == 1;
    worker.reports(&sandbox, "it holds the job", held).await;
    let (began, mut reports) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(3) {
        systemd.reports(&["WATCHDOG=1", "STATUS=start"]).await;
        reports += 1;
    }
    assert!(reports > 3, "{reports} reports in 3 s");
    worker.signal(Signal::TERM);
    systemd.reports(&["STOPPING=1"]).await;
    // Without a second signal: the job may still block.
    assert_eq!(worker.ended(PATIENCE).await.code(), Some(0));
}

#[tokio::test]
async fn a_worker_is_ready_and_alive_while_its_store_does_not_answer() {
    let sandbox = Sandbox::new().await;
    // Nothing listens there.
    let store = "DefaultEndpointsProtocol=http;AccountName=none;AccountKey=bm9uZQ==;\
                 QueueEndpoint=http://127.0.0.1:9/none;BlobEndpoint=http://127.0.0.1:9/none";
    let (systemd, mut worker) = Manager::start(&sandbox, store);
    systemd.reports(&["READY=1"]).await;
    for _ in 0..5 {
        systemd.reports(&["WATCHDOG=1", "STATUS=recover"]).await;
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(PATIENCE).await.code(), Some(0));
}

#[tokio::test]
async fn a_job_that_is_interrupted_too_often_moves_to_the_queue_of_other_workers() {
    let sandbox = Sandbox::new().await;
    let job = sandbox.enqueue("walk", [walk(&sandbox, 1, 4_000)]).await.remove(0);
    let moving = ["--escalate-to", "calm", "--escalate-after", "2", "--budget", "500ms", "--lease", "2s"];
    for times in 1..=2 {
        let mut interrupted = worker(&sandbox, &moving);
        stepped(&sandbox, times).await;
        interrupted.signal(Signal::TERM);
        assert_eq!(interrupted.ended(PATIENCE).await.code(), Some(0));
    }
    let third = worker(&sandbox, &moving);
    until("the job has moved", PATIENCE, async || (sandbox.depth().await.total == 0).then_some(())).await;
    let line = third.log().lines("moving a job to another queue").remove(0);
    assert_eq!((line.text("job"), line.text("queue")), (job.as_str(), "calm"));
    assert!(line.text("why").starts_with("2 deliveries ended before"), "{}", line.text("why"));

    let arguments = ["--metadata-url", "off", "--queue", "calm"];
    let calm = Worker::start_on(&sandbox.address(), sandbox.directory(), Path::new(JOBS), arguments, &[]);
    let walked: Walked = until("the job is done", PATIENCE, async || sandbox.result(&job).await).await;
    assert_eq!((walked.delivery, walked.pid), (1, calm.pid()));
    calm.stop().await;
    third.stop().await;
}

/// Stops a worker's control loop in this way, lets the watchdog kill it, and returns how long the next one took to go on.
#[expect(clippy::print_stdout, reason = "it is a part of its test")]
async fn is_succeeded_when(what: &str, break_it: impl FnOnce(&Sandbox, &Worker)) {
    let sandbox = Sandbox::new().await;
    let job = sandbox.enqueue("walk", [walk(&sandbox, 60, 50)]).await.remove(0);
    let block = sandbox.path("block");
    let environment = [("TEST_BLOCKS_CONTROL", block.to_str().expect("a path"))];
    let (systemd, mut first) = Manager::start_with(&sandbox, &sandbox.address(), &environment);
    systemd.reports(&["READY=1", "WATCHDOG=1"]).await;
    stepped(&sandbox, 5).await;
    let broken = Instant::now();
    break_it(&sandbox, &first);
    systemd.falls_silent().await;
    let seen = broken.elapsed();
    first.kill();
    let second = worker(&sandbox, &[]);
    until("the next worker goes on", PATIENCE, async || {
        sandbox.journal().read().iter().any(|stepped| stepped.pid == second.pid()).then_some(())
    })
    .await;
    println!("{what}: seen after {} ms, goes on after {} ms", seen.as_millis(), broken.elapsed().as_millis());
    let walked: Walked = until("the job is done", PATIENCE, async || sandbox.result(&job).await).await;
    assert_eq!((walked.sum, walked.pid), (59 * 60 / 2, second.pid()));
    // A blocked control thread does not block the job, whose last steps were not saved.
    println!("{what}: {} steps of 60 done again", sandbox.journal().redone());
    second.stop().await;
}

#[tokio::test]
async fn a_worker_whose_control_thread_is_stopped_or_blocked_is_silent_and_its_successor_goes_on() {
    is_succeeded_when("SIGSTOP", |_, worker| worker.signal(Signal::STOP)).await;
    is_succeeded_when("blocked control thread", |sandbox, _| {
        std::fs::write(sandbox.path("block"), "").expect("a file");
    })
    .await;
}
