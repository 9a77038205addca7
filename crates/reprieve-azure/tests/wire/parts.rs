//! Ranges and parts of blobs: what each costs, and responses that are refused, lost or late.

use std::time::Duration;

use reprieve_core::ports::{PART_BYTES, Upload};
use reprieve_core::{BlobName, ErrorKind, JobId, Result, Writer};
use reprieve_sim::storage::{Action, Operation};

use crate::support::{Shop, owner};

const LENGTH: u64 = PART_BYTES as u64 + 5;

fn output() -> BlobName {
    BlobName::parse("out/1").unwrap()
}

async fn send(shop: &Shop, mark: u8) -> Upload {
    let upload = Upload::new();
    for (number, bytes) in [(0, PART_BYTES), (1, 5)] {
        shop.store.blobs.put_part(&output(), &upload, number, vec![mark; bytes].into()).await.unwrap();
    }
    upload
}

async fn publish(shop: &Shop, upload: &Upload, writer: &Writer) -> Result<()> {
    shop.store.blobs.put_parts(&output(), upload, LENGTH, Some(writer)).await
}

async fn is_whole(shop: &Shop, mark: u8) -> bool {
    shop.store.blobs.get(&output()).await.unwrap() == Some(vec![mark; PART_BYTES + 5])
}

#[tokio::test]
async fn a_range_and_a_part_cost_one_request_each() {
    let shop = Shop::open().await;
    let upload = send(&shop, 1).await;
    assert_eq!(shop.double.counts().requests(Operation::BlockPut), 2);
    publish(&shop, &upload, &owner(&JobId::unique(), 1)).await.unwrap();
    assert_eq!(
        shop.double.counts().requests(Operation::BlockList),
        1,
        "a new output is not looked at before"
    );
    shop.double.reset_counts();
    let range = shop.store.blobs.get_range(&output(), 0..LENGTH, None).await.unwrap().unwrap();
    assert_eq!(range.bytes.len() as u64, LENGTH);
    for wanted in [3..7, PART_BYTES as u64..LENGTH + 10] {
        shop.store.blobs.get_range(&output(), wanted, Some(&range.version)).await.unwrap().unwrap();
    }
    assert_eq!((shop.requests(Operation::BlobGet), shop.requests(Operation::BlobProperties)), (3, 0));
    shop.store.blobs.get_range(&output(), 0..0, None).await.unwrap().unwrap();
    assert_eq!((shop.requests(Operation::BlobGet), shop.requests(Operation::BlobProperties)), (3, 1));
}

#[tokio::test]
async fn a_range_is_read_again_when_its_answer_was_cut_or_refused() {
    let shop = Shop::open().await;
    shop.store.blobs.put(&output(), b"0123456789".to_vec(), None).await.unwrap();
    let busy = Action::ServerBusy { retry_after_seconds: None };
    for action in [Action::Truncate, Action::LoseAnswer, Action::Reset, busy] {
        shop.next(Operation::BlobGet, 2, action.clone());
        let range = shop.store.blobs.get_range(&output(), 2..5, None).await.unwrap().unwrap();
        assert_eq!((&range.bytes[..], range.length), (&b"234"[..], 10), "{action:?}");
        assert_eq!(shop.requests(Operation::BlobGet), 3);
    }
}

