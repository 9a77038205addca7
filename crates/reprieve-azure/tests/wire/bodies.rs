//! Long bodies, and messages of other senders: none is lost, and no blob is left over.

use std::time::Duration;

use reprieve_core::clock::unix_millis;
use reprieve_core::envelope::BODY_BYTES_MAX;
use reprieve_core::ports::{DeadLetter, NewMessage, Release};
use reprieve_core::worker::{Settings, Worker, stopping};
use reprieve_core::{ErrorKind, Job, JobContext, JobError, Step};
use reprieve_sim::storage::{Action, Operation};
use tokio::time::Instant;

use crate::support::{LEASE, QUEUE, Shop};

const LONG_BODIES: &str = ".reprieve/messages/";

/// A JSON object that is too long for a message.
fn long(filler: char) -> Vec<u8> {
    format!(r#"{{"filler":"{}"}}"#, filler.to_string().repeat(100_000)).into_bytes()
}

fn release(body: Option<Vec<u8>>) -> Release {
    Release { body, delay: Duration::ZERO, ..Release::default() }
}

#[tokio::test]
async fn a_long_body_goes_all_ways_and_leaves_no_blob_behind() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    assert_eq!(shop.blobs(LONG_BODIES).await, 1);

    let delivery = shop.receive().await;
    assert!(delivery.body == long('a'));
    let renewed = shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap();
    shop.store.queue.release(&renewed, &release(None)).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 1);

    let delivery = shop.receive().await;
    shop.store.queue.release(&delivery.receipt, &release(Some(long('b')))).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 1, "the previous body is deleted");

    let delivery = shop.receive().await;
    assert!(delivery.body == long('b'));
    shop.store.queue.release(&delivery.receipt, &release(Some(b"{}".to_vec()))).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 0, "a short body needs no blob");

    let delivery = shop.receive().await;
    shop.store.queue.release(&delivery.receipt, &release(Some(long('c')))).await.unwrap();
    let delivery = shop.receive().await;
    shop.store.queue.complete(&delivery.receipt).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 0);
}

#[tokio::test]
async fn a_long_body_is_kept_with_its_dead_letter_and_once() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    let delivery = shop.receive().await;
    let letter = DeadLetter::because("it is of no use");
    shop.store.queue.dead_letter(&delivery.receipt, &delivery.body, &letter).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 1, "the letter's");
    let letters = shop.store.queue.dead_letters(32).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].body == long('a'));
    assert_eq!(letters[0].reason.as_deref(), Some("it is of no use"));
}

