//! Dead letters: receiving, returning and removing them.

use tokio::time::{Instant, sleep};

use super::{LONG, PATIENCE, PAUSE, ROUNDING, SHORT, held};
use crate::conformance::{Fixture, bodies};
use crate::error::ErrorKind;
use crate::ports::{DeadLetter, Delivery, Queue, Receipt};

/// Sends a message, receives it and dead-letters it with `body`.
async fn dead_letter(queue: &dyn Queue, body: &[u8]) {
    let delivery = held(queue, b"as sent", LONG).await;
    let letter = DeadLetter { reason: "it is of no use".to_owned() };
    queue.dead_letter(&delivery.receipt, body, &letter).await.expect("dead-letters");
}

/// Receives the only receivable dead letter.
async fn receive_letter(queue: &dyn Queue) -> Delivery {
    let mut letters = queue.receive_letters(2, LONG).await.expect("receives letters");
    assert_eq!(letters.len(), 1, "exactly one dead letter is receivable");
    letters.remove(0)
}

/// Asserts that no dead letter is receivable.
async fn no_letter(queue: &dyn Queue) {
    assert_eq!(queue.receive_letters(32, LONG).await.expect("receives letters"), []);
}

/// Asserts that `receipt` holds no dead letter.
async fn stale(queue: &dyn Queue, receipt: &Receipt) {
    for result in [queue.remove_letter(receipt).await, queue.return_letter(receipt).await] {
        let error = result.expect_err("the receipt is stale");
        assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
    }
}

/// A receive from an empty poison queue returns nothing.
pub async fn no_letter_is_received_from_an_empty_poison_queue(fixture: &Fixture) {
    no_letter(&*fixture.store.queue).await;
    held(&*fixture.store.queue, b"no dead letter", LONG).await;
    no_letter(&*fixture.store.queue).await;
}

/// A dead letter has the body that was given for it, not the delivered one, byte for byte and
/// without the reason.
pub async fn a_letter_has_the_body_that_was_given(fixture: &Fixture) {
    let queue = &*fixture.store.queue;
    // 32 KiB leave room for the reason in backends that store it with the body.
    for body in bodies::awkward(32 * 1024) {
        dead_letter(queue, &body).await;
        let letters = fixture.another.queue.dead_letters(32).await.expect("looks");
        assert!(letters.len() == 1 && letters[0].body == body, "{} bytes", body.len());
        let letter = receive_letter(&*fixture.another.queue).await;
        assert!(letter.body == body, "{} bytes came back as {}", body.len(), letter.body.len());
        assert_eq!((letter.dequeue_count, &letter.unreadable), (1, &None));
        fixture.another.queue.remove_letter(&letter.receipt).await.expect("removes");
    }
}

/// A receive of dead letters returns at most `max`, and in the end each letter was received once.
pub async fn letters_are_received_once_and_at_most_as_many_as_asked_for(fixture: &Fixture) {
    let queue = &*fixture.store.queue;
    for body in [b"a", b"b", b"c", b"d", b"e"] {
        dead_letter(queue, body).await;
    }
    assert_eq!(queue.receive_letters(0, LONG).await.expect("receives none"), []);
    let mut received = queue.receive_letters(2, LONG).await.expect("receives letters");
    assert_eq!(received.len(), 2);
    received.extend(fixture.another.queue.receive_letters(32, LONG).await.expect("receives letters"));
    no_letter(queue).await;
    let mut bodies: Vec<_> = received.into_iter().map(|letter| letter.body).collect();
    bodies.sort();
    assert_eq!(bodies, [b"a", b"b", b"c", b"d", b"e"]);
}

/// A received dead letter is hidden from other receives until its lease ends, and is receivable
/// again then.
pub async fn a_received_letter_shows_again_when_its_lease_ends(fixture: &Fixture) {
    let (queue, another) = (&*fixture.store.queue, &*fixture.another.queue);
    dead_letter(queue, b"kept").await;
    let lease = SHORT * 2;
    let begun = Instant::now();
    let first = queue.receive_letters(1, lease).await.expect("receives letters").remove(0);
    let second = loop {
        let letter = another.receive_letters(1, LONG).await.expect("receives letters").pop();
        let now = Instant::now();
        if let Some(letter) = letter {
            assert!(now + ROUNDING >= begun + lease, "it was received under another lease");
            break letter;
        }
        assert!(now < begun + lease + PATIENCE, "it does not show again");
        sleep(PAUSE).await;
    };
    assert_eq!((&second.id, &*second.body, second.dequeue_count), (&first.id, &b"kept"[..], 2));
    stale(queue, &first.receipt).await;
    another.remove_letter(&second.receipt).await.expect("the second receipt holds");
    stale(queue, &first.receipt).await;
}

/// A returned dead letter is receivable again at once, with its body and its reason.
pub async fn a_returned_letter_shows_again_as_it_was(fixture: &Fixture) {
    let (queue, another) = (&*fixture.store.queue, &*fixture.another.queue);
    dead_letter(queue, b"\0kept\xff").await;
    let before = queue.dead_letters(32).await.expect("looks");
    let letter = receive_letter(queue).await;
    queue.return_letter(&letter.receipt).await.expect("returns");
    stale(queue, &letter.receipt).await;
    assert_eq!(another.dead_letters(32).await.expect("looks"), before);
    let again = receive_letter(another).await;
    assert_eq!((&again.id, again.body, again.dequeue_count), (&letter.id, letter.body, 2));
}

/// A removed dead letter is gone for every process, even after its lease would have ended.
pub async fn a_removed_letter_is_gone(fixture: &Fixture) {
    let (queue, another) = (&*fixture.store.queue, &*fixture.another.queue);
    dead_letter(queue, b"gone").await;
    let letter = queue.receive_letters(1, SHORT).await.expect("receives letters").remove(0);
    queue.remove_letter(&letter.receipt).await.expect("removes");
    stale(queue, &letter.receipt).await;
    sleep(SHORT * 2).await;
    no_letter(another).await;
    assert_eq!(another.dead_letters(32).await.expect("looks"), []);
    assert_eq!(another.receive(32, LONG).await.expect("receives"), [], "it does not go back to the queue");
}

/// Receipts of messages and of dead letters are distinct: neither settles the other.
pub async fn receipts_of_messages_hold_no_letters(fixture: &Fixture) {
    let queue = &*fixture.store.queue;
    dead_letter(queue, b"letter").await;
    let message = held(queue, b"message", LONG).await;
    let letter = receive_letter(queue).await;
    stale(queue, &message.receipt).await;
    let error = queue.complete(&letter.receipt).await.expect_err("it is no receipt of a message");
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
    queue.complete(&message.receipt).await.expect("completes");
    queue.remove_letter(&letter.receipt).await.expect("removes");
}
