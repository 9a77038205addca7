//! An eviction while the cache is away.

use std::path::Path;
use std::time::Duration;

use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_tests::binary;

use crate::scenes::Act;
use crate::shop::Shop;

/// What the framework promises from a notice to the last released lease.
const PROMISED_MS: u64 = 10_000;

const ORDERS: u32 = 8;

/// What happens to the cache before the eviction.
const STATES: [(&str, &[Act]); 3] = [
    ("closed", &[]),
    ("open, as announced", &[Act::Say("NodeMaintenanceStarting"), Act::Opened]),
    ("open, because the cache hangs", &[Act::Stop, Act::Opened]),
];

/// Evicts a worker in the middle of its orders, and returns after how many milliseconds it had released them.
async fn released_after_ms(program: &Path, acts: &[Act]) -> Option<u64> {
    let mock = MetadataServer::start(Config::with_vms(["spot"])).await.expect("a mock");
    let flags = ["--metadata-url", &mock.vm_url("spot"), "--concurrency", "8"];
    let mut shop = Shop::open(program, &flags, false, ORDERS, Duration::from_millis(40)).await?;
    for order in 0..ORDERS {
        shop.has_priced(order, 100).await;
    }
    for &act in acts {
        shop.act(act).await;
    }
    mock.evict("spot", Duration::from_secs(30)).expect("an eviction");
    shop.count(1, "drained").await;
    let drain = shop.worker.log().lines("drained").remove(0);
    let (held, abandoned) = (drain.number("held"), drain.number("abandoned"));
    assert_eq!((held, abandoned), (ORDERS.into(), 0), "{drain:?}");
    let released = drain.number("released_after_ms");
    assert!(released < PROMISED_MS, "{drain:?}");
    Some(released)
}

#[tokio::test]
async fn leases_are_released_for_an_eviction_while_the_breaker_is_open() {
    let program = binary("cache-aside");
    let mut took: [Vec<u64>; STATES.len()] = Default::default();
    for _ in 0..5 {
        for ((_, acts), took) in STATES.iter().zip(&mut took) {
            let Some(released) = released_after_ms(&program, acts).await else { return };
            took.push(released);
        }
    }
    println!("| breaker | released after | of that with a closed one |");
    println!("|---|---:|---:|");
    let median = |took: &[u64]| {
        let mut took = took.to_vec();
        took.sort_unstable();
        took[took.len() / 2]
    };
    let closed = median(&took[0]).max(1);
    for ((name, _), took) in STATES.iter().zip(&took) {
        let median = median(took);
        println!("| {name} | {median} ms | {} % |", 100 * median / closed);
    }
}