#[tokio::test]
async fn a_long_body_is_deleted_when_its_message_was_surely_not_sent() {
    let shop = Shop::open().await;
    shop.next(Operation::Send, 1, Action::PermissionMismatch);
    let message = NewMessage { body: long('a'), delay: Duration::ZERO };
    let error = shop.store.queue.send(vec![message]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(shop.blobs(LONG_BODIES).await, 0);

    shop.send(&long('b')).await;
    let delivery = shop.receive().await;
    shop.next(Operation::Update, 1, Action::ServerBusy { retry_after_seconds: None });
    let error = shop.store.queue.release(&delivery.receipt, &release(Some(long('c')))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(shop.blobs(LONG_BODIES).await, 1, "the message still refers to its previous body");
    shop.store.queue.release(&delivery.receipt, &release(None)).await.unwrap();
    assert!(shop.receive().await.body == long('b'));
}

/// It is unknown which of the two the message refers to, so both stay: one too many is a leftover,
/// one too few is a loss.
#[tokio::test]
async fn no_long_body_is_removed_that_a_message_may_need() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    let delivery = shop.receive().await;
    shop.next(Operation::Update, 1, Action::LoseAnswer);
    let error = shop.store.queue.release(&delivery.receipt, &release(Some(long('b')))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(shop.receive().await.body == long('b'));

    let shop = Shop::open().await;
    shop.next(Operation::Send, 1, Action::LoseAnswer);
    shop.send(&long('a')).await;
    let received = shop.store.queue.receive(32, LEASE).await.unwrap();
    assert!(received.len() == 2 && received.iter().all(|delivery| delivery.body == long('a')));
}

/// With a shared blob, the second message would lose its body when the first is done.
#[tokio::test]
async fn each_of_two_messages_that_a_lost_answer_has_made_has_its_long_body() {
    let shop = Shop::open().await;
    shop.next(Operation::Send, 1, Action::LoseAnswer);
    shop.send(&long('a')).await;
    let mut received = shop.store.queue.receive(1, LEASE).await.unwrap();
    shop.store.queue.complete(&received.remove(0).receipt).await.unwrap();
    let second = shop.receive().await;
    assert!(second.body == long('a'), "{}", String::from_utf8_lossy(&second.body));
}

/// Anyone who may write blobs could otherwise fill every worker's memory.
#[tokio::test]
async fn a_long_body_of_any_length_is_not_read_whole() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    shop.overwrite(LONG_BODIES, vec![b'a'; BODY_BYTES_MAX + 1]).await;
    let delivery = shop.receive().await;
    let unreadable = delivery.unreadable.expect("it is too long");
    assert!(unreadable.reason.contains("is larger than 4194304 bytes"), "{}", unreadable.reason);
}

#[tokio::test]
async fn a_message_with_a_body_that_is_gone_is_delivered_as_unreadable() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    shop.lose(LONG_BODIES).await;
    let delivery = shop.receive().await;
    assert!(delivery.body.len() < 1_000, "{} bytes", delivery.body.len());
    let unreadable = delivery.unreadable.expect("it is gone");
    assert!(unreadable.reason.contains("there is no blob .reprieve/messages/"), "{}", unreadable.reason);
    assert!((unreadable.since_unix_ms - unix_millis()).abs() < 60_000);

    let letter = DeadLetter::because("its body is gone");
    shop.store.queue.dead_letter(&delivery.receipt, &delivery.body, &letter).await.unwrap();
    let letters = shop.store.queue.dead_letters(32).await.unwrap();
    assert_eq!((&letters[0].body, letters[0].reason.as_deref()), (&delivery.body, Some("its body is gone")));
    assert_eq!(shop.store.queue.depth().await.unwrap().total, 0);
    let letters = shop.store.queue.receive_letters(32, LEASE).await.unwrap();
    assert_eq!(letters[0].body, delivery.body);
    assert!(letters[0].unreadable.as_ref().is_some_and(|why| why.reason.contains("is missing")));
}

#[tokio::test]
async fn a_long_body_that_cannot_be_read_is_unreadable_since_the_first_time() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    let mut since = None;
    for round in 0..3 {
        shop.next(Operation::BlobGet, 1, Action::PermissionMismatch);
        let delivery = shop.receive().await;
        let unreadable = delivery.unreadable.expect("it may not be read");
        assert!(unreadable.reason.contains("can't be read"), "{}", unreadable.reason);
        let first = *since.get_or_insert(unreadable.since_unix_ms);
        assert_eq!(unreadable.since_unix_ms, first, "in round {round}");
        let renewed = shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        shop.store.queue.release(&renewed, &release(None)).await.unwrap();
    }
    let delivery = shop.receive().await;
    assert!(delivery.body == long('a') && delivery.unreadable.is_none());
    shop.store.queue.release(&delivery.receipt, &release(Some(long('b')))).await.unwrap();

    shop.next(Operation::BlobGet, 1, Action::PermissionMismatch);
    let again = shop.receive().await;
    assert!(
        again.unreadable.is_some_and(|again| Some(again.since_unix_ms) > since),
        "a new body, a new time"
    );
    shop.store.queue.complete(&again.receipt).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 0);
}

#[tokio::test]
async fn a_long_body_is_unreadable_for_the_reason_that_the_service_gave_every_time() {
    let busy = || Action::ServerBusy { retry_after_seconds: None };
    let throttled = || Action::TooManyRequests { retry_after_seconds: None };
    for (action, wanted) in
        [(busy(), "ServerBusy"), (throttled(), "TooManyRequests"), (Action::Reset, "broke off")]
    {
        let shop = Shop::open().await;
        shop.send(&long('a')).await;
        shop.next(Operation::BlobGet, 1_000, action);
        let began = Instant::now();
        let unreadable = shop.receive().await.unreadable.expect("it can't be read");
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        assert!(shop.requests(Operation::BlobGet) > 1, "the read is retried");
        assert!(unreadable.reason.contains(wanted), "{wanted}: {}", unreadable.reason);
    }
}

