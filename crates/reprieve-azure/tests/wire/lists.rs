//! Lists in parts: each part is one request, also where a list is longer than the service's page.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use reprieve_core::ports::{Payload, RecordWrite};
use reprieve_core::retention::{Cleaner, Keep, Position, Removed};
use reprieve_core::{BlobName, ErrorKind, JobId, PayloadName, clock};
use reprieve_sim::storage::Operation;

use crate::support::{Shop, double_with_the_right_clock, open, runtime};

/// One more than the service returns in one answer.
const NUMBER: usize = 5_001;

#[tokio::test]
async fn a_part_of_a_list_is_one_request() {
    let shop = Shop::open().await;
    let blobs = &shop.store.blobs;
    let put = |number: usize| async move {
        let name = BlobName::parse(format!("results/{number:05}.json")).unwrap();
        blobs.put(&name, b"1".to_vec(), None).await.unwrap();
    };
    stream::iter(0..NUMBER).map(put).buffer_unordered(32).collect::<()>().await;
    shop.double.reset_counts();
    let first = blobs.page("results/", None).await.unwrap();
    assert_eq!((first.entries.len(), shop.requests(Operation::BlobList)), (NUMBER - 1, 1));
    let at = first.next.expect("a further part");
    for entry in &first.entries[..NUMBER / 2] {
        assert!(blobs.delete_version(&entry.name, &entry.version).await.unwrap(), "{entry:?}");
    }
    let second = blobs.page("results/", Some(&at)).await.unwrap();
    assert_eq!((second.entries.len(), second.next), (1, None));
    assert_eq!(second.entries[0].name.as_str(), "results/05000.json");
    assert_eq!(shop.requests(Operation::BlobList), 2);
}

#[tokio::test]
async fn a_place_in_a_list_that_the_service_does_not_know_is_an_error_that_stays() {
    let shop = Shop::open().await;
    let error = shop.store.blobs.page("results/", Some("~")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && !error.is_temporary(), "{error:?}");
}

/// A machine whose clock is wrong removes nothing that is new: the lists tell the service's time.
#[test]
fn a_clock_that_is_weeks_ahead_removes_nothing() {
    let double = double_with_the_right_clock();
    runtime().block_on(async {
        clock::simulate(clock::wall_now() + Duration::from_hours(60 * 24));
        let store = open(&double).await.unwrap().store();
        let job = JobId::parse("job").unwrap();
        let name = PayloadName::parse("1.m.1-1").unwrap();
        store.records.store_payload(&job, Payload { name, bytes: vec![7].into() }).await.unwrap();
        let record = RecordWrite { record: vec![7], ..RecordWrite::default() };
        store.records.put(&job, None, record).await.unwrap();
        for name in ["results/a.json", "args/a.json", "cancelled/a.json", "drains/a.json"] {
            store.blobs.put(&BlobName::parse(name).unwrap(), b"1".to_vec(), None).await.unwrap();
        }
        let keep = Keep { unfinished: Some(Duration::from_hours(30 * 24)), ..Keep::default() };
        let cleaner = Cleaner::new(store, keep);
        let (mut removed, mut position) = (Removed::default(), Some(Position::default()));
        while let Some(at) = position {
            let part = cleaner.clean(&at).await.unwrap();
            removed += part.removed;
            position = part.next;
        }
        assert_eq!(removed, Removed::default());
    });
}
