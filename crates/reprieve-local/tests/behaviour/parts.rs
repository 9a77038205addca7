//! Ranges and parts of blobs: what is on the disk, and that unpublished parts never stay.

use std::time::Duration;

use reprieve_core::ports::{PART_BYTES, Store, Upload};
use reprieve_core::{BlobName, ErrorKind, Fence, Writer};

use crate::bench::{Bench, blob, eventually, job};

const LENGTH: u64 = PART_BYTES as u64 + 3;

fn writer(dequeue_count: u32) -> Writer {
    Writer { job: job("a"), fence: Fence::new(0, dequeue_count) }
}

async fn send(store: &Store, name: &BlobName, mark: u8) -> Upload {
    let upload = Upload::new();
    store.blobs.put_part(name, &upload, 0, vec![mark; PART_BYTES].into()).await.unwrap();
    store.blobs.put_part(name, &upload, 1, vec![mark; 3].into()).await.unwrap();
    upload
}

fn whole(mark: u8) -> Vec<u8> {
    vec![mark; PART_BYTES + 3]
}

#[tokio::test]
async fn parts_are_one_file_that_goes_when_they_are_not_published() {
    let bench = Bench::new();
    let store = bench.open().await;
    let name = blob("out/a");
    for _ in 0..3 {
        let upload = send(&store, &name, 1).await;
        assert_eq!(bench.files("blobs").len(), 1);
        drop(upload);
        assert!(bench.files("blobs").is_empty(), "dropped");
    }
    store.blobs.put(&name, b"second".to_vec(), Some(&writer(2))).await.unwrap();
    let upload = send(&store, &name, 1).await;
    let error = store.blobs.put_parts(&name, &upload, LENGTH, Some(&writer(1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded);
    drop(upload);
    // The writer's thread answers before it drops the operation.
    eventually("the refused file is gone", async || bench.files("blobs").is_empty()).await;
    assert_eq!(store.blobs.get(&name).await.unwrap().as_deref(), Some(&b"second"[..]));
}

#[tokio::test]
async fn published_parts_are_the_blobs_file_until_it_is_replaced() {
    let bench = Bench::new();
    let (store, another) = (bench.open().await, bench.open().await);
    let name = blob("out/a");
    let first = send(&store, &name, 1).await;
    let second = send(&another, &name, 2).await;
    assert_eq!(bench.files("blobs").len(), 2);
    store.blobs.put_parts(&name, &first, LENGTH, Some(&writer(1))).await.unwrap();
    another.blobs.put_parts(&name, &second, LENGTH, Some(&writer(2))).await.unwrap();
    assert_eq!(bench.files("blobs").len(), 1, "the replaced file is gone");
    // The first owner's answer was lost, and it publishes again.
    let error = store.blobs.put_parts(&name, &first, LENGTH, Some(&writer(1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded);
    another.blobs.put_parts(&name, &second, LENGTH, Some(&writer(2))).await.unwrap();
    drop((first, second));
    assert!(store.blobs.get(&name).await.unwrap() == Some(whole(2)));
    store.blobs.put(&name, b"row".to_vec(), Some(&writer(3))).await.unwrap();
    assert!(bench.files("blobs").is_empty());
}

/// A publication whose caller is gone is applied, or leaves no file.
#[tokio::test]
async fn a_dropped_publication_keeps_its_file_if_it_was_applied() {
    let bench = Bench::new();
    let store = bench.open().await;
    for round in 0..20 {
        let name = blob(&format!("out/{round}"));
        let upload = send(&store, &name, 7).await;
        let publishing = {
            let (store, name) = (store.clone(), name.clone());
            tokio::spawn(async move { store.blobs.put_parts(&name, &upload, LENGTH, None).await })
        };
        tokio::time::sleep(Duration::from_micros(200 * round)).await;
        publishing.abort();
        let _aborted = publishing.await;
        eventually("the publication has ended", async || {
            let published = store.blobs.list("").await.unwrap().len();
            bench.files("blobs").len() == published
        })
        .await;
        let read = store.blobs.get(&name).await.unwrap();
        assert!(read.is_none_or(|read| read == whole(7)), "half a blob");
    }
}

#[tokio::test]
async fn a_range_of_a_damaged_or_missing_file_is_an_error_or_nothing() {
    let bench = Bench::new();
    let store = bench.open().await;
    let name = blob("out/a");
    let upload = send(&store, &name, 1).await;
    store.blobs.put_parts(&name, &upload, LENGTH, None).await.unwrap();
    let file = bench.files("blobs").remove(0);
    for length in [0, PART_BYTES, PART_BYTES + 4] {
        std::fs::write(&file, vec![1; length]).unwrap();
        let error = store.blobs.get_range(&name, 0..10, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("out/a is damaged"), "{error}");
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(store.blobs.get_range(&name, 0..10, None).await.unwrap(), None);
    assert_eq!(store.blobs.get_range(&name, 0..0, None).await.unwrap(), None);
}

#[tokio::test]
async fn parts_are_not_taken_by_another_kind_of_store() {
    let bench = Bench::new();
    let (local, memory) = (bench.open().await, reprieve_core::memory::store());
    let name = blob("out/a");
    let upload = send(&local, &name, 1).await;
    let error = memory.blobs.put_parts(&name, &upload, LENGTH, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
