//! The order in which messages are received: the order in which they first became receivable.

use std::time::Duration;

use reprieve_core::ErrorKind;
use reprieve_core::ports::{DeadLetter, Delivery, NewMessage, Release, Store};

use crate::bench::{Bench, eventually};

const LEASE: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(60);

async fn send(store: &Store, bodies: &[&str], delay: Duration) {
    let messages = bodies.iter().map(|body| NewMessage { body: body.as_bytes().to_vec(), delay }).collect();
    store.queue.send(messages).await.unwrap();
}

async fn receive(store: &Store, max: usize) -> Vec<Delivery> {
    store.queue.receive(max, LEASE).await.unwrap()
}

async fn receive_one(store: &Store, lease: Duration) -> Delivery {
    store.queue.receive(1, lease).await.unwrap().remove(0)
}

async fn retry_after(store: &Store, delivery: &Delivery, delay: Duration) {
    store
        .queue
        .release(&delivery.receipt, &Release { body: None, delay, ..Release::default() })
        .await
        .unwrap();
}

fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| str::from_utf8(&delivery.body).unwrap()).collect()
}

/// Waits until this many messages are receivable.
async fn ready(store: &Store, wanted: u64) {
    eventually("messages become receivable", async || {
        store.queue.depth().await.unwrap().ready == Some(wanted)
    })
    .await;
}

#[tokio::test]
async fn a_retry_that_is_due_comes_before_what_was_queued_after_it() {
    let bench = Bench::new();
    let store = bench.open().await;
    send(&store, &["first"], Duration::ZERO).await;
    let waiting = (0..3_000).map(|_| NewMessage { body: b"waiting".to_vec(), delay: Duration::ZERO });
    store.queue.send(waiting.collect()).await.unwrap();
    let failed = receive_one(&store, LEASE).await;
    assert_eq!(failed.body, b"first");
    retry_after(&store, &failed, SHORT).await;
    let meanwhile = receive(&store, 10).await;
    assert_eq!(bodies(&meanwhile), ["waiting"; 10], "it is not due");
    ready(&store, 2_991).await;
    let next = receive(&store, 2).await;
    assert_eq!(bodies(&next), ["first", "waiting"]);
    assert_eq!(next[0].dequeue_count, 2);
}

