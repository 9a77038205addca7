//! An account with a hierarchical namespace, where every directory is listed and read as a blob.

use reprieve_azure::storage::check::Checkup;
use reprieve_azure::storage::{Address, ContainerName};
use reprieve_core::ports::{Payload, RecordWrite};
use reprieve_core::{BlobName, JobId, PayloadName};
use reprieve_sim::storage::{Action, Config, Operation, Rule};

use crate::support::{CONTAINER, Shop};

async fn shop() -> Shop {
    Shop::open_on(Config { has_directories: true, ..Config::default() }).await
}

fn name(name: &str) -> BlobName {
    BlobName::parse(name).unwrap()
}

#[tokio::test]
async fn a_directory_is_no_input() {
    let shop = shop().await;
    let blobs = &shop.store.blobs;
    blobs.put(&name("inputs/2026/pumps.csv"), b"1".to_vec(), None).await.unwrap();
    assert_eq!(blobs.list("").await.unwrap(), [name("inputs/2026/pumps.csv")]);
    assert_eq!(blobs.page("inputs", None).await.unwrap().entries.len(), 1);
    for directory in ["inputs", "inputs/2026"] {
        assert_eq!(blobs.get(&name(directory)).await.unwrap(), None, "{directory}");
        assert!(!blobs.exists(&name(directory)).await.unwrap(), "{directory}");
    }
    assert!(blobs.put(&name("inputs/2026"), Vec::new(), None).await.is_err());
    assert!(blobs.put(&name("inputs/2026/pumps.csv/1"), Vec::new(), None).await.is_err());
}

/// Writes a record with a payload, and removes it.
async fn written_and_removed(shop: &Shop) {
    let (job, payload) = (JobId::parse("job").unwrap(), PayloadName::parse("0.m.1-0").unwrap());
    let stored = Payload { name: payload.clone(), bytes: b"state".to_vec().into() };
    let write = RecordWrite { record: b"1".to_vec(), payload: Some(stored), ..RecordWrite::default() };
    let version = shop.store.records.put(&job, None, write).await.unwrap();
    assert_eq!(shop.store.records.payload_page(None).await.unwrap().entries.len(), 1);
    assert_eq!(shop.blobs(".reprieve/payloads/job").await, 2);
    shop.store.records.remove(&job, &version, &[payload]).await.unwrap();
}

#[tokio::test]
async fn the_directory_of_a_job_is_removed_with_its_payloads() {
    let shop = shop().await;
    written_and_removed(&shop).await;
    assert_eq!(shop.blobs(".reprieve/payloads/").await, 0);
    assert_eq!(shop.blobs(".reprieve/payloads").await, 1, "every store has this one");
    let mark = name("ready/event/vm/worker");
    shop.store.blobs.put(&mark, Vec::new(), None).await.unwrap();
    shop.store.blobs.put(&name("ready/event/other/worker"), Vec::new(), None).await.unwrap();
    let listed = shop.store.blobs.page("ready/event/vm/", None).await.unwrap().entries;
    assert!(shop.store.blobs.delete_version(&mark, &listed[0].version).await.unwrap());
    assert_eq!(shop.blobs("ready/event/vm").await, 0);
    assert_eq!(shop.blobs("ready/event").await, 3, "the other machine's mark keeps its directories");
}

#[tokio::test]
async fn an_account_that_refuses_to_delete_directories_is_asked_once() {
    let shop = shop().await;
    let refuse = Action::Refuse { status: 400, code: "OperationNotSupportedOnDirectory".to_owned() };
    // The first request of the record itself and the second of its payload succeed.
    let rule = Rule { skip: 2, ..Rule::new(refuse) };
    shop.double.add_fault(rule.on(Operation::BlobDelete).times(1)).unwrap();
    written_and_removed(&shop).await;
    assert_eq!(shop.blobs(".reprieve/payloads/").await, 1, "its empty directory stays");
    shop.double.reset_counts();
    written_and_removed(&shop).await;
    assert_eq!(shop.requests(Operation::BlobDelete), 2, "the record and its payload");
}

#[tokio::test]
async fn an_account_without_directories_is_never_asked_to_delete_one() {
    let shop = Shop::open().await;
    let mark = name("ready/event/vm/worker");
    shop.store.blobs.put(&mark, Vec::new(), None).await.unwrap();
    let listed = shop.store.blobs.page("ready/", None).await.unwrap().entries;
    assert!(shop.store.blobs.delete_version(&mark, &listed[0].version).await.unwrap());
    assert_eq!(shop.double.counts().requests(Operation::BlobDelete), 1);
}

#[tokio::test]
async fn a_check_leaves_no_directory_behind() {
    let shop = shop().await;
    let address = Address::parse(&shop.double.connection_string()).unwrap();
    let check = Checkup::new(&address, Vec::new(), ContainerName::parse(CONTAINER).unwrap()).unwrap();
    let trial = check.try_blobs().await.unwrap();
    assert_eq!((trial.has_directories, trial.left_behind), (Some(true), None));
    assert_eq!(shop.blobs(".reprieve/doctor").await, 0);
}
