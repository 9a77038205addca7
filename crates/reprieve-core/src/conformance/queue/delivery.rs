//! Sending, receiving and counting.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{LONG, PATIENCE, PAUSE, SHORT, held, receive, received_from, send, send_after};
use crate::clock::unix_millis;
use crate::conformance::{Fixture, bodies};
use crate::ports::{NewMessage, Queue, Release};

/// The largest body that every queue accepts: 48 KiB, which is 64 KiB of base64, Storage Queue's
/// limit.
/// <https://learn.microsoft.com/rest/api/storageservices/put-message>
const LARGEST_BODY_BYTES: usize = 48 * 1024;

fn messages<const N: usize>(bodies: [&[u8]; N]) -> Vec<NewMessage> {
    bodies.map(|body| NewMessage { body: body.to_vec(), delay: Duration::ZERO }).to_vec()
}

/// A message that one process sends is received by another, under its id and with dequeue count 1.
pub async fn another_process_receives_a_sent_message(fixture: &Fixture) {
    let id = send(&*fixture.store.queue, b"hello").await;
    let delivery = receive(&*fixture.another.queue, LONG).await;
    assert_eq!((delivery.id, delivery.dequeue_count), (id, 1));
    assert_eq!(delivery.body, b"hello");
}

/// `send` returns the ids in the order of the messages.
pub async fn ids_come_in_the_order_of_the_messages(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    assert_eq!(queue.send(Vec::new()).await.expect("sends nothing"), []);
    let sent = [&b"a"[..], b"b", b"c", b"d", b"e"];
    let ids = queue.send(messages(sent)).await.expect("sends");
    let mut received: HashMap<_, _> = HashMap::new();
    for delivery in queue.receive(5, LONG).await.expect("receives") {
        received.insert(delivery.id, delivery.body);
    }
    assert_eq!(received.len(), 5);
    for (id, body) in ids.iter().zip(sent) {
        assert_eq!(received[id], body);
    }
}

/// A receive that finds nothing returns at once, with nothing.
pub async fn nothing_is_received_from_an_empty_queue(fixture: &Fixture) {
    let begun = Instant::now();
    assert_eq!(fixture.store.queue.receive(32, LONG).await.expect("receives"), []);
    assert!(begun.elapsed() < PATIENCE, "it waited for a message");
}

/// A receive never returns more than `max`, not even for zero, or for more than a service returns
/// in one answer.
pub async fn receive_returns_at_most_what_was_asked_for(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let all: Vec<NewMessage> =
        (0..40).map(|n: u8| NewMessage { body: vec![n], delay: Duration::ZERO }).collect();
    queue.send(all).await.expect("sends");

    assert_eq!(queue.receive(0, LONG).await.expect("receives none"), []);
    let three = queue.receive(3, LONG).await.expect("receives");
    assert!((1..=3).contains(&three.len()), "asked for 3, received {}", three.len());

    let mut seen: HashSet<_> = three.into_iter().map(|delivery| delivery.body).collect();
    let limit = Instant::now() + PATIENCE;
    while seen.len() < 40 {
        assert!(Instant::now() < limit, "only {} of 40 were received", seen.len());
        let more = queue.receive(100, LONG).await.expect("receives");
        seen.extend(more.into_iter().map(|delivery| delivery.body));
    }
}

/// Any bytes are returned as they were sent.
pub async fn bodies_come_back_byte_for_byte(fixture: &Fixture) {
    for body in bodies::awkward(LARGEST_BODY_BYTES) {
        send(&*fixture.store.queue, &body).await;
        let delivery = receive(&*fixture.another.queue, LONG).await;
        assert!(delivery.body == body, "{} bytes came back as {}", body.len(), delivery.body.len());
        fixture.another.queue.complete(&delivery.receipt).await.expect("completes");
    }
}

/// A delayed message is received after its delay and not before; it does not delay other messages.
pub async fn a_delayed_message_is_received_after_its_delay(fixture: &Fixture) {
    let queue = &*fixture.store.queue;
    let begun = Instant::now();
    let delay = SHORT * 2;
    send_after(queue, b"later", delay).await;
    let prompt = held(queue, b"now", LONG).await;
    assert_eq!(prompt.body, b"now");
    let late = received_from(&*fixture.another.queue, begun + delay).await;
    assert_eq!((&*late.body, late.dequeue_count), (&b"later"[..], 1));
}

/// However many processes receive concurrently, each message goes to one of them.
pub async fn concurrent_receivers_never_share_a_message(fixture: &Fixture) {
    const MESSAGES: usize = 100;
    const RECEIVERS: usize = 20;
    let numbered = |n: usize| NewMessage { body: n.to_string().into_bytes(), delay: Duration::ZERO };
    fixture.store.queue.send((0..MESSAGES).map(numbered).collect()).await.expect("sends");

    let mut receivers = JoinSet::new();
    for n in 0..RECEIVERS {
        let store = if n % 2 == 0 { &fixture.store } else { &fixture.another };
        receivers.spawn(receive_all(Arc::clone(&store.queue), 1 + n % 4));
    }
    let received: Vec<_> = receivers.join_all().await.into_iter().flatten().collect();
    let distinct: HashSet<_> = received.iter().collect();
    assert_eq!(received.len(), distinct.len(), "two receivers had the same message");
    assert_eq!(distinct.len(), MESSAGES, "a message was not received");
}