/// A redrive must be possible once the body can be read.
#[tokio::test]
async fn a_letter_of_an_unreadable_message_has_the_body_when_that_can_be_read() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    shop.next(Operation::BlobGet, 1, Action::PermissionMismatch);
    let delivery = shop.receive().await;
    let letter = DeadLetter::because("its body can't be read");
    shop.store.queue.dead_letter(&delivery.receipt, &delivery.body, &letter).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 1, "the dead letter refers to it");

    shop.next(Operation::BlobGet, 1, Action::PermissionMismatch);
    let letters = shop.store.queue.receive_letters(32, LEASE).await.unwrap();
    assert!(letters[0].unreadable.is_some() && letters[0].body == delivery.body);
    shop.store.queue.return_letter(&letters[0].receipt).await.unwrap();

    let letters = shop.store.queue.receive_letters(32, LEASE).await.unwrap();
    assert!(letters[0].unreadable.is_none() && letters[0].body == long('a'));
    shop.store.queue.remove_letter(&letters[0].receipt).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 0);
}

#[tokio::test]
async fn a_long_letter_is_removed_with_its_blob() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    let delivery = shop.receive().await;
    let letter = DeadLetter::because("it is of no use");
    shop.store.queue.dead_letter(&delivery.receipt, &long('b'), &letter).await.unwrap();
    let letters = shop.store.queue.receive_letters(32, LEASE).await.unwrap();
    assert!(letters[0].body == long('b'), "the given body");
    shop.store.queue.return_letter(&letters[0].receipt).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 1);
    let letters = shop.store.queue.receive_letters(32, LEASE).await.unwrap();
    shop.store.queue.remove_letter(&letters[0].receipt).await.unwrap();
    assert_eq!(shop.blobs(LONG_BODIES).await, 0);
}

/// Other programs and people put messages into a poison queue, too.
#[tokio::test]
async fn letters_of_others_have_their_text_as_body() {
    let shop = Shop::open().await;
    for text in [r#"{"a":1}"#, "hello"] {
        shop.put_into(&format!("{QUEUE}-poison"), text, -1).await;
        let letters = shop.store.queue.receive_letters(32, LEASE).await.unwrap();
        assert_eq!((letters.len(), &letters[0].body), (1, &text.as_bytes().to_vec()));
        shop.store.queue.remove_letter(&letters[0].receipt).await.unwrap();
    }
}

/// A batch with one message that XML can't carry is refused as a whole; the others are still
/// received, one by one.
#[tokio::test]
async fn a_message_that_spoils_its_batch_does_not_keep_the_others_back() {
    let shop = Shop::open().await;
    for number in 0..4 {
        shop.send(format!("{{\"n\":{number}}}").as_bytes()).await;
        if number == 1 {
            shop.put("a\u{1}b", -1).await;
        }
    }
    let (second, mut bodies) = (Duration::from_secs(1), Vec::new());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while bodies.len() < 4 {
        assert!(tokio::time::Instant::now() < deadline, "only {} of 4 were received", bodies.len());
        match shop.store.queue.receive(32, second).await {
            Ok(received) if received.is_empty() => tokio::time::sleep(Duration::from_millis(100)).await,
            Ok(received) => {
                for delivery in received {
                    shop.store.queue.complete(&delivery.receipt).await.unwrap();
                    bodies.push(delivery.body);
                }
            }
            // The refused batch, and each receive of that message.
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
    }
    bodies.sort();
    assert_eq!(bodies, [b"{\"n\":0}", b"{\"n\":1}", b"{\"n\":2}", b"{\"n\":3}"]);
}

#[tokio::test]
async fn our_messages_never_expire_and_one_of_others_that_did_is_a_lease_lost() {
    let shop = Shop::open().await;
    shop.send(b"{}").await;
    let peeked = shop.peek(QUEUE).await;
    assert!(peeked.contains("<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>"), "{peeked}");
    let ours = shop.receive().await;
    shop.store.queue.complete(&ours.receipt).await.unwrap();

    shop.put("{}", 1).await;
    let theirs = shop.receive().await;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let error = shop.store.queue.renew(&theirs.receipt, LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
    let error = shop.store.queue.complete(&theirs.receipt).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
}

#[tokio::test]
async fn every_message_of_a_batch_is_held_by_a_receipt_of_its_own() {
    let shop = Shop::open().await;
    for _ in 0..8 {
        shop.send(b"{}").await;
    }
    let mut received = shop.store.queue.receive(32, LEASE).await.unwrap();
    let pops: std::collections::BTreeSet<_> =
        received.iter().map(|delivery| delivery.receipt.as_str().to_owned()).collect();
    assert_eq!(pops.len(), 8);
    let first = received.remove(0);
    shop.store.queue.complete(&first.receipt).await.unwrap();
    for delivery in &received {
        shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap();
    }
}

#[tokio::test]
async fn a_long_body_that_cannot_be_read_does_not_hold_up_its_batch() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    shop.send(b"{}").await;
    shop.next(Operation::BlobGet, 1, Action::Hang { applied: false });
    let began = Instant::now();
    let received = shop.store.queue.receive(32, LEASE).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    let (unreadable, read): (Vec<_>, Vec<_>) = received.into_iter().partition(|one| one.unreadable.is_some());
    assert_eq!(read.iter().map(|one| &one.body[..]).collect::<Vec<_>>(), [b"{}"]);
    shop.store.queue.release(&unreadable[0].receipt, &release(None)).await.unwrap();
    assert!(shop.receive().await.body == long('a'));
}

#[tokio::test]
async fn a_message_goes_back_also_where_its_new_long_body_cannot() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    let delivery = shop.receive().await;
    shop.next(Operation::BlobPut, 1_000, Action::ServerBusy { retry_after_seconds: None });
    let began = Instant::now();
    shop.drain.queue.release(&delivery.receipt, &release(Some(long('b')))).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "a drain gives a release a second");
    let again = shop.receive().await;
    assert!(again.body == long('a') && again.dequeue_count == 2);
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_put_leaves_no_blob_behind() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    let delivery = shop.receive().await;
    shop.next(Operation::Send, 3, Action::PermissionMismatch);
    for _ in 0..3 {
        let letter = DeadLetter::because("it is of no use");
        let error =
            shop.store.queue.dead_letter(&delivery.receipt, &delivery.body, &letter).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    assert_eq!(shop.blobs(LONG_BODIES).await, 1, "the message's");
}

