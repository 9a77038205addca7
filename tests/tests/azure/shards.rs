//! Several queues as one.

use std::time::Duration;

use reprieve_tests::Sandbox;
use reprieve_tests::azurite::azurite;

use crate::support::{Walk, begun_by, double, emptied, failures, worker};

const SHARDS: usize = 3;
const WALK: Walk = Walk { steps: 10, each_ms: 40 };

/// Kills one of two workers on three queues.
async fn one_of_two_killed(connection_string: &str) {
    let sandbox = Sandbox::in_account(connection_string, SHARDS).await;
    let jobs = WALK.enqueue(&sandbox, 30).await;
    let arguments = ["--concurrency", "4", "--checkpoint-every", "0s", "--lease", "2s", "--budget", "1s"];
    let (mut first, second) = (worker(&sandbox, &arguments), worker(&sandbox, &arguments));
    begun_by(&sandbox, &second, 1).await;
    begun_by(&sandbox, &first, 4).await;
    first.kill();
    emptied(&sandbox, Duration::from_secs(40)).await;
    let left_over = WALK.check(&sandbox, &jobs).await;
    let redone = sandbox.journal().redone();
    println!("{redone} steps redone, {left_over} checkpoints left over");
    assert!(redone <= 4, "{redone} steps redone by a kill of four jobs");
    assert!(left_over <= 8, "{left_over} checkpoints left over by a kill of four jobs");
    assert_eq!(failures(&second), 0);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_on_three_queues_loses_nothing() {
    let double = double().await;
    let on_double = double.connection_string();
    let on_azurite = async {
        if let Some(azurite) = azurite() {
            one_of_two_killed(azurite.connection_string()).await;
        }
    };
    // Run the cases at the same time: they mostly wait.
    tokio::join!(one_of_two_killed(&on_double), on_azurite);
}
