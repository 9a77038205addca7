//! Records and payloads with lost responses and refused conditions.

use std::time::Duration;

use reprieve_core::ports::{Payload, RecordWrite, Version};
use reprieve_core::{ErrorKind, JobEnd, JobId, NewJob, PayloadName, Producer, Result};
use reprieve_sim::storage::{Action, Operation};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::support::Shop;

const RECORDS: &str = ".reprieve/records/";
const PAYLOADS: &str = ".reprieve/payloads/";

fn job() -> JobId {
    JobId::parse("job").unwrap()
}

fn payload(sequence: u64) -> PayloadName {
    PayloadName::parse(format!("0.m.1-{sequence}")).unwrap()
}

/// Writes a record that names payload number `sequence`, and makes the previous one obsolete.
fn write(sequence: u64) -> RecordWrite {
    RecordWrite {
        record: payload(sequence).as_str().into(),
        payload: Some(Payload { name: payload(sequence), bytes: sequence.to_string().into_bytes().into() }),
        obsolete: sequence.checked_sub(1).map(payload).into_iter().collect(),
        ..RecordWrite::default()
    }
}

impl Shop {
    async fn save(&self, expected: Option<&Version>, sequence: u64) -> Result<Version> {
        self.store.records.put(&job(), expected, write(sequence)).await
    }

    async fn version(&self) -> Option<Version> {
        self.store.records.load(&job()).await.unwrap().map(|stored| stored.version)
    }

    /// Asserts that the record names payload number `sequence`, and that this exists.
    async fn has(&self, sequence: u64) {
        let stored = self.store.records.load(&job()).await.unwrap().expect("a record");
        assert_eq!(stored.bytes, payload(sequence).as_str().as_bytes());
        let read = self.store.records.payload(&job(), &payload(sequence)).await.unwrap();
        assert_eq!(read, Some(sequence.to_string().into_bytes().into()));
    }

