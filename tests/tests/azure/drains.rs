//! Preempt with every slot taken and a batch read ahead: all of it is given back, fast.

use std::time::Duration;

use reprieve_sim::control::evict;
use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_tests::azurite::azurite;
use reprieve_tests::{Sandbox, until};

use crate::support::{PATIENCE, Walk, begun, double, drained, emptied, failures, gauge, worker};

const SLOTS: usize = 64;
const AHEAD: usize = 32;

/// Teaches the worker that jobs are short, so that it reads ahead.
const SHORT: Walk = Walk { steps: 1, each_ms: 100 };

/// What is under way at the notice. A step is what a job needs to yield.
const LONG: Walk = Walk { steps: 8, each_ms: 400 };

/// Evicts a worker that holds all that it can, and returns how long that took.
async fn evicted_when_full(connection_string: &str) -> Duration {
    let sandbox = Sandbox::in_account(connection_string, 1).await;
    let mock = MetadataServer::start(Config::with_vms(["spot_0", "spot_1"])).await.expect("a mock");
    let slots = SLOTS.to_string();
    let started = |vm: &str| {
        let url = mock.vm_url(vm);
        worker(&sandbox, &["--metadata-url", &url, "--concurrency", &slots, "--listen", "127.0.0.1:0"])
    };
    SHORT.enqueue(&sandbox, SLOTS).await;
    let first = started("spot_0");
    emptied(&sandbox, PATIENCE).await;

    let long = LONG.enqueue(&sandbox, SLOTS + AHEAD).await;
    begun(&sandbox, 2 * SLOTS).await;
    let full = (SLOTS + AHEAD) as u64;
    until("it has read ahead", PATIENCE, async || {
        (gauge(&first, "reprieve_in_flight") == Some(full)).then_some(())
    })
    .await;
    evict(&mock.url(), "spot_0", Duration::from_secs(30)).await.expect("an eviction");
    let drain = drained(&first).await;
    println!("{drain}");
    assert_eq!((drain.held, drain.abandoned, drain.leases_lost), (full, 0, 0), "{drain}");
    assert_eq!((drain.saved, drain.unstarted, drain.cut), (SLOTS as u64, AHEAD as u64, 0), "{drain}");
    assert_eq!(drain.finished, 0, "{drain}");

    let second = started("spot_1");
    emptied(&sandbox, PATIENCE).await;
    assert_eq!(LONG.check(&sandbox, &long).await, 0, "checkpoints left over");
    assert_eq!((failures(&first), failures(&second)), (0, 0));
    // Nothing was cut, so nothing is done twice.
    assert_eq!(sandbox.journal().redone(), 0);
    first.stop().await;
    second.stop().await;
    drain.released_after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_worker_gives_everything_back_within_a_second_on_the_double() {
    let double = double().await;
    let took = evicted_when_full(&double.connection_string()).await;
    assert!(took < Duration::from_secs(1), "it took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_worker_gives_everything_back_within_its_budget_on_azurite() {
    let Some(azurite) = azurite() else { return };
    // How fast Azurite answers is up to the machine's other work; the benchmark holds the second.
    let took = evicted_when_full(azurite.connection_string()).await;
    assert!(took < Duration::from_secs(10), "it took {took:?}");
}