/// Receives `max` at a time until nothing is left, and returns the bodies.
async fn receive_all(queue: Arc<dyn Queue>, max: usize) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    loop {
        let deliveries = queue.receive(max, LONG).await.expect("receives");
        if deliveries.is_empty() {
            return bodies;
        }
        bodies.extend(deliveries.into_iter().map(|delivery| delivery.body));
        tokio::task::yield_now().await;
    }
}

/// The dequeue count is 1, 2, 3, …, whether a lease ended or was released, and with a new body too.
pub async fn the_dequeue_count_rises_by_one_with_every_receipt(fixture: &Fixture) {
    let queue = &*fixture.store.queue;
    let id = send(queue, b"one").await;
    let begun = Instant::now();
    let first = receive(queue, SHORT).await;
    assert_eq!(first.dequeue_count, 1);

    let second = received_from(&*fixture.another.queue, begun + SHORT).await;
    assert_eq!((&second.id, second.dequeue_count), (&id, 2));
    let renewed = fixture.another.queue.renew(&second.receipt, LONG).await.expect("renews");
    fixture.another.queue.release(&renewed, &Release::default()).await.expect("releases");

    let third = receive(queue, LONG).await;
    assert_eq!((&third.id, third.dequeue_count), (&id, 3));
    let release = Release { body: Some(b"two".to_vec()), delay: Duration::ZERO, ..Release::default() };
    queue.release(&third.receipt, &release).await.expect("releases");

    let fourth = receive(queue, LONG).await;
    assert_eq!((&fourth.id, fourth.dequeue_count), (&id, 4));
}

/// The total counts every message that is not settled; the known parts count each message once.
pub async fn depth_counts_each_message_once(fixture: &Fixture) {
    let queue = &*fixture.store.queue;
    let poisoned = held(queue, b"poisoned", LONG).await;
    let letter = crate::ports::DeadLetter { reason: "for the count".to_owned() };
    queue.dead_letter(&poisoned.receipt, &poisoned.body, &letter).await.expect("dead-letters");
    let completed = held(queue, b"completed", LONG).await;
    queue.complete(&completed.receipt).await.expect("completes");
    let _leased = held(queue, b"leased", LONG).await;
    let deferred = held(queue, b"deferred", LONG).await;
    let release = Release { body: None, delay: LONG, ..Release::default() };
    queue.release(&deferred.receipt, &release).await.expect("releases");
    send_after(queue, b"delayed", LONG).await;
    queue.send(messages([b"a", b"b", b"c"])).await.expect("sends");

    let limit = Instant::now() + PATIENCE;
    loop {
        let depth = fixture.another.queue.depth().await.expect("counts");
        let parts = [(depth.ready, 3), (depth.leased, 1), (depth.delayed, 2), (depth.poisoned, 1)];
        let known_parts_agree = parts.iter().all(|(part, expected)| part.is_none_or(|n| n == *expected));
        if depth.total == 6 && known_parts_agree {
            return;
        }
        // A service's count may lag.
        assert!(
            Instant::now() < limit,
            "there are 3 ready, 1 leased, 2 delayed, 1 poisoned; counted {depth:?}"
        );
        sleep(PAUSE).await;
    }
}

/// The time of sending, where it is known, is about now for a new message, even with a delay.
/// Renewals, releases and redeliveries keep it.
pub async fn the_time_of_sending_is_kept(fixture: &Fixture) {
    let queue = &*fixture.store.queue;
    send_after(queue, b"sent now, received later", SHORT).await;
    let now = unix_millis();
    let first = received_from(queue, Instant::now()).await;
    let Some(inserted) = first.inserted_unix_ms else {
        return;
    };
    assert!((inserted - now).abs() < 60_000, "{inserted} is not about {now}");
    let renewed = queue.renew(&first.receipt, LONG).await.expect("renews");
    let release = Release { body: Some(b"another body".to_vec()), delay: SHORT, ..Release::default() };
    queue.release(&renewed, &release).await.expect("releases");
    let begun = Instant::now();
    let second = received_from(&*fixture.another.queue, begun).await;
    assert_eq!(second.inserted_unix_ms, Some(inserted), "after a release with a body and a delay");
    fixture.another.queue.renew(&second.receipt, SHORT).await.expect("renews");
    let third = received_from(queue, Instant::now()).await;
    assert_eq!((third.inserted_unix_ms, third.dequeue_count), (Some(inserted), 3), "after a lease ended");
}

/// Every receipt belongs to one of the queue's parts, and stays in it when it is renewed.
pub async fn every_receipt_is_of_a_part(fixture: &Fixture) {
    let queue = &*fixture.store.queue;
    queue.send(messages([b"a", b"b", b"c", b"d", b"e"])).await.expect("sends");
    let (mut left, limit) = (5, Instant::now() + PATIENCE);
    while left > 0 {
        assert!(Instant::now() < limit, "{left} messages are not received");
        for delivery in queue.receive(5, LONG).await.expect("receives") {
            let part = queue.part(&delivery.receipt);
            assert!(part < queue.parts(), "part {part} of {}", queue.parts());
            let renewed = queue.renew(&delivery.receipt, LONG).await.expect("renews");
            assert_eq!(queue.part(&renewed), part);
            left -= 1;
        }
    }
}