struct Never;

#[async_trait::async_trait]
impl Job for Never {
    const KIND: &'static str = "never";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        Err(JobError::fatal("its body was read"))
    }
}

/// The first failure to read it counts, whatever the number of later attempts.
#[tokio::test]
async fn a_worker_defers_an_unreadable_body_and_dead_letters_it_with_its_own_reason() {
    let shop = Shop::open().await;
    shop.send(&long('a')).await;
    shop.lose(LONG_BODIES).await;
    let settings = Settings { unknown_kind_after: Duration::from_secs(3), ..Settings::default() };
    let worker = Worker::builder(shop.store.clone()).job(Never).settings(settings).build().unwrap();
    let (_stopper, never) = stopping();
    let running = tokio::spawn(worker.run(never));

    let end = Instant::now() + Duration::from_secs(60);
    let mut deferred = Vec::new();
    while shop.store.queue.depth().await.unwrap().total > 0 {
        assert!(Instant::now() < end, "the message is still in the queue");
        for report in shop.store.roster.reports(Duration::from_secs(60)).await.unwrap() {
            deferred.extend(report.deferred);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(deferred.iter().any(|shown| shown.reason.contains("there is no blob")), "{deferred:?}");
    let letters = shop.store.queue.dead_letters(32).await.unwrap();
    let reason = letters[0].reason.as_deref().unwrap();
    assert!(reason.contains("there is no blob .reprieve/messages/"), "{reason}");
    running.abort();
}

#[tokio::test]
async fn a_long_body_that_is_too_long_costs_one_request_and_is_not_read() {
    let shop = Shop::open().await;
    for filler in ['a', 'b', 'c', 'd'] {
        shop.send(&long(filler)).await;
    }
    shop.overwrite(LONG_BODIES, vec![b'x'; 4 * BODY_BYTES_MAX]).await;
    for round in 1..=2 {
        shop.double.reset_counts();
        let received = shop.store.queue.receive(32, LEASE).await.unwrap();
        assert_eq!((received.len(), shop.requests(Operation::BlobGet)), (4, 4), "in round {round}");
        for delivery in received {
            let unreadable = delivery.unreadable.expect("a reason");
            assert!(unreadable.reason.contains("larger than"), "{}", unreadable.reason);
            shop.store.queue.release(&delivery.receipt, &release(None)).await.unwrap();
        }
    }
    // The largest body that is allowed is read in one request.
    shop.overwrite(LONG_BODIES, vec![b'x'; BODY_BYTES_MAX]).await;
    shop.double.reset_counts();
    let received = shop.store.queue.receive(32, LEASE).await.unwrap();
    assert!(received.iter().all(|delivery| delivery.body.len() == BODY_BYTES_MAX));
    assert_eq!((received.len(), shop.requests(Operation::BlobGet)), (4, 4));
}
