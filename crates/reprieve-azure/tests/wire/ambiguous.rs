//! Calls that were applied, with a lost response.

use std::time::Duration;

use reprieve_core::ports::Release;
use reprieve_core::{BlobName, ErrorKind, JobId};
use reprieve_sim::storage::{Action, Operation};

use crate::support::{LEASE, Shop, owner};

#[tokio::test]
async fn an_output_is_stored_though_its_response_was_lost() {
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

/// The blob of the first attempt looks like another owner's: a create only promises that one
/// complete blob exists.
#[tokio::test]
async fn a_result_is_stored_though_its_response_was_lost() {
    let shop = Shop::open().await;
    let (job, result) = (JobId::unique(), BlobName::parse("results/1").unwrap());
    for (at, lost) in [Action::LoseAnswer, Action::Truncate, Action::Reset].into_iter().enumerate() {
        let result = BlobName::parse(format!("{result}-{at}")).unwrap();
        shop.next(Operation::BlobPut, 1, lost.clone());
        let created = shop.store.blobs.create(&result, b"whole".to_vec(), &owner(&job, 1)).await.unwrap();
        assert_eq!(created, lost == Action::Reset, "{lost:?}");
        assert_eq!(shop.store.blobs.get(&result).await.unwrap().unwrap(), b"whole");
        assert!(shop.store.blobs.exists(&result).await.unwrap());
        assert!(!shop.store.blobs.create(&result, b"late".to_vec(), &owner(&job, 2)).await.unwrap());
    }
}

#[tokio::test]
async fn a_lost_renewal_response_puts_the_receipt_in_doubt() {
    let shop = Shop::open().await;
    shop.send(b"{}").await;
    let delivery = shop.receive().await;
    shop.next(Operation::Update, 1, Action::LoseAnswer);
    let error = shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    // It was applied: the response had the message's present receipt.
    let error = shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
}

/// The core sees only the second response: a change that was applied once is not there any more.
#[tokio::test]
async fn after_a_lost_settlement_response_the_retry_finds_the_lease_lost() {
    let shop = Shop::open().await;
    let release = Release { body: Some(b"[]".to_vec()), delay: Duration::ZERO, ..Release::default() };
    for (release, operation, left) in [(None, Operation::Delete, 0), (Some(release), Operation::Update, 1)] {
        shop.send(b"{}").await;
        let delivery = shop.receive().await;
        let settle = async || match &release {
            Some(release) => shop.store.queue.release(&delivery.receipt, release).await,
            None => shop.store.queue.complete(&delivery.receipt).await,
        };
        shop.next(operation, 1, Action::LoseAnswer);
        assert_eq!(settle().await.unwrap_err().kind(), ErrorKind::TimedOut, "{operation:?}");
        assert_eq!(settle().await.unwrap_err().kind(), ErrorKind::LeaseLost, "{operation:?}");
        assert_eq!(shop.store.queue.depth().await.unwrap().total, left, "{operation:?}");
    }
    assert_eq!(shop.receive().await.body, b"[]");
}

#[tokio::test]
async fn a_lost_send_response_queues_the_message_twice_with_the_same_body() {
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
async fn a_lost_receive_response_costs_a_lease_and_no_message() {
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
