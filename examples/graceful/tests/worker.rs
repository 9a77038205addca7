//! Workers that are stopped or killed while their programs run, and programs that fail or do not
//! stop.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve_tests::{Line, Sandbox, Worker, until};
use rustix::process::{Pid, Signal, test_kill_process};
use serde::Deserialize;
use serde_json::{Value, json};

/// The time limit of any wait. Far longer than needed, because test machines are busy.
const LONG: Duration = Duration::from_secs(60);

/// The time limit from SIGTERM to the worker's end. Shorter than the budget and the grace period,
/// to tell them apart.
const SOON: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Deserialize)]
struct Estimate {
    pi: f64,
    thrown: u64,
    inside: u64,
}

fn worker(sandbox: &Sandbox, options: &[&str]) -> Worker {
    let scratch = sandbox.path("scratch").display().to_string();
    let mut arguments = vec!["work", "--metadata-url", "off", "--concurrency", "1", "--scratch", &scratch];
    arguments.extend(options);
    Worker::start(sandbox, Path::new(env!("CARGO_BIN_EXE_graceful")), arguments)
}

/// A program that ignores SIGTERM and its stdin, and starts another one like it.
const STUBBORN: &str = "trap '' TERM
sleep 120 &
echo $! >child.new
mv child.new child
wait
sleep 120
";

/// A program for `--simulator` that runs `script`.
fn script(sandbox: &Sandbox, script: &str) -> PathBuf {
    let path = sandbox.path("simulator.sh");
    fs::write(&path, script).expect("a script");
    path
}

/// Enqueues simulations of three seconds or more each.
async fn enqueue(sandbox: &Sandbox, seeds: &[u64]) -> reprieve::JobId {
    sandbox.enqueue("estimate-pi", [json!({"throws": 300_000, "seeds": seeds})]).await.remove(0)
}

/// Waits for the worker's `count`th program.
async fn program(worker: &Worker, count: usize) -> Line {
    until("a simulation runs", LONG, async || {
        worker.log().lines("simulation started").into_iter().nth(count - 1)
    })
    .await
}

fn pid(line: &Line) -> i32 {
    line.number("pid").try_into().expect("a process id")
}

/// Returns the process that a stubborn program in `scratch` has started.
async fn child(scratch: &Path) -> i32 {
    let written = async || fs::read_to_string(scratch.join("child")).ok();
    let pid = until("the program has started another", LONG, written).await;
    pid.trim().parse().expect("a process id")
}

/// Waits until a process has ended, whether or not it was waited for.
async fn gone(pid: i32, limit: Duration) {
    until("the program has ended", limit, async || {
        let exists = test_kill_process(Pid::from_raw(pid).expect("a process id")).is_ok();
        // Where there is no such file, init also removes zombies.
        let dead = fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
        (!exists || dead).then_some(())
    })
    .await;
}

/// Returns the working directories of all programs so far.
fn scratch(sandbox: &Sandbox) -> Vec<PathBuf> {
    let entries = fs::read_dir(sandbox.path("scratch/graceful")).expect("the workers' directory");
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()).collect()
}

/// Waits until the worker reports more than `done` thrown darts.
async fn thrown(worker: &Worker, sandbox: &Sandbox, done: u64) {
    worker
        .reports(sandbox, "darts are thrown", |report| {
            report.in_flight.first().is_some_and(|job| job.progress.done > done)
        })
        .await;
}

async fn estimate(sandbox: &Sandbox, job: &reprieve::JobId) -> Estimate {
    until("there is an estimate", LONG, async || sandbox.result(job).await).await
}

