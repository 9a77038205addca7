//! Leases: who may hold a message, until when, and with which receipt.

use tokio::time::{Instant, sleep};

use super::{LONG, SHORT, held, nothing_for, receive, received_from, refused, send};
use crate::conformance::Fixture;

/// While a lease holds, no process receives the message; after its end, another process can.
pub async fn a_leased_message_is_not_received_again(fixture: &Fixture) {
    let lease = SHORT * 2;
    send(&*fixture.store.queue, b"held").await;
    let begun = Instant::now();
    receive(&*fixture.store.queue, lease).await;
    let again = received_from(&*fixture.another.queue, begun + lease).await;
    assert_eq!((&*again.body, again.dequeue_count), (&b"held"[..], 2));
}

/// A renewed lease ends the given time after the renewal, not at its former end.
pub async fn a_renewed_lease_ends_at_its_new_time(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    // Each renewal is long before the lease's end, so that a busy machine does not make it late.
    let mut receipt = held(&**queue, b"held", SHORT * 3).await.receipt;
    for _ in 0..2 {
        sleep(SHORT).await;
        receipt = queue.renew(&receipt, SHORT * 3).await.expect("renews");
    }
    let begun = Instant::now();
    queue.renew(&receipt, SHORT * 2).await.expect("renews");
    let again = received_from(&*fixture.another.queue, begun + SHORT * 2).await;
    assert_eq!(again.dequeue_count, 2, "renewing is not receiving");
}

/// A renewal counts from now, so it can also shorten a lease.
pub async fn a_renewal_can_shorten_a_lease(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let delivery = held(&**queue, b"held", LONG).await;
    let begun = Instant::now();
    queue.renew(&delivery.receipt, SHORT).await.expect("renews");
    received_from(&*fixture.another.queue, begun + SHORT).await;
}

/// Each renewal returns a new receipt. Older ones are refused while the newest holds.
pub async fn a_renewal_makes_older_receipts_stale(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let first = held(&**queue, b"held", LONG).await.receipt;
    let second = queue.renew(&first, LONG).await.expect("renews");
    let third = queue.renew(&second, LONG).await.expect("renews again");
    assert!(first != second && second != third && first != third, "a receipt was given twice");
    refused(&**queue, &first).await;
    refused(&**queue, &second).await;
    queue.complete(&third).await.expect("the newest receipt holds");
}

/// After a lease has ended and another process received the message, the first receipt is refused.
pub async fn a_second_receipt_makes_the_first_stale(fixture: &Fixture) {
    send(&*fixture.store.queue, b"held").await;
    let begun = Instant::now();
    let first = receive(&*fixture.store.queue, SHORT).await;
    let second = received_from(&*fixture.another.queue, begun + SHORT).await;
    refused(&*fixture.store.queue, &first.receipt).await;
    fixture.another.queue.complete(&second.receipt).await.expect("the second receipt holds");
    refused(&*fixture.store.queue, &first.receipt).await;
}

/// No operation with a stale receipt changes the new owner's lease, body or receipt.
pub async fn a_stale_receipt_does_not_disturb_the_new_owner(fixture: &Fixture) {
    let queue = &fixture.another.queue;
    send(&*fixture.store.queue, b"the new owner's").await;
    let begun = Instant::now();
    let first = receive(&*fixture.store.queue, SHORT).await;
    let second = received_from(&**queue, begun + SHORT).await;
    refused(&*fixture.store.queue, &first.receipt).await;
    nothing_for(&*fixture.store.queue, SHORT).await;

    let begun = Instant::now();
    queue.renew(&second.receipt, SHORT).await.expect("the second receipt holds");
    let third = received_from(&**queue, begun + SHORT).await;
    assert_eq!((&*third.body, third.dequeue_count), (&b"the new owner's"[..], 3));
}