    /// Waits until there are this many payloads: obsolete ones are removed after the write that
    /// lists them.
    async fn payloads(&self, count: usize) {
        let limit = Instant::now() + Duration::from_secs(10);
        while self.blobs(PAYLOADS).await != count {
            assert!(Instant::now() < limit, "{} payloads instead of {count}", self.blobs(PAYLOADS).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_save_is_two_requests_and_a_removal_of_obsolete_payloads() {
    let shop = Shop::open().await;
    let first = shop.save(None, 1).await.unwrap();
    shop.payloads(1).await;
    shop.double.reset_counts();
    shop.save(Some(&first), 2).await.unwrap();
    let counts = shop.double.counts();
    assert_eq!((counts.requests(Operation::BlobPut), counts.requests(Operation::BlobGet)), (2, 0));
    shop.payloads(1).await;
    shop.has(2).await;
    assert_eq!(shop.requests(Operation::BlobDelete), 1);
}

/// The first attempt seems applied; the job's owner has to find out whether it was.
#[tokio::test]
async fn a_record_may_be_written_though_its_response_was_lost() {
    for (lost, applied) in [(Action::LoseAnswer, true), (Action::Truncate, true), (Action::Reset, false)] {
        let shop = Shop::open().await;
        let mut version = None;
        for sequence in 0..3 {
            shop.next_at(RECORDS, Operation::BlobPut, 1, lost.clone());
            let error = shop.save(version.as_ref(), sequence).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{lost:?}: {error}");
            // The repeated write finds its own payload, which is no reason to refuse it.
            let again = shop.save(version.as_ref(), sequence).await;
            assert!(shop.double.counts().answered(Operation::BlobPut, 409) >= 1, "{lost:?}");
            match again {
                Ok(_) => assert!(!applied, "{lost:?}"),
                Err(error) => assert!(applied && error.kind() == ErrorKind::Conflict, "{lost:?}: {error}"),
            }
            shop.has(sequence).await;
            version = shop.version().await;
        }
    }
}

#[tokio::test]
async fn a_payload_is_written_though_its_response_was_lost() {
    for lost in [Action::LoseAnswer, Action::Truncate, Action::Reset, Action::OperationTimedOut] {
        let shop = Shop::open().await;
        shop.next_at(PAYLOADS, Operation::BlobPut, 2, lost.clone());
        shop.save(None, 1).await.unwrap_or_else(|error| panic!("{lost:?}: {error}"));
        shop.has(1).await;
    }
}

/// A record that was written after the removal belongs to another owner: the repeated removal must
/// not touch it.
#[tokio::test]
async fn a_removal_that_lost_its_answer_removes_no_later_record() {
    let shop = Shop::open().await;
    let version = shop.save(None, 1).await.unwrap();
    let remove = async || shop.store.records.remove(&job(), &version, &[payload(1), payload(2)]).await;
    shop.next_at(RECORDS, Operation::BlobDelete, 1, Action::LoseAnswer);
    let error = remove().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(shop.version().await, None, "the removal was applied");
    assert_eq!(remove().await.unwrap_err().kind(), ErrorKind::Conflict);

    shop.save(None, 2).await.unwrap();
    assert_eq!(remove().await.unwrap_err().kind(), ErrorKind::Conflict);
    shop.has(2).await;
}

#[tokio::test]
async fn a_removal_outlasts_a_busy_service() {
    let shop = Shop::open().await;
    let version = shop.save(None, 1).await.unwrap();
    shop.next(Operation::BlobDelete, 2, Action::ServerBusy { retry_after_seconds: None });
    shop.store.records.remove(&job(), &version, &[payload(1)]).await.unwrap();
    assert_eq!((shop.version().await, shop.blobs(PAYLOADS).await), (None, 0));
}

#[tokio::test]
async fn payloads_that_cannot_be_removed_fail_neither_a_write_nor_a_removal() {
    let shop = Shop::open().await;
    let first = shop.save(None, 1).await.unwrap();
    shop.payloads(1).await;
    shop.next_at(PAYLOADS, Operation::BlobDelete, 1_000, Action::PermissionMismatch);
    let second = shop.save(Some(&first), 2).await.unwrap();
    shop.store.records.remove(&job(), &second, &[payload(2)]).await.unwrap();
    assert_eq!((shop.version().await, shop.blobs(PAYLOADS).await), (None, 2));
}

/// Both error codes of a failed condition.
#[tokio::test]
async fn a_refused_condition_is_a_conflict_and_costs_one_request() {
    let shop = Shop::open().await;
    let first = shop.save(None, 1).await.unwrap();
    let second = shop.save(Some(&first), 2).await.unwrap();
    for (expected, status) in [(None, 409), (Some(&first), 412)] {
        shop.double.reset_counts();
        let bare = RecordWrite { record: b"late".to_vec(), ..RecordWrite::default() };
        let error = shop.store.records.put(&job(), expected, bare).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let counts = shop.double.counts();
        assert_eq!(counts.answered(Operation::BlobPut, status), 1, "{counts:?}");
        assert_eq!((counts.requests(Operation::BlobPut), counts.requests(Operation::BlobGet)), (1, 0));
    }
    shop.has(2).await;
    assert_eq!(shop.version().await, Some(second));
}

/// The write arrives after its sender has timed out, and after another owner has written.
#[tokio::test]
async fn a_record_that_arrives_late_replaces_nothing() {
    let shop = Shop::open().await;
    let first = shop.save(None, 1).await.unwrap();
    let late = Duration::from_millis(1_500);
    shop.next_at(RECORDS, Operation::BlobPut, 1, Action::ApplyLate { by: late });
    let job = job();
    let early = shop.drain.records.put(&job, Some(&first), write(2));
    assert!(tokio::time::timeout(Duration::from_millis(300), early).await.is_err());
    shop.save(Some(&first), 3).await.unwrap();
    tokio::time::sleep(late * 2).await;
    shop.has(3).await;
}

#[tokio::test]
async fn the_ends_of_many_jobs_are_read_in_one_request() {
    let shop = Shop::open().await;
    let own = |number: u32| JobId::parse(format!("item-{number}")).unwrap();
    let job = |number: u32| NewJob::new("kind", RawValue::from_string(number.to_string()).unwrap());
    let jobs = (0..60).map(|number| job(number).with_id(own(number))).collect();
    let ids = Producer::new(shop.store.clone()).enqueue(jobs).await.unwrap();
    let ends = [r#"{"done":7}"#, r#"{"failed":"an \u00e4rror"}"#, r#""cancelled""#, ""];
    for (id, note) in ids.iter().zip(ends) {
        let stored = shop.store.records.load(id).await.unwrap().unwrap();
        let write = RecordWrite { record: stored.bytes, note: note.to_owned(), ..RecordWrite::default() };
        shop.store.records.put(id, Some(&stored.version), write).await.unwrap();
    }
    shop.double.reset_counts();
    let ends = shop.store.ends_of::<u32>(&ids).await.unwrap();
    let expected =
        [Some(JobEnd::Done(7)), Some(JobEnd::Failed("an ärror".to_owned())), Some(JobEnd::Cancelled)];
    assert_eq!(ends[..3], expected);
    assert_eq!(ends[3..], [const { None }; 57]);
    let counts = shop.double.counts();
    assert_eq!((counts.requests(Operation::BlobList), counts.requests(Operation::BlobGet)), (1, 0));
}
