//! Blobs that are uploaded in blocks and downloaded in parts, through the official SDK.

use std::num::NonZero;

use azure_core::http::{Etag, RequestContent};
use azure_storage_blob::models::{BlobClientDownloadOptions, BlobClientUploadOptions, BlockLookupList};
use reprieve_sim::storage::Operation;

use crate::support::{Double, refused};

/// Bytes with no two equal parts side by side.
fn large() -> Vec<u8> {
    (0..2_250_000_u32).flat_map(u32::to_le_bytes).collect()
}

#[tokio::test]
async fn a_large_blob_comes_back_as_it_was() {
    let double = Double::start().await;
    let container = double.container("store").await;
    let (blob, bytes) = (container.blob_client("large"), large());
    let options = BlobClientUploadOptions { if_none_match: Some(Etag::from("*")), ..Default::default() };
    blob.upload(RequestContent::from(bytes.clone()), Some(options.clone())).await.unwrap();
    let counts = double.server.counts();
    assert_eq!(counts.answered(Operation::BlockPut, 201), 3);
    assert_eq!(counts.answered(Operation::BlockList, 201), 1);
    assert_eq!(counts.requests(Operation::BlobPut), 0);

    let got = blob.download(None).await.unwrap().body.collect().await.unwrap();
    assert!(got[..] == bytes[..], "{} bytes", got.len());
    let parts = BlobClientDownloadOptions { partition_size: NonZero::new(1_000_001), ..Default::default() };
    let got = blob.download(Some(parts)).await.unwrap().body.collect().await.unwrap();
    assert!(got[..] == bytes[..], "{} bytes in parts", got.len());

    // The condition applies to the commit.
    let again = blob.upload(RequestContent::from(bytes), Some(options)).await;
    assert_eq!(refused(again), (409, "BlobAlreadyExists".to_owned()));
    assert_eq!(double.server.counts().answered(Operation::BlockList, 409), 1);
}

#[tokio::test]
async fn blocks_are_no_blob_until_they_are_committed() {
    let double = Double::start().await;
    let container = double.container("store").await;
    let blob = container.blob_client("a");
    let blocks = blob.block_blob_client();
    let id = |n: u8| vec![n; 16];
    let list = |ids: &[u8]| {
        let list =
            BlockLookupList { latest: Some(ids.iter().map(|n| id(*n)).collect()), ..Default::default() };
        RequestContent::try_from(list).expect("XML")
    };
    for (n, data) in [(1, "one"), (2, "two")] {
        blocks
            .stage_block(&id(n), data.len() as u64, RequestContent::from(data.as_bytes().to_vec()), None)
            .await
            .unwrap();
    }
    assert_eq!(refused(blob.download(None).await), (404, "BlobNotFound".to_owned()));
    blocks.commit_block_list(list(&[2, 1]), None).await.unwrap();
    assert_eq!(blob.download(None).await.unwrap().body.collect().await.unwrap(), "twoone");

    // Committed blocks can be listed again; unknown ones can't.
    blocks.commit_block_list(list(&[1]), None).await.unwrap();
    assert_eq!(blob.download(None).await.unwrap().body.collect().await.unwrap(), "one");
    let unknown = blocks.commit_block_list(list(&[1, 2]), None).await;
    assert_eq!(refused(unknown), (400, "InvalidBlockList".to_owned()));
}
