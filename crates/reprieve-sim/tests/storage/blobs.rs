//! The blob service through the official SDK.

use std::collections::HashMap;

use azure_core::Bytes;
use azure_core::http::{Etag, NoFormat, RequestContent};
use azure_storage_blob::BlobContainerClient;
use azure_storage_blob::models::{
    BlobClientDeleteOptions, BlobClientDownloadOptions, BlobClientGetPropertiesOptions,
    BlobClientGetPropertiesResultHeaders, BlobClientSetMetadataOptions, BlobClientUploadOptions,
    BlobContainerClientListBlobsOptions, BlobItem, HttpRange, ListBlobsIncludeItem,
};
use futures_util::TryStreamExt;

use crate::support::{Double, refused};

const NOT_MET: (u16, &str) = (412, "ConditionNotMet");
const EXISTS: (u16, &str) = (409, "BlobAlreadyExists");
const MISSING: (u16, &str) = (404, "BlobNotFound");

#[track_caller]
fn check<T>(result: azure_core::Result<T>, (status, code): (u16, &str)) {
    assert_eq!(refused(result), (status, code.to_owned()));
}

fn content(bytes: impl Into<Vec<u8>>) -> RequestContent<Bytes, NoFormat> {
    RequestContent::from(bytes.into())
}

async fn put(container: &BlobContainerClient, name: &str, bytes: impl Into<Vec<u8>>) -> Etag {
    container.blob_client(name).upload(content(bytes), None).await.expect("it is put").etag.expect("a tag")
}

async fn get(container: &BlobContainerClient, name: &str) -> Vec<u8> {
    let download = container.blob_client(name).download(None).await.expect("it is there");
    download.body.collect().await.expect("all of it").to_vec()
}

fn map(key: &str, value: &str) -> HashMap<String, String> {
    HashMap::from([(key.to_owned(), value.to_owned())])
}

fn if_match(tag: &Etag) -> BlobClientUploadOptions<'static> {
    BlobClientUploadOptions { if_match: Some(tag.clone()), ..Default::default() }
}

fn if_none_match(tag: &Etag) -> BlobClientUploadOptions<'static> {
    BlobClientUploadOptions { if_none_match: Some(tag.clone()), ..Default::default() }
}

#[tokio::test]
async fn a_container_is_created_once() {
    let double = Double::start().await;
    let container = double.container_client("store");
    check(container.get_properties(None).await, (404, "ContainerNotFound"));
    check(container.blob_client("a").download(None).await, (404, "ContainerNotFound"));
    check(container.blob_client("a").upload(content("a"), None).await, (404, "ContainerNotFound"));
    container.create(None).await.unwrap();
    check(container.create(None).await, (409, "ContainerAlreadyExists"));
    container.get_properties(None).await.unwrap();
    put(&container, "a", "a").await;
    container.delete(None).await.unwrap();
    check(container.delete(None).await, (404, "ContainerNotFound"));
    container.create(None).await.unwrap();
    check(container.blob_client("a").download(None).await, MISSING);
}

#[tokio::test]
async fn a_get_returns_the_blob_that_was_put() {
    let double = Double::start().await;
    let container = double.container("store").await;
    let odd = "a b/é#?%25+&<\u{1F980}>.json";
    let every_byte: Vec<u8> = (0..=255).collect();
    for name in ["plain", "a/b/c", ".reprieve/records/job", odd] {
        put(&container, name, every_byte.clone()).await;
        assert_eq!(get(&container, name).await, every_byte, "{name}");
    }
    put(&container, "empty", "").await;
    assert_eq!(get(&container, "empty").await, b"");
    check(container.blob_client("none").download(None).await, MISSING);
    check(container.blob_client("none").get_properties(None).await, (404, "BlobNotFound"));
}