async fn stops_soon(mut worker: Worker) {
    worker.signal(Signal::TERM);
    let status = worker.ended(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", worker.log().text());
    let [drained] = &worker.log().lines("drained")[..] else { panic!("not one drain") };
    assert_eq!(
        (drained.number("saved"), drained.number("cut")),
        (1, 0),
        "the job yielded, and was not cut off"
    );
}

#[tokio::test]
async fn a_drain_stops_the_program_and_the_next_worker_resumes_at_its_checkpoint() {
    let undisturbed = Sandbox::new().await;
    let expected = enqueue(&undisturbed, &[1, 2]).await;
    let quiet = worker(&undisturbed, &[]);

    let sandbox = Sandbox::new().await;
    let job = enqueue(&sandbox, &[1, 2]).await;
    let first = worker(&sandbox, &[]);
    let began = program(&first, 1).await;
    assert_eq!(began.number("from"), 0);
    thrown(&first, &sandbox, 0).await;
    assert_eq!(scratch(&sandbox).len(), 1);
    stops_soon(first).await;
    gone(pid(&began), Duration::ZERO).await;
    assert_eq!(scratch(&sandbox), Vec::<PathBuf>::new());

    let second = worker(&sandbox, &[]);
    let resumed = program(&second, 1).await;
    assert_eq!(resumed.number("seed"), began.number("seed"));
    assert!(resumed.number("from") > 0, "{resumed:?}");
    let estimate_here = estimate(&sandbox, &job).await;
    assert_eq!(estimate_here, estimate(&undisturbed, &expected).await, "no dart was lost or thrown twice");
    assert_eq!(estimate_here.thrown, 600_000);
    assert!((estimate_here.pi - std::f64::consts::PI).abs() < 0.01, "{estimate_here:?}");
    second.stop().await;
    quiet.stop().await;
    assert_eq!(scratch(&sandbox), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_killed_workers_program_ends_by_itself_and_the_next_worker_clears_its_directory() {
    let sandbox = Sandbox::new().await;
    let job = enqueue(&sandbox, &[1]).await;
    let mut first = worker(&sandbox, &[]);
    let began = program(&first, 1).await;
    thrown(&first, &sandbox, 0).await;
    first.kill();
    gone(pid(&began), SOON).await;
    let left = scratch(&sandbox);
    assert_eq!(left.len(), 1, "a killed worker removes nothing");

    let second = worker(&sandbox, &[]);
    program(&second, 1).await;
    assert!(!left[0].exists());
    assert_eq!(estimate(&sandbox, &job).await.thrown, 300_000);
    second.stop().await;
}

#[tokio::test]
async fn a_worker_that_was_frozen_kills_its_program_and_leaves_its_successors_alone() {
    let sandbox = Sandbox::new().await;
    let script = script(&sandbox, STUBBORN);
    let options =
        ["--lease", "3s", "--budget", "2s", "--simulator", "sh", script.to_str().expect("a path in UTF-8")];
    enqueue(&sandbox, &[1]).await;
    let first = worker(&sandbox, &options);
    let stale = program(&first, 1).await;
    let its_scratch = scratch(&sandbox).remove(0);
    let its_child = child(&its_scratch).await;
    first.signal(Signal::STOP);

    // The lease expires. The directory stays: it is unknown whether its owner still works.
    let second = worker(&sandbox, &options);
    let fresh = program(&second, 1).await;
    assert_eq!(scratch(&sandbox).len(), 2);
    first.signal(Signal::CONT);
    gone(pid(&stale), SOON).await;
    gone(its_child, SOON).await;
    until("the directory is removed", SOON, async || (!its_scratch.exists()).then_some(())).await;
    assert_eq!(scratch(&sandbox).len(), 1);
    test_kill_process(Pid::from_raw(pid(&fresh)).unwrap()).expect("the new owner's program runs on");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_program_that_will_not_stop_is_killed_with_all_that_it_started() {
    let sandbox = Sandbox::new().await;
    let script = script(&sandbox, STUBBORN);
    enqueue(&sandbox, &[1]).await;
    let worker = worker(&sandbox, &["--simulator", "sh", script.to_str().unwrap()]);
    let began = program(&worker, 1).await;
    let child = child(&scratch(&sandbox)[0]).await;
    stops_soon(worker).await;
    gone(pid(&began), Duration::ZERO).await;
    gone(child, SOON).await;
    assert_eq!(scratch(&sandbox), Vec::<PathBuf>::new());
    assert_eq!(sandbox.depth().await.total, 1, "the job is still to be done");
}

#[tokio::test]
async fn a_program_that_fails_is_tried_again_until_that_can_not_help() {
    let sandbox = Sandbox::new().await;
    let tries = sandbox.path("tries");
    let script = script(
        &sandbox,
        &format!(
            "echo \"$@\" >>'{0}'\n[ \"$(wc -l <'{0}')\" -gt 1 ] || {{ echo 'the licence server is busy' >&2; exit 1; }}\n\
             echo 'no such model' >&2\nexit 65\n",
            tries.display()
        ),
    );
    enqueue(&sandbox, &[7]).await;
    let worker = worker(&sandbox, &["--simulator", "sh", script.to_str().unwrap()]);
    let letter = until("the job is dead-lettered", LONG, async || sandbox.dead_letters().await.pop()).await;
    assert_eq!(
        letter.reason.as_deref(),
        Some("the simulator ended with exit status: 65: no such model"),
        "its own words"
    );
    assert_eq!(fs::read_to_string(&tries).unwrap(), "7 300000\n7 300000\n");
    let [retried] = &worker.log().lines("a job failed; retrying it")[..] else { panic!("not one retry") };
    assert_eq!(retried.text("error"), "the simulator ended with exit status: 1: the licence server is busy");
    assert_eq!(scratch(&sandbox), Vec::<PathBuf>::new());
    worker.stop().await;
}

#[tokio::test]
async fn arguments_that_the_simulator_refuses_are_not_tried_again() {
    let sandbox = Sandbox::new().await;
    sandbox.enqueue("estimate-pi", [json!({"throws": 0, "seeds": [1]})]).await;
    let worker = worker(&sandbox, &[]);
    let letter = until("the job is dead-lettered", LONG, async || sandbox.dead_letters().await.pop()).await;
    let reason = letter.reason.unwrap();
    assert!(
        reason.starts_with("the simulator ended with exit status: 2: error: invalid value '0'"),
        "{reason}"
    );
    let body: Value = serde_json::from_slice(&letter.body).unwrap();
    assert_eq!(body["data"]["throws"], 0, "the arguments are kept");
    assert_eq!(worker.log().lines("simulation started").len(), 1);
    worker.stop().await;
}
