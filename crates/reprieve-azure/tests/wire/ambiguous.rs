//! Calls that were applied, and whose answers were lost.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use reprieve_core::attempts::Baseline;
use reprieve_core::checkpoint::Checkpoints;
use reprieve_core::ports::{Delivery, Release};
use reprieve_core::retry::Patience;
use reprieve_core::settle::{Settled, Settlement, Terms, settle};
use reprieve_core::{BlobName, ErrorKind, JobId};
use reprieve_sim::storage::{Action, Operation};
use tokio::time::Instant;

use crate::support::{LEASE, Shop, owner};

#[tokio::test]
async fn a_checkpoint_whose_answer_was_lost_is_told_by_its_nonce_to_be_ours() {
    for lost in [Action::LoseAnswer, Action::Truncate] {
        let shop = Shop::open().await;
        let job = JobId::unique();
        let mut hand = Checkpoints::new(Arc::clone(&shop.store.checkpoints), owner(&job, 1), "walk", 0);
        for payload in [&b"1"[..], b"2", b"3", b"4"] {
            shop.next(Operation::BlobPut, 1, lost.clone());
            let error = hand.save(payload, Baseline::default()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            // The next try is refused, finds its own nonce there, and goes on from it.
            hand.save(payload, Baseline::default()).await.unwrap();
        }
        assert_eq!(hand.load().await.unwrap().newest.unwrap().payload, b"4");
    }
}

#[tokio::test]
async fn an_output_whose_answer_was_lost_is_put_all_the_same() {
    let shop = Shop::open().await;
    let (job, output) = (JobId::unique(), BlobName::parse("out/1").unwrap());
    for bytes in [&b"first"[..], b"second"] {
        for lost in [Action::LoseAnswer, Action::OperationTimedOut, Action::Reset] {
            shop.next(Operation::BlobPut, 2, lost);
            shop.store.blobs.put(&output, bytes.to_vec(), Some(&owner(&job, 1))).await.unwrap();
            assert_eq!(shop.store.blobs.get(&output).await.unwrap().unwrap(), bytes);
        }
    }
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_puts_the_receipt_in_doubt() {
    let shop = Shop::open().await;
    shop.send(b"{}").await;
    let delivery = shop.receive().await;
    shop.next(Operation::Update, 1, Action::LoseAnswer);
    let error = shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    // It was applied: the receipt that holds the message now was in the answer.
    let error = shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
}

/// Settles as the worker does, and returns how that went.
async fn settled(shop: &Shop, delivery: Delivery, how: &Settlement, ours_until: Option<Instant>) -> Settled {
    let until = Instant::now() + Duration::from_secs(10);
    let patience = Patience::calm(Duration::from_secs(2), until);
    let terms = Terms { queue: Arc::clone(&shop.store.queue), patience };
    settle(delivery, how, ours_until, terms, pending()).await
}

#[tokio::test]
async fn a_settlement_whose_answer_was_lost_is_known_to_be_done_while_the_lease_holds() {
    let shop = Shop::open().await;
    let release = Release { body: Some(b"[]".to_vec()), delay: Duration::ZERO };
    for (how, operation, left) in
        [(Settlement::Complete, Operation::Delete, 0), (Settlement::Release(release), Operation::Update, 1)]
    {
        shop.send(b"{}").await;
        let delivery = shop.receive().await;
        shop.next(operation, 1, Action::LoseAnswer);
        let ours_until = Some(Instant::now() + LEASE);
        assert!(matches!(settled(&shop, delivery, &how, ours_until).await, Settled::Done), "{how:?}");
        assert_eq!(shop.requests(operation), 2, "{how:?}");
        assert_eq!(shop.store.queue.depth().await.unwrap().total, left, "{how:?}");
    }
    assert_eq!(shop.receive().await.body, b"[]");
}

#[tokio::test]
async fn a_settlement_on_a_receipt_in_doubt_is_believed_to_nobody() {
    let shop = Shop::open().await;
    shop.send(b"{}").await;
    let delivery = shop.receive().await;
    shop.next(Operation::Delete, 1, Action::LoseAnswer);
    assert!(matches!(settled(&shop, delivery, &Settlement::Complete, None).await, Settled::LeaseLost));
}

#[tokio::test]
async fn a_message_whose_answer_was_lost_is_queued_twice_with_the_same_body() {
    let shop = Shop::open().await;
    shop.next(Operation::Send, 1, Action::LoseAnswer);
    shop.send(br#"{"id":"a"}"#).await;
    let received = shop.store.queue.receive(32, LEASE).await.unwrap();
    assert_eq!(received.len(), 2);
    assert_ne!(received[0].id, received[1].id);
    for delivery in received {
        assert_eq!(delivery.body, br#"{"id":"a"}"#);
        shop.store.queue.complete(&delivery.receipt).await.unwrap();
    }
    assert_eq!(shop.store.queue.depth().await.unwrap().total, 0);
}

#[tokio::test]
async fn a_receive_whose_answer_was_lost_costs_a_lease_and_no_message() {
    let shop = Shop::open().await;
    shop.send(b"{}").await;
    shop.next(Operation::Receive, 1, Action::LoseAnswer);
    let second = Duration::from_secs(1);
    let error = shop.store.queue.receive(32, second).await.unwrap_err();
    assert_eq!((error.kind(), shop.requests(Operation::Receive)), (ErrorKind::TimedOut, 1), "{error}");
    assert_eq!(shop.store.queue.receive(32, second).await.unwrap().len(), 0);
    tokio::time::sleep(second).await;
    assert_eq!(shop.receive().await.dequeue_count, 2);
}
