//! The promises of a [`Queue`].
//!
//! All waiting is for a condition with a limit, so a slow backend makes the suite slow but does not
//! fail it.

mod delivery;
mod lease;
mod letters;
mod settle;

use std::time::Duration;

use tokio::time::{Instant, sleep};

pub use delivery::*;
pub use lease::*;
pub use letters::*;
pub use settle::*;

use crate::error::{ErrorKind, Result};
use crate::ids::MessageId;
use crate::ports::{DeadLetter, Delivery, NewMessage, Queue, Receipt, Release};

/// The shortest lease that every backend supports.
const SHORT: Duration = Duration::from_secs(1);

/// A lease that does not end during a test.
const LONG: Duration = Duration::from_mins(1);

/// The time limit for a required event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The error that a backend's clock may have in a lease.
const ROUNDING: Duration = Duration::from_millis(50);

/// The interval between two polls of a queue.
const PAUSE: Duration = Duration::from_millis(100);

/// Sends one message.
async fn send(queue: &dyn Queue, body: &[u8]) -> MessageId {
    send_after(queue, body, Duration::ZERO).await
}

/// Sends one message that stays invisible for `delay`.
async fn send_after(queue: &dyn Queue, body: &[u8], delay: Duration) -> MessageId {
    let mut ids = queue.send(vec![NewMessage { body: body.to_vec(), delay }]).await.expect("sends");
    assert_eq!(ids.len(), 1, "one message has one id");
    ids.remove(0)
}

/// Receives the one message that is receivable.
async fn receive(queue: &dyn Queue, lease: Duration) -> Delivery {
    let mut deliveries = queue.receive(2, lease).await.expect("receives");
    assert_eq!(deliveries.len(), 1, "exactly one message is receivable");
    deliveries.remove(0)
}

/// Sends one message and receives it.
async fn held(queue: &dyn Queue, body: &[u8], lease: Duration) -> Delivery {
    send(queue, body).await;
    receive(queue, lease).await
}

/// Receives the next message, which must arrive no earlier than `earliest`, and soon after it.
async fn received_from(queue: &dyn Queue, earliest: Instant) -> Delivery {
    loop {
        let mut deliveries = queue.receive(1, LONG).await.expect("receives");
        let now = Instant::now();
        if let Some(delivery) = deliveries.pop() {
            let early = earliest.saturating_duration_since(now);
            assert!(early <= ROUNDING, "it was received {early:?} before it may be");
            return delivery;
        }
        assert!(now < earliest + PATIENCE, "it is not receivable {PATIENCE:?} after it should be");
        sleep(PAUSE).await;
    }
}

/// Asserts that nothing is receivable for `time`.
async fn nothing_for(queue: &dyn Queue, time: Duration) {
    let end = Instant::now() + time;
    loop {
        assert_eq!(queue.receive(1, LONG).await.expect("receives"), [], "nothing should be receivable");
        if Instant::now() >= end {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Asserts that `receipt` holds nothing: every operation with it is refused, and leaves no dead
/// letter.
async fn refused(queue: &dyn Queue, receipt: &Receipt) {
    #[track_caller]
    fn lost<T: std::fmt::Debug>(what: &str, result: Result<T>) {
        let error = result.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::LeaseLost, "{what}: {error}");
    }

    let poison = queue.dead_letters(32).await.expect("looks");

    lost("renew with a stale receipt", queue.renew(receipt, LONG).await);
    let release = Release {
        body: Some(b"written with a stale receipt".to_vec()),
        delay: Duration::ZERO,
        ..Release::default()
    };
    lost("release with a stale receipt", queue.release(receipt, &release).await);
    let letter = DeadLetter { reason: "stale".to_owned() };
    lost("dead-letter with a stale receipt", queue.dead_letter(receipt, b"stale", &letter).await);
    lost("complete with a stale receipt", queue.complete(receipt).await);

    assert_eq!(
        queue.dead_letters(32).await.expect("looks"),
        poison,
        "a stale receipt changed the poison queue"
    );
}

/// One test per promise of a queue; see [`conformance`](crate::conformance).
#[macro_export]
macro_rules! queue_conformance {
    ($fixture:ident $(, $($attribute:tt)*)?) => {
        $crate::__conformance! {
            queue, queue_conformance, $fixture, ($($($attribute)*)?),
            another_process_receives_a_sent_message,
            ids_come_in_the_order_of_the_messages,
            nothing_is_received_from_an_empty_queue,
            receive_returns_at_most_what_was_asked_for,
            bodies_come_back_byte_for_byte,
            a_delayed_message_is_received_after_its_delay,
            concurrent_receivers_never_share_a_message,
            the_dequeue_count_rises_by_one_with_every_receipt,
            depth_counts_each_message_once,
            the_time_of_sending_is_kept,
            every_receipt_is_of_a_part,
            a_leased_message_is_not_received_again,
            a_renewed_lease_ends_at_its_new_time,
            a_renewal_can_shorten_a_lease,
            a_renewal_makes_older_receipts_stale,
            a_second_receipt_makes_the_first_stale,
            a_stale_receipt_does_not_disturb_the_new_owner,
            a_completed_message_never_comes_back,
            a_completed_message_leaves_its_receipt_stale,
            a_released_message_is_received_at_once_with_its_body,
            a_released_message_leaves_its_receipt_stale,
            a_release_with_body_and_delay_is_one_step,
            a_release_can_empty_the_body,
            a_dead_letter_keeps_body_and_reason,
            a_dead_letter_keeps_any_body,
            dead_letters_are_looked_at_oldest_first_and_stay,
            a_dead_lettered_message_leaves_its_receipt_stale,
            recovery_leaves_living_owners_alone,
            no_letter_is_received_from_an_empty_poison_queue,
            a_letter_has_the_body_that_was_given,
            letters_are_received_once_and_at_most_as_many_as_asked_for,
            a_received_letter_shows_again_when_its_lease_ends,
            a_returned_letter_shows_again_as_it_was,
            a_removed_letter_is_gone,
            receipts_of_messages_hold_no_letters,
        }
    };
}
