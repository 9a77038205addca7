//! Settling: complete, release, dead-letter, and recovery.

use std::time::Duration;

use tokio::time::Instant;

use super::{LONG, SHORT, held, nothing_for, receive, received_from, refused, send};
use crate::conformance::{Fixture, bodies};
use crate::ports::{DeadLetter, DeadLettered, Release};

/// A completed message is gone for every process, even after its lease would have ended.
pub async fn a_completed_message_never_comes_back(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let delivery = held(&**queue, b"done", SHORT * 2).await;
    queue.complete(&delivery.receipt).await.expect("completes");
    nothing_for(&*fixture.another.queue, SHORT * 3).await;
    assert_eq!(queue.dead_letters(32).await.expect("looks"), [], "completing is not dead-lettering");
}

/// A completed message can't be settled again.
pub async fn a_completed_message_leaves_its_receipt_stale(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let delivery = held(&**queue, b"done", LONG).await;
    queue.complete(&delivery.receipt).await.expect("completes");
    refused(&**queue, &delivery.receipt).await;
}

/// A message that is released without delay is receivable at once, long before its lease would have
/// ended.
pub async fn a_released_message_is_received_at_once_with_its_body(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let delivery = held(&**queue, b"as sent", LONG).await;
    queue.release(&delivery.receipt, &Release::default()).await.expect("releases");
    let again = receive(&*fixture.another.queue, LONG).await;
    assert_eq!((&*again.body, again.dequeue_count), (&b"as sent"[..], 2));
    assert_eq!(again.id, delivery.id);
}

/// After a release, the receipt no longer holds the message, even before another process receives
/// it.
pub async fn a_released_message_leaves_its_receipt_stale(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let delivery = held(&**queue, b"as sent", LONG).await;
    queue.release(&delivery.receipt, &Release::default()).await.expect("releases");
    refused(&**queue, &delivery.receipt).await;
    let again = receive(&*fixture.another.queue, LONG).await;
    assert_eq!(again.body, b"as sent");
    refused(&**queue, &delivery.receipt).await;
    fixture.another.queue.complete(&again.receipt).await.expect("completes");
}

/// A release with a new body and a delay applies both or neither: the message is not received
/// before the delay ends, and has the new body after it.
pub async fn a_release_with_body_and_delay_is_one_step(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    for (round, body) in bodies::awkward(1024).into_iter().enumerate() {
        let delivery = held(&**queue, b"as sent", LONG).await;
        // One round with a delay is enough to test the delay; rounds without one reveal a body that
        // is stored too late.
        let delay = if round == 0 { SHORT } else { Duration::ZERO };
        let begun = Instant::now();
        let release = Release { body: Some(body.clone()), delay, ..Release::default() };
        queue.release(&delivery.receipt, &release).await.expect("releases");
        let again = received_from(&*fixture.another.queue, begun + delay).await;
        assert_eq!((again.body, again.dequeue_count), (body, 2));
        fixture.another.queue.complete(&again.receipt).await.expect("completes");
    }
}

/// An empty new body replaces the old one.
pub async fn a_release_can_empty_the_body(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let delivery = held(&**queue, b"as sent", LONG).await;
    let release = Release { body: Some(Vec::new()), delay: Duration::ZERO, ..Release::default() };
    queue.release(&delivery.receipt, &release).await.expect("releases");
    assert_eq!(receive(&*fixture.another.queue, LONG).await.body, b"");
}

/// A dead letter is in the poison queue with its body and reason, and no longer in the queue.
pub async fn a_dead_letter_keeps_body_and_reason(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let reason = "unknown kind \"résumé\": deploy a worker that knows it\nor delete the message \u{1f480}";
    let delivery = held(&**queue, b"\0bad\xff", SHORT * 2).await;
    queue
        .dead_letter(&delivery.receipt, &delivery.body, &DeadLetter { reason: reason.to_owned() })
        .await
        .expect("dead-letters");

    let letters = fixture.another.queue.dead_letters(32).await.expect("looks");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].body, b"\0bad\xff");
    assert_eq!(letters[0].reason.as_deref(), Some(reason));
    nothing_for(&*fixture.another.queue, SHORT * 3).await;
}

/// Dead-lettering keeps any body, even one that a release stored.
pub async fn a_dead_letter_keeps_any_body(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    // 32 KiB leave room for the reason in backends that store it with the body.
    for body in bodies::awkward(32 * 1024) {
        let delivery = held(&**queue, b"as sent", LONG).await;
        let release = Release { body: Some(body), delay: Duration::ZERO, ..Release::default() };
        queue.release(&delivery.receipt, &release).await.expect("releases");
        let again = receive(&**queue, LONG).await;
        let letter = DeadLetter { reason: "any body".to_owned() };
        queue.dead_letter(&again.receipt, &again.body, &letter).await.expect("dead-letters");
    }
    let letters = fixture.another.queue.dead_letters(32).await.expect("looks");
    let kept: Vec<_> = letters.into_iter().map(|letter| letter.body).collect();
    assert_eq!(kept, bodies::awkward(32 * 1024));
}

/// Listing dead letters receives none of them: they stay, and are listed oldest first.
pub async fn dead_letters_are_looked_at_oldest_first_and_stay(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    assert_eq!(queue.dead_letters(32).await.expect("looks at none"), []);
    for name in ["first", "second", "third"] {
        let delivery = held(&**queue, name.as_bytes(), LONG).await;
        queue
            .dead_letter(&delivery.receipt, &delivery.body, &DeadLetter { reason: name.to_owned() })
            .await
            .expect("dead-letters");
    }
    for _ in 0..2 {
        let letters = fixture.another.queue.dead_letters(2).await.expect("looks");
        let seen: Vec<_> = letters.iter().map(|DeadLettered { body, .. }| &**body).collect();
        assert_eq!(seen, [&b"first"[..], b"second"]);
    }
    assert_eq!(fixture.another.queue.dead_letters(32).await.expect("looks").len(), 3);
}

/// A dead-lettered message can't be settled again, and a second attempt creates no second dead
/// letter.
pub async fn a_dead_lettered_message_leaves_its_receipt_stale(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    let delivery = held(&**queue, b"bad", LONG).await;
    queue
        .dead_letter(&delivery.receipt, &delivery.body, &DeadLetter { reason: "once".to_owned() })
        .await
        .expect("dead-letters");
    refused(&**queue, &delivery.receipt).await;
}

/// Recovery releases no message that a living process holds.
pub async fn recovery_leaves_living_owners_alone(fixture: &Fixture) {
    let queue = &fixture.store.queue;
    send(&**queue, b"held").await;
    let delivery = receive(&**queue, LONG).await;
    assert_eq!(fixture.another.queue.recover().await.expect("recovers"), 0);
    assert_eq!(fixture.another.queue.receive(1, LONG).await.expect("receives"), []);
    queue.complete(&delivery.receipt).await.expect("the receipt holds");
}
