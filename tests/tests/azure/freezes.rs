//! A worker that was frozen past its lease cannot disturb its successor.

use reprieve_tests::azurite::azurite;
use reprieve_tests::{Sandbox, Walked, until};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::{PATIENCE, Walk, double, worker};

const WALK: Walk = Walk { steps: 4, each_ms: 1_000 };

/// Freezes a worker in the middle of a step, and thaws it when another one has its job.
async fn frozen(connection_string: &str) {
    let sandbox = Sandbox::in_account(connection_string, 1).await;
    let job = WALK.enqueue(&sandbox, 1).await.remove(0);
    let brief = ["--concurrency", "1", "--lease", "2s", "--budget", "1s", "--checkpoint-every", "0s"];
    let zombie = worker(&sandbox, &brief);
    until("a step is done and the next has begun", PATIENCE, async || {
        (sandbox.journal().read().len() >= 2).then_some(())
    })
    .await;
    // The step's output and checkpoint are not written yet.
    zombie.signal(Signal::STOP);

    let (stopped, successor) = (Instant::now(), worker(&sandbox, &brief));
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
    assert_eq!((walked.sum, walked.delivery, walked.pid), (WALK.sum(), 2, successor.pid()));
    let outputs = sandbox.blobs(&format!("walks/{job}/")).await;
    let by = |pid: u32, step: u64| format!("step {step} by {pid}").into_bytes();
    let expected =
        [by(zombie.pid(), 0), by(successor.pid(), 1), by(successor.pid(), 2), by(successor.pid(), 3)];
    assert!(outputs.into_values().eq(expected), "each output is by the owner of its time");
    assert_eq!(sandbox.journal().redone(), 1, "only the step that the freeze cut was done again");

    // The worker has recovered, and takes jobs as before.
    successor.stop().await;
    let next = Walk { steps: 1, each_ms: 1 }.enqueue(&sandbox, 1).await.remove(0);
    let walked: Walked = until("the next job is done", PATIENCE, async || sandbox.result(&next).await).await;
    assert_eq!(walked.pid, zombie.pid());
    assert_eq!(WALK.check(&sandbox, &[job]).await, 0, "checkpoints left over");
    zombie.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_frozen_past_its_lease_writes_nothing() {
    let double = double().await;
    let on_double = double.connection_string();
    let on_azurite = async {
        if let Some(azurite) = azurite() {
            frozen(azurite.connection_string()).await;
        }
    };
    // Run the cases at the same time: they mostly wait.
    tokio::join!(frozen(&on_double), on_azurite);
}