#[tokio::test]
async fn a_blob_tells_its_properties_and_metadata() {
    let double = Double::start().await;
    let container = double.container("store").await;
    let blob = container.blob_client("a.json");
    let options = BlobClientUploadOptions {
        metadata: Some(map("owner", "w1")),
        blob_content_type: Some("application/json".to_owned()),
        ..Default::default()
    };
    let first = blob.upload(content("{}"), Some(options)).await.unwrap().etag.unwrap();
    let got = blob.download(None).await.unwrap();
    assert_eq!(got.properties.etag.as_ref(), Some(&first));
    assert_eq!(got.properties.metadata, map("owner", "w1"));
    assert_eq!(got.properties.content_type.as_deref(), Some("application/json"));
    let modified = got.properties.last_modified;
    let listed: Vec<BlobItem> = container.list_blobs(None).unwrap().try_collect().await.unwrap();
    let listed = listed[0].properties.as_ref().and_then(|properties| properties.last_modified);
    assert!(modified.is_some() && listed == modified, "{listed:?} in a list, {modified:?} in an answer");

    let properties = blob.get_properties(None).await.unwrap();
    assert_eq!(properties.content_length().unwrap(), Some(2));
    assert_eq!(properties.etag().unwrap(), Some(first.clone()));
    assert_eq!(properties.metadata().unwrap(), map("owner", "w1"));

    let set = blob.set_metadata(&map("owner", "w2"), None).await.unwrap();
    let second = Etag::from(set.headers().get_str(&"etag".into()).unwrap().to_owned());
    assert_ne!(first, second);
    assert_eq!(blob.get_properties(None).await.unwrap().metadata().unwrap(), map("owner", "w2"));
    let stale = BlobClientSetMetadataOptions { if_match: Some(first), ..Default::default() };
    check(blob.set_metadata(&map("owner", "w3"), Some(stale)).await, NOT_MET);

    put(&container, "a.json", "[]").await;
    assert!(
        blob.get_properties(None).await.unwrap().metadata().unwrap().is_empty(),
        "a put replaces the metadata"
    );
}

#[tokio::test]
async fn writes_are_done_only_under_their_condition() {
    let double = Double::start().await;
    let container = double.container("store").await;
    let (blob, any) = (container.blob_client("a"), Etag::from("*"));
    check(blob.upload(content("x"), Some(if_match(&any))).await, NOT_MET);
    check(blob.upload(content("x"), Some(if_match(&Etag::from("\"0x1\"")))).await, NOT_MET);
    let first = blob.upload(content("1"), Some(if_none_match(&any))).await.unwrap().etag.unwrap();
    check(blob.upload(content("x"), Some(if_none_match(&any))).await, EXISTS);
    let second = blob.upload(content("2"), Some(if_match(&first))).await.unwrap().etag.unwrap();
    check(blob.upload(content("x"), Some(if_match(&first))).await, NOT_MET);
    check(blob.upload(content("x"), Some(if_none_match(&second))).await, NOT_MET);
    blob.upload(content("3"), Some(if_match(&any))).await.unwrap();
    assert_eq!(get(&container, "a").await, b"3");

    let delete = |tag: &Etag| BlobClientDeleteOptions { if_match: Some(tag.clone()), ..Default::default() };
    check(blob.delete(Some(delete(&second))).await, NOT_MET);
    let last = blob.get_properties(None).await.unwrap().etag().unwrap().unwrap();
    blob.delete(Some(delete(&last))).await.unwrap();
    check(blob.delete(None).await, MISSING);
    check(blob.delete(Some(delete(&last))).await, NOT_MET);
}

#[tokio::test]
async fn reads_are_done_only_under_their_condition() {
    let double = Double::start().await;
    let container = double.container("store").await;
    let tag = put(&container, "a", "a").await;
    let (blob, other) = (container.blob_client("a"), Etag::from("\"0x1\""));
    let none_match = |tag: &Etag| {
        Some(BlobClientDownloadOptions { if_none_match: Some(tag.clone()), ..Default::default() })
    };
    check(blob.download(none_match(&tag)).await, (304, "ConditionNotMet"));
    blob.download(none_match(&other)).await.unwrap();
    let matching =
        |tag: &Etag| Some(BlobClientDownloadOptions { if_match: Some(tag.clone()), ..Default::default() });
    check(blob.download(matching(&other)).await, NOT_MET);
    blob.download(matching(&tag)).await.unwrap();
    let unchanged = BlobClientGetPropertiesOptions { if_none_match: Some(tag.clone()), ..Default::default() };
    check(blob.get_properties(Some(unchanged)).await, (304, "ConditionNotMet"));
}

