//! Preempt with every slot taken and a prefetched batch: the worker releases all of it quickly.
//!
//! The double is fast on any machine, so the times are asserted there. Azurite shares the machine's
//! cores with the worker and answers some hundred calls a second: there only a release in time is
//! asserted.

use std::time::Duration;

use reprieve_sim::control::evict;
use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_tests::azurite::Azurite;
use reprieve_tests::{Sandbox, until};
use tokio::time::Instant;

use crate::support::{Drained, PATIENCE, Walk, begun, begun_by, double, drained, failures, gauge, worker};

const SLOTS: usize = 64;
const AHEAD: usize = 32;
const FULL: usize = SLOTS + AHEAD;

/// The time limit of prefetching. The worker does not prefetch where jobs seem long.
const READS_AHEAD: Duration = Duration::from_secs(3);

/// Jobs that are so short that the worker prefetches, and long enough for what it prefetched to wait for twice that time
/// until the notice.
const SHORT: Walk = Walk { steps: 1, each_ms: 700 };

/// The jobs in flight at the notice, longer than this test. A job needs one step to yield.
const LONG: Walk = Walk { steps: 1_000, each_ms: 400 };

/// Evicts a worker with full slots, lets another one take over all jobs, and stops that one.
/// Returns the reports of both drains.
async fn drained_when_full(connection_string: &str) -> [Drained; 2] {
    let sandbox = Sandbox::in_account(connection_string, 1).await;
    let mock = MetadataServer::start(Config::with_vms(["spot_0", "spot_1"])).await.expect("a mock");
    let started = |vm: &str, slots: usize| {
        let (url, slots) = (mock.vm_url(vm), slots.to_string());
        worker(&sandbox, &["--metadata-url", &url, "--concurrency", &slots, "--listen", "127.0.0.1:0"])
    };
    // Enqueue everything before the worker starts, so that it can prefetch.
    SHORT.enqueue(&sandbox, 2 * SLOTS).await;
    LONG.enqueue(&sandbox, FULL).await;
    let first = started("spot_0", SLOTS);
    begun(&sandbox, 3 * SLOTS).await;
    let looked_from = Instant::now();
    until("the worker has prefetched, or will not", PATIENCE, async || {
        let held = gauge(&first, "reprieve_in_flight")?;
        (held == FULL as u64 || looked_from.elapsed() > READS_AHEAD).then_some(())
    })
    .await;
    evict(&mock.url(), "spot_0", Duration::from_secs(30)).await.expect("an eviction");
    let evicted = drained(&first).await;
    println!("evicted, {evicted}");
    assert_eq!((evicted.abandoned, evicted.leases_lost), (0, 0), "{evicted}");
    let depth = sandbox.depth().await;
    assert_eq!((depth.total, depth.poisoned), (FULL as u64, Some(0)), "every message is in the queue");

    // Another worker, with room for all jobs, takes them at once and resumes them.
    let second = started("spot_1", FULL);
    begun_by(&sandbox, &second, FULL).await;
    assert!(evicted.cut > 0 || sandbox.journal().redone() == 0, "nothing was cut, so nothing is done twice");
    assert_eq!((failures(&first), failures(&second)), (0, 0));
    first.stop().await;
    let log = second.log().clone();
    second.stop().await;
    let stopped = Drained::from(log.lines("drained").remove(0));
    println!("stopped: {stopped}");
    assert_eq!((stopped.held, stopped.abandoned, stopped.leases_lost), (FULL as u64, 0, 0), "{stopped}");
    assert_eq!(sandbox.depth().await.total, FULL as u64);
    [evicted, stopped]
}

/// The same on the double, with messages that no job had begun for.
async fn drained_with_a_batch_read_ahead() -> [Drained; 2] {
    // On a busy machine the short jobs may seem long to the worker, or what it read ahead may have gone back already.
    for _ in 0..5 {
        let double = double().await;
        let [evicted, stopped] = drained_when_full(&double.connection_string()).await;
        if evicted.unstarted > 0 {
            return [evicted, stopped];
        }
    }
    panic!("nothing was read ahead at any of five notices");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_worker_gives_everything_back_within_a_second_on_the_double() {
    let [evicted, stopped] = drained_with_a_batch_read_ahead().await;
    assert_eq!((evicted.saved, stopped.saved), (SLOTS as u64, FULL as u64), "{evicted}; {stopped}");
    // A step takes 400 ms of it.
    assert!(evicted.released_after < Duration::from_secs(1), "{evicted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_worker_gives_everything_back_within_its_budget_on_azurite() {
    // An own Azurite, so that it has no other clients.
    let Some(azurite) = Azurite::own() else { return };
    let drains = drained_when_full(&azurite.connection_string()).await;
    assert!(drains.iter().all(|drain| drain.released_after < Duration::from_secs(10)), "{drains:?}");
}
