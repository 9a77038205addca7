//! A job that interruptions keep from making progress moves to the queue of calmer machines.

use std::path::Path;
use std::process::Command;

use reprieve_tests::{Sandbox, Worker, binary};
use rustix::process::Signal;

use crate::support::{PATIENCE, Walk, begun_by, double, emptied, worker};

/// What `reprieve status` prints for this queue.
fn status_of(queue: &str, sandbox: &Sandbox, connection_string: &str) -> String {
    let mut status = Command::new(binary("reprieve"));
    status.args(["status", "--queue", queue, "--container", sandbox.container()]);
    status.env_clear().env("REPRIEVE_STORE", connection_string).current_dir(sandbox.directory());
    let output = status.output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_interrupted_too_often_moves_with_its_checkpoint_to_the_queue_of_other_workers() {
    let storage = double().await;
    let connection_string = storage.connection_string();
    let sandbox = Sandbox::in_account(&connection_string, 1).await;
    let calm = format!("{}-calm", sandbox.queue());
    let walk = Walk { steps: 2, each_ms: 4_000 };
    let jobs = walk.enqueue(&sandbox, 1).await;
    let moving = ["--escalate-to", &calm, "--escalate-after", "2", "--budget", "1s", "--lease", "3s"];
    let moving = [&moving[..], &["--checkpoint-every", "0s"]].concat();
    for _ in 1..=2 {
        let mut interrupted = worker(&sandbox, &moving);
        begun_by(&sandbox, &interrupted, 1).await;
        interrupted.signal(Signal::TERM);
        assert_eq!(interrupted.ended(PATIENCE).await.code(), Some(0));
    }
    let third = worker(&sandbox, &moving);
    emptied(&sandbox, PATIENCE).await;
    assert_eq!(third.log().lines("moving a job to another queue").len(), 1);

    // No worker has it, and its queue says why it came; the one that it left does not.
    let page = status_of(&calm, &sandbox, &connection_string);
    let row = page.lines().skip_while(|line| !line.starts_with("ESCALATED")).nth(1);
    assert!(row.is_some_and(|row| row.starts_with(jobs[0].as_str())), "{page}");
    let left = status_of(sandbox.queue(), &sandbox, &connection_string);
    assert!(!left.contains("ESCALATED"), "{left}");

    let jobs_program = Path::new(env!("CARGO_BIN_EXE_test-jobs"));
    let arguments = ["--metadata-url", "off", "--queue", &calm, "--container", sandbox.container()];
    let other = Worker::start_on(&connection_string, sandbox.directory(), jobs_program, arguments, &[]);
    reprieve_tests::until("the job is done", PATIENCE, async || {
        (sandbox.count(&format!("results/{}", jobs[0])).await > 0).then_some(())
    })
    .await;
    other.stop().await;
    third.stop().await;
    walk.check(&sandbox, &jobs).await;
}