#[tokio::test]
async fn one_of_many_writers_wins() {
    let double = Double::start().await;
    let container = double.container("store").await;
    let tag = put(&container, "a", "0").await;
    for options in [if_match(&tag), if_none_match(&Etag::from("*"))] {
        let name = if options.if_match.is_some() { "a" } else { "b" };
        let writers = (0..16).map(|n: u8| {
            let (blob, options) = (container.blob_client(name), options.clone());
            async move { blob.upload(content([n]), Some(options)).await.is_ok() }
        });
        let won = futures_util::future::join_all(writers).await;
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{name}");
    }
}

#[tokio::test]
async fn parts_are_got_by_range() {
    let double = Double::start().await;
    let container = double.container("store").await;
    put(&container, "a", "0123456789").await;
    for (range, part) in [
        (HttpRange::new(0, 4), "0123"),
        (HttpRange::new(3, 100), "3456789"),
        (HttpRange::from(5_u64..), "56789"),
    ] {
        let options = BlobClientDownloadOptions { range: Some(range), ..Default::default() };
        let got = container.blob_client("a").download(Some(options)).await.unwrap();
        assert_eq!(got.body.collect().await.unwrap(), part);
    }
    let beyond = BlobClientDownloadOptions { range: Some(HttpRange::new(10, 1)), ..Default::default() };
    check(container.blob_client("a").download(Some(beyond)).await, (416, "InvalidRange"));
}

async fn list(
    container: &BlobContainerClient,
    options: BlobContainerClientListBlobsOptions<'_>,
) -> Vec<BlobItem> {
    container.list_blobs(Some(options)).expect("a pager").try_collect().await.expect("a list")
}

#[tokio::test]
async fn lists_are_in_order_by_prefix_and_in_pages() {
    let double = Double::start().await;
    let container = double.container("store").await;
    for name in ["a/2", "b", "a/10", "a/1", "a", "a/é", "a0", "a/<&>", "a/\u{1}"] {
        put(&container, name, name).await;
    }
    for maxresults in [None, Some(1), Some(2), Some(100)] {
        let options = BlobContainerClientListBlobsOptions {
            prefix: Some("a/".to_owned()),
            maxresults,
            ..Default::default()
        };
        let listed = list(&container, options).await;
        let names: Vec<_> = listed.iter().map(|item| item.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a/\u{1}", "a/1", "a/10", "a/2", "a/<&>", "a/é"], "{maxresults:?}");
        let properties = listed[2].properties.as_ref().unwrap();
        assert_eq!(properties.content_length, Some(4));
    }
    let nothing = BlobContainerClientListBlobsOptions { prefix: Some("z".to_owned()), ..Default::default() };
    assert!(list(&container, nothing).await.is_empty());
}

#[tokio::test]
async fn lists_tell_metadata_when_asked() {
    let double = Double::start().await;
    let container = double.container("store").await;
    let options = BlobClientUploadOptions { metadata: Some(map("fence", "<7>")), ..Default::default() };
    let tag = container.blob_client("a").upload(content("a"), Some(options)).await.unwrap().etag.unwrap();
    let with = BlobContainerClientListBlobsOptions {
        include: Some(vec![ListBlobsIncludeItem::Metadata]),
        ..Default::default()
    };
    let [item] = &list(&container, with).await[..] else { panic!("one") };
    let metadata = item.metadata.as_ref().unwrap().values.clone();
    assert_eq!(metadata, Some(map("fence", "<7>")));
    let listed = item.properties.as_ref().unwrap().etag.clone().unwrap();
    assert_eq!(listed.to_string().trim_matches('"'), tag.to_string().trim_matches('"'));
    let [bare] = &list(&container, BlobContainerClientListBlobsOptions::default()).await[..] else {
        panic!("one")
    };
    assert!(bare.metadata.is_none());
}