#[tokio::test]
async fn retries_that_are_due_come_in_the_order_in_which_they_were_queued() {
    let bench = Bench::new();
    let store = bench.open().await;
    send(&store, &["a", "b", "c", "d"], Duration::ZERO).await;
    let held = receive(&store, 3).await;
    for (delivery, delay) in held.iter().zip([3, 1, 2]) {
        retry_after(&store, delivery, SHORT * delay).await;
    }
    ready(&store, 4).await;
    assert_eq!(bodies(&receive(&store, 4).await), ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_message_that_goes_to_the_back_comes_after_what_waited_by_then() {
    let bench = Bench::new();
    let store = bench.open().await;
    for delay in [Duration::ZERO, SHORT] {
        send(&store, &["first", "a", "b"], Duration::ZERO).await;
        let first = receive_one(&store, LEASE).await;
        // The store's times are milliseconds.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let back = Release { delay, to_back: true, ..Release::default() };
        store.queue.release(&first.receipt, &back).await.unwrap();
        ready(&store, 3).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        send(&store, &["c"], Duration::ZERO).await;
        let all = receive(&store, 4).await;
        assert_eq!(bodies(&all), ["a", "b", "first", "c"], "after {delay:?}");
        assert_eq!(all[2].dequeue_count, 2);
        for delivery in all {
            store.queue.complete(&delivery.receipt).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_message_whose_lease_ended_has_its_place_in_line() {
    let bench = Bench::new();
    let store = bench.open().await;
    send(&store, &["first", "second", "third"], Duration::ZERO).await;
    receive_one(&store, SHORT).await;
    ready(&store, 3).await;
    assert_eq!(bodies(&receive(&store, 3).await), ["first", "second", "third"]);
}

#[tokio::test]
async fn a_delayed_message_is_queued_when_its_delay_ends() {
    let bench = Bench::new();
    let store = bench.open().await;
    send(&store, &["later"], SHORT).await;
    send(&store, &["a", "b"], Duration::ZERO).await;
    ready(&store, 3).await;
    send(&store, &["c"], Duration::ZERO).await;
    let delivery = receive_one(&store, LEASE).await;
    store.queue.complete(&delivery.receipt).await.unwrap();
    assert_eq!(bodies(&receive(&store, 4).await), ["b", "later", "c"]);
}

#[tokio::test]
async fn any_number_of_messages_may_become_due_at_once() {
    let bench = Bench::new();
    let store = bench.open().await;
    let numbered = |n: u32| NewMessage { body: n.to_string().into_bytes(), delay: SHORT };
    store.queue.send((0..2_500).map(numbered).collect()).await.unwrap();
    ready(&store, 2_500).await;
    let mut received = Vec::new();
    while received.len() < 2_500 {
        let deliveries = receive(&store, 700).await;
        assert!(!deliveries.is_empty());
        received.extend(bodies(&deliveries).into_iter().map(|body| body.parse::<u32>().unwrap()));
    }
    received.sort_unstable();
    assert!(received.into_iter().eq(0..2_500), "each once");
    let depth = store.queue.depth().await.unwrap();
    assert_eq!((depth.ready, depth.leased, depth.delayed), (Some(0), Some(2_500), Some(0)));
}

/// Two messages: another receiver has the first, and its receive put the second, of which the lease
/// had ended, back in line.
async fn overtaken(bench: &Bench, store: &Store) -> Delivery {
    send(store, &["first", "second"], Duration::ZERO).await;
    let first = receive_one(store, LEASE).await;
    let late = receive_one(store, SHORT).await;
    store.queue.release(&first.receipt, &Release::default()).await.unwrap();
    ready(store, 2).await;
    let another = bench.open().await;
    assert_eq!(bodies(&receive(&another, 1).await), ["first"]);
    assert_eq!(bench.number("SELECT count(*) FROM msg WHERE invisible = 0", []), 1, "it is in line");
    late
}

#[tokio::test]
async fn an_ended_lease_is_renewed_unless_another_receive_got_the_message() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let late = overtaken(&bench, &store).await;
    let renewed = store.queue.renew(&late.receipt, LEASE).await.expect("nobody else got it");
    assert!(receive(&bench.open().await, 1).await.is_empty(), "and the lease holds again");
    let error = store.queue.renew(&late.receipt, LEASE).await.expect_err("its receipt is an old one");
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    drop(store);
    let other = bench.open().await;
    let again = receive(&other, 1).await;
    assert_eq!(bodies(&again), ["second"], "and ends with its holder");
    assert!(other.queue.complete(&renewed).await.is_err());
}

#[tokio::test]
async fn a_message_of_an_ended_lease_is_settled_unless_another_receive_got_it() {
    let bench = Bench::new();
    let store = bench.open().await;
    let late = overtaken(&bench, &store).await;
    store.queue.complete(&late.receipt).await.expect("nobody else got it");

    let bench = Bench::new();
    let store = bench.open().await;
    let late = overtaken(&bench, &store).await;
    retry_after(&store, &late, LEASE).await;
    assert_eq!(store.queue.depth().await.unwrap().delayed, Some(1));

    let bench = Bench::new();
    let store = bench.open().await;
    let late = overtaken(&bench, &store).await;
    store.queue.dead_letter(&late.receipt, b"dead", &DeadLetter::because("a test")).await.unwrap();
    assert_eq!(store.queue.depth().await.unwrap().poisoned, Some(1));

    let bench = Bench::new();
    let store = bench.open().await;
    let late = overtaken(&bench, &store).await;
    let taken = receive_one(&bench.open().await, LEASE).await;
    assert_eq!(taken.id, late.id);
    let error = store.queue.complete(&late.receipt).await.expect_err("another receive got it");
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
}
