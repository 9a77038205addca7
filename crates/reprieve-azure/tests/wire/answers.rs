//! Refusals: temporary ones are retried, the others are reported.

use std::time::Duration;

use reprieve_core::ports::{NewMessage, RecordWrite, Release};
use reprieve_core::{ErrorKind, JobId};
use reprieve_sim::storage::{Action, Config, Operation, Rule, StorageServer};

use crate::support::{LEASE, Shop, open};

fn job() -> JobId {
    JobId::parse("job").unwrap()
}

fn refuse(status: u16, code: &str) -> Action {
    Action::Refuse { status, code: code.to_owned() }
}

fn passing() -> [Action; 6] {
    [
        Action::ServerBusy { retry_after_seconds: None },
        // Too long to wait for a worker with leases to renew.
        Action::ServerBusy { retry_after_seconds: Some(3_600) },
        Action::TooManyRequests { retry_after_seconds: None },
        Action::TooManyRequests { retry_after_seconds: Some(3_600) },
        Action::OperationTimedOut,
        Action::Reset,
    ]
}

#[tokio::test]
async fn a_call_that_may_be_repeated_outlasts_temporary_failures() {
    let shop = Shop::open().await;
    for action in passing() {
        shop.next(Operation::Send, 2, action.clone());
        shop.send(b"{}").await;
        assert_eq!(shop.requests(Operation::Send), 3, "{action:?}");

        shop.next(Operation::QueueProperties, 3, action.clone());
        assert_eq!(shop.store.queue.depth().await.unwrap().total, 1, "{action:?}");

        shop.next(Operation::BlobGet, 2, action.clone());
        assert_eq!(shop.store.records.load(&job()).await.unwrap(), None, "{action:?}");
        assert_eq!(shop.requests(Operation::BlobGet), 3, "{action:?}");

        let delivery = shop.receive().await;
        shop.store.queue.complete(&delivery.receipt).await.unwrap();
    }
}

#[tokio::test]
async fn a_call_on_a_receipt_is_the_worker_s_to_make_again() {
    let shop = Shop::open().await;
    shop.send(b"{}").await;
    let delivery = shop.receive().await;
    for (action, kind) in [
        (Action::ServerBusy { retry_after_seconds: Some(1) }, ErrorKind::Unavailable),
        (Action::TooManyRequests { retry_after_seconds: None }, ErrorKind::Unavailable),
        (Action::OperationTimedOut, ErrorKind::TimedOut),
        (Action::Reset, ErrorKind::TimedOut),
        (refuse(409, "QueueBeingDeleted"), ErrorKind::Unavailable),
        (refuse(404, "QueueNotFound"), ErrorKind::NotFound),
        (refuse(404, "MessageNotFound"), ErrorKind::LeaseLost),
        (refuse(400, "PopReceiptMismatch"), ErrorKind::LeaseLost),
        (Action::PermissionMismatch, ErrorKind::Denied),
    ] {
        shop.next(Operation::Update, 1, action.clone());
        let error = shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap_err();
        assert_eq!((error.kind(), shop.requests(Operation::Update)), (kind, 1), "{action:?}: {error}");
        shop.next(Operation::Delete, 1, action.clone());
        let error = shop.store.queue.complete(&delivery.receipt).await.unwrap_err();
        assert_eq!((error.kind(), shop.requests(Operation::Delete)), (kind, 1), "{action:?}: {error}");
    }
    // None of these was applied.
    let renewed = shop.store.queue.renew(&delivery.receipt, LEASE).await.unwrap();
    shop.store.queue.complete(&renewed).await.unwrap();
}

#[tokio::test]
async fn a_queue_or_container_that_is_still_being_deleted_is_waited_for() {
    let double = StorageServer::start(Config::default()).await.unwrap();
    for (operation, code) in [
        (Operation::QueueCreate, "QueueBeingDeleted"),
        (Operation::ContainerCreate, "ContainerBeingDeleted"),
        (Operation::BlobList, "ContainerBeingDeleted"),
    ] {
        double.add_fault(Rule::new(refuse(409, code)).on(operation).times(3)).unwrap();
    }
    let opened = open(&double).await.unwrap();
    assert_eq!(opened.store().queue.depth().await.unwrap().total, 0);
    assert!(double.faults().iter().all(|fault| fault.injected == 3), "{:?}", double.faults());
}

#[tokio::test]
async fn a_missing_permission_is_reported_at_once() {
    let double = StorageServer::start(Config::default()).await.unwrap();
    for operation in [Operation::Peek, Operation::BlobList] {
        double.clear_faults();
        double.reset_counts();
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation)).unwrap();
        let error = open(&double).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(double.counts().requests(operation) <= 2, "it was asked again: {:?}", double.counts());
    }
    // An identity without permission to create queues and containers may use existing ones.
    double.clear_faults();
    open(&double).await.unwrap();
    for operation in [Operation::QueueCreate, Operation::ContainerCreate] {
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation)).unwrap();
    }
    open(&double).await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_too_large_is_reported_and_not_sent_again() {
    let shop = Shop::open().await;
    for (status, code) in [(413, "RequestBodyTooLarge"), (400, "MessageTooLarge")] {
        shop.next(Operation::Send, 1, refuse(status, code));
        let message = NewMessage { body: b"{}".to_vec(), delay: Duration::ZERO };
        let error = shop.store.queue.send(vec![message]).await.unwrap_err();
        assert_eq!((error.kind(), shop.requests(Operation::Send)), (ErrorKind::TooLarge, 1), "{error}");
    }
    shop.send(b"{}").await;
    let delivery = shop.receive().await;
    shop.next(Operation::Update, 1, refuse(413, "RequestBodyTooLarge"));
    let release = Release { body: Some(b"[]".to_vec()), delay: Duration::ZERO, ..Release::default() };
    let error = shop.store.queue.release(&delivery.receipt, &release).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    // The message is unchanged, and still leased.
    shop.store.queue.release(&delivery.receipt, &Release::default()).await.unwrap();
    assert_eq!(shop.receive().await.body, b"{}");
}

#[tokio::test]
async fn a_drain_gives_up_on_storage_that_is_busy_within_seconds() {
    let shop = Shop::open().await;
    shop.double.add_fault(Rule::new(Action::ServerBusy { retry_after_seconds: Some(60) })).unwrap();
    let began = tokio::time::Instant::now();
    let error = shop.drain.records.load(&job()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
}

#[tokio::test]
async fn a_drain_gives_up_on_silent_storage_within_seconds() {
    let shop = Shop::open().await;
    shop.double.add_fault(Rule::new(Action::Hang { applied: false })).unwrap();
    let began = tokio::time::Instant::now();
    let error = shop.drain.records.put(&job(), None, RecordWrite::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    let error = shop.drain.records.load(&job()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
}

#[tokio::test]
async fn a_role_that_arrives_while_the_store_is_opened_is_no_error_or_one_to_wait_for() {
    for operation in [Operation::QueueCreate, Operation::ContainerCreate] {
        let double = StorageServer::start(Config::default()).await.unwrap();
        // It arrives between the two calls.
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation).times(1)).unwrap();
        open(&double).await.unwrap();
    }
    for operation in [Operation::QueueCreate, Operation::ContainerCreate] {
        let double = StorageServer::start(Config::default()).await.unwrap();
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation).times(100)).unwrap();
        let error = open(&double).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Denied, "{text}");
        assert!(text.contains("does not exist") && text.contains("may not create it"), "{text}");
        double.clear_faults();
        open(&double).await.unwrap();
    }
}