#[tokio::test]
async fn an_output_in_parts_is_stored_though_responses_were_lost() {
    for lost in [Action::LoseAnswer, Action::OperationTimedOut, Action::Reset] {
        let shop = Shop::open().await;
        let job = JobId::unique();
        for mark in 1..3 {
            shop.next(Operation::BlockPut, 2, lost.clone());
            let upload = send(&shop, mark).await;
            assert_eq!(shop.requests(Operation::BlockPut), 4);
            shop.next(Operation::BlockList, 2, lost.clone());
            publish(&shop, &upload, &owner(&job, 1)).await.unwrap();
            assert!(is_whole(&shop, mark).await, "{lost:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_condition_alone_does_not_supersede_a_publication() {
    for (status, code) in [(409, "BlobAlreadyExists"), (412, "ConditionNotMet"), (400, "InvalidBlockList")] {
        let shop = Shop::open().await;
        let upload = send(&shop, 1).await;
        shop.next(Operation::BlockList, 1, Action::Refuse { status, code: code.to_owned() });
        publish(&shop, &upload, &owner(&JobId::unique(), 1)).await.unwrap();
        assert!(is_whole(&shop, 1).await, "{code}");
    }
}

/// A write of the name discards all of its uncommitted blocks.
#[tokio::test]
async fn parts_that_another_write_has_discarded_are_not_published() {
    let (job, other) = (JobId::unique(), JobId::unique());
    for (writer, kind) in [
        (None, ErrorKind::Conflict),
        (Some(owner(&job, 1)), ErrorKind::Conflict),
        (Some(owner(&other, 7)), ErrorKind::Conflict),
        (Some(owner(&job, 3)), ErrorKind::Superseded),
    ] {
        let shop = Shop::open().await;
        let upload = send(&shop, 1).await;
        shop.store.blobs.put(&output(), b"another".to_vec(), writer.as_ref()).await.unwrap();
        let error = publish(&shop, &upload, &owner(&job, 2)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{writer:?}: {error}");
        assert!(kind != ErrorKind::Conflict || error.to_string().contains("write it again"), "{error}");
        assert_eq!(shop.store.blobs.get(&output()).await.unwrap().unwrap(), b"another");
    }
}

/// The publication arrives after its caller has timed out, and after the next owner has written.
#[tokio::test]
async fn a_publication_that_arrives_late_changes_nothing() {
    let shop = Shop::open().await;
    let job = JobId::unique();
    let late = Duration::from_millis(1_500);
    let upload = send(&shop, 1).await;
    shop.next(Operation::BlockList, 1, Action::ApplyLate { by: late });
    let first = owner(&job, 1);
    let early = publish(&shop, &upload, &first);
    assert!(tokio::time::timeout(Duration::from_millis(300), early).await.is_err());
    shop.store.blobs.put(&output(), b"2".to_vec(), Some(&owner(&job, 2))).await.unwrap();
    tokio::time::sleep(2 * late).await;
    assert_eq!(shop.store.blobs.get(&output()).await.unwrap().unwrap(), b"2");
}

#[tokio::test]
async fn a_fenced_delete_is_made_again_and_never_deletes_what_came_in_between() {
    let shop = Shop::open().await;
    let job = JobId::unique();
    for lost in [Action::LoseAnswer, Action::OperationTimedOut, Action::Reset] {
        shop.store.blobs.put(&output(), b"1".to_vec(), Some(&owner(&job, 1))).await.unwrap();
        shop.next(Operation::BlobDelete, 1, lost.clone());
        shop.store.blobs.delete(&output(), Some(&owner(&job, 1))).await.unwrap();
        assert_eq!(shop.store.blobs.get(&output()).await.unwrap(), None, "{lost:?}");
    }
    // It arrives after a later owner has written.
    shop.store.blobs.put(&output(), b"1".to_vec(), Some(&owner(&job, 1))).await.unwrap();
    let late = Duration::from_millis(1_500);
    shop.next(Operation::BlobDelete, 1, Action::ApplyLate { by: late });
    let first = owner(&job, 1);
    let output = output();
    let early = shop.store.blobs.delete(&output, Some(&first));
    assert!(tokio::time::timeout(Duration::from_millis(300), early).await.is_err());
    shop.store.blobs.put(&output, b"2".to_vec(), Some(&owner(&job, 2))).await.unwrap();
    tokio::time::sleep(2 * late).await;
    assert_eq!(shop.store.blobs.get(&output).await.unwrap().unwrap(), b"2");
    let error = shop.store.blobs.delete(&output, Some(&first)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
}

#[tokio::test]
async fn names_of_reprieves_own_are_refused() {
    let shop = Shop::open().await;
    let own = BlobName::parse(".reprieve/records/x").unwrap();
    let (upload, blobs) = (Upload::new(), &shop.store.blobs);
    assert_eq!(blobs.get_range(&own, 0..1, None).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(blobs.put_part(&own, &upload, 0, "x".into()).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(blobs.put_parts(&own, &upload, 1, None).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(blobs.delete(&own, None).await.unwrap_err().kind(), ErrorKind::Invalid);
}
