//! The promises about writing a blob in parts.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{delivery, get, listed, name, owner, put, superseded};
use crate::conformance::Fixture;
use crate::error::{ErrorKind, Result};
use crate::ids::{BlobName, Fence, Writer};
use crate::ports::{BlobStore, PART_BYTES, Upload};

const PART: u64 = PART_BYTES as u64;

/// Part number `number` of a blob of `length` bytes, which differs from every other part and mark.
fn part(mark: u8, number: u32, length: u64) -> Bytes {
    let bytes = (length - u64::from(number) * PART).min(PART);
    let byte = u8::try_from(number).expect("few parts") ^ mark;
    vec![byte; usize::try_from(bytes).expect("a part")].into()
}

fn whole(mark: u8, length: u64) -> Vec<u8> {
    let parts = Upload::parts(length).expect("few parts");
    (0..parts).flat_map(|number| part(mark, number, length)).collect()
}

/// Sends all parts.
async fn send(blobs: &dyn BlobStore, blob: &BlobName, mark: u8, length: u64) -> Upload {
    let upload = Upload::new();
    for number in 0..Upload::parts(length).expect("few parts") {
        blobs.put_part(blob, &upload, number, part(mark, number, length)).await.expect("takes a part");
    }
    upload
}

async fn publish(
    blobs: &dyn BlobStore,
    blob: &BlobName,
    (mark, length): (u8, u64),
    writer: Option<&Writer>,
) -> Result<()> {
    let upload = send(blobs, blob, mark, length).await;
    blobs.put_parts(blob, &upload, length, writer).await
}

/// Parts that were sent in any order, also twice, become one blob when they are published, and there is
/// none before.
pub async fn parts_are_invisible_until_they_are_published_whole(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    for (n, length) in [0, 1, PART, PART + 1, 2 * PART + 12_345].into_iter().enumerate() {
        let (blob, upload, mark) = (name(&format!("out/{n}")), Upload::new(), 64);
        let numbers = (0..Upload::parts(length).expect("few parts")).rev();
        for number in numbers.clone().chain(numbers.clone().take(1)) {
            blobs.put_part(&blob, &upload, number, part(mark, number, length)).await.expect("takes a part");
            assert_eq!(get(another, &blob).await, None);
            assert!(!another.exists(&blob).await.expect("looks"));
            assert_eq!(another.get_range(&blob, 0..1, None).await.expect("reads"), None);
            assert_eq!(listed(another, blob.as_str()).await, []);
            assert_eq!(another.list(blob.as_str()).await.expect("lists"), []);
        }
        blobs.put_parts(&blob, &upload, length, Some(&delivery("job", 1))).await.expect("publishes");
        assert!(get(another, &blob).await == Some(whole(mark, length)), "{length} bytes");
        assert_eq!(listed(another, blob.as_str()).await[0].bytes, length);
        // As any blob, it can be replaced by a put, and that by parts.
        put(another, &blob, b"short", Some(&delivery("job", 1))).await;
        assert_eq!(get(blobs, &blob).await.as_deref(), Some(&b"short"[..]));
        publish(another, &blob, (32, length), Some(&delivery("job", 2))).await.expect("publishes");
        assert!(get(blobs, &blob).await == Some(whole(32, length)), "{length} bytes, again");
    }
}

/// Parts of a write that is given up change no blob, and hinder no later write of the name.
pub async fn parts_that_are_not_published_change_nothing(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    let (fresh, old) = (name("out/fresh"), name("out/old"));
    put(another, &old, b"old", Some(&delivery("job", 1))).await;
    for blob in [&fresh, &old] {
        drop(send(blobs, blob, 1, PART + 1).await);
    }
    assert_eq!(get(another, &fresh).await, None);
    assert_eq!(get(another, &old).await.as_deref(), Some(&b"old"[..]));
    for blob in [&fresh, &old] {
        publish(another, blob, (2, PART + 7), Some(&delivery("job", 2))).await.expect("publishes");
        assert!(get(blobs, blob).await == Some(whole(2, PART + 7)), "{blob}");
    }
}

/// A publication of parts that were not all sent fails, and changes nothing.
pub async fn a_blob_with_missing_parts_is_not_published(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    let (fresh, old) = (name("out/fresh"), name("out/old"));
    put(another, &old, b"old", None).await;
    for blob in [&fresh, &old] {
        for missing in 0..3 {
            let (upload, length) = (Upload::new(), 2 * PART + 9);
            for number in (0..3).filter(|number| *number != missing) {
                let part = part(3, number, length);
                blobs.put_part(blob, &upload, number, part).await.expect("takes a part");
            }
            let refused = blobs.put_parts(blob, &upload, length, Some(&delivery("job", 1))).await;
            let error = refused.expect_err("a part is missing");
            assert_eq!(error.kind(), ErrorKind::Conflict, "without part {missing}: {error}");
        }
    }
    assert_eq!(get(another, &fresh).await, None);
    assert_eq!(get(another, &old).await.as_deref(), Some(&b"old"[..]));
}

/// A publication by an owner whose fence is too low fails and changes nothing; any other replaces the
/// blob, and leaves its fence.
pub async fn a_publication_is_fenced_as_a_put_is(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    let (blob, length) = (name("out"), PART + 1);
    let redriven = owner("job", Fence::new(1, 1));
    // Its parts were sent before the later owner wrote.
    let late = send(blobs, &name("out/late"), 9, length).await;
    put(another, &name("out/late"), b"second", Some(&delivery("job", 2))).await;
    let error = blobs.put_parts(&name("out/late"), &late, length, Some(&delivery("job", 1))).await;
    assert_eq!(error.expect_err("its fence is too low").kind(), ErrorKind::Superseded);
    assert_eq!(get(another, &name("out/late")).await.as_deref(), Some(&b"second"[..]));

    let writers =
        [Some(delivery("job", 1)), Some(delivery("job", 1)), Some(delivery("job", 9)), Some(redriven)];
    for (mark, writer) in (1..).zip(&writers) {
        publish(blobs, &blob, (mark, length), writer.as_ref()).await.expect("replaces");
        assert!(get(another, &blob).await == Some(whole(mark, length)), "{writer:?}");
    }
    for late in [delivery("job", 1), delivery("job", 9), owner("job", Fence::new(0, u32::MAX))] {
        let error =
            publish(another, &blob, (8, length), Some(&late)).await.expect_err("its fence is too low");
        assert_eq!(error.kind(), ErrorKind::Superseded, "{late:?}: {error}");
        superseded(blobs, &blob, &late).await;
    }
    assert!(get(another, &blob).await == Some(whole(4, length)), "a superseded publication changed the blob");
    for (mark, writer) in (5..).zip([None, Some(delivery("other", 1))]) {
        publish(blobs, &blob, (mark, length), writer.as_ref()).await.expect("replaces");
        assert!(get(another, &blob).await == Some(whole(mark, length)), "{writer:?}");
    }
}

/// A publication whose answer was lost is made again: it succeeds while its owner is the newest, and is
/// refused after a later one has written.
pub async fn a_publication_may_be_repeated(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    let (blob, length, first) = (name("out"), PART + 1, delivery("job", 1));
    let upload = send(blobs, &blob, 1, length).await;
    for _ in 0..3 {
        blobs.put_parts(&blob, &upload, length, Some(&first)).await.expect("publishes");
        assert!(get(another, &blob).await == Some(whole(1, length)));
    }
    put(another, &blob, b"second", Some(&delivery("job", 2))).await;
    let error =
        blobs.put_parts(&blob, &upload, length, Some(&first)).await.expect_err("it has a later owner");
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
    drop(upload);
    assert_eq!(get(another, &blob).await.as_deref(), Some(&b"second"[..]));
    // The published parts outlive the write.
    let upload = send(blobs, &blob, 3, length).await;
    blobs.put_parts(&blob, &upload, length, Some(&delivery("job", 3))).await.expect("publishes");
    drop(upload);
    assert!(get(another, &blob).await == Some(whole(3, length)));
}

/// Of several writes in parts of one name at the same time, each is published whole, or fails because
/// another discarded its parts; at least one is published.
pub async fn of_writes_in_parts_at_the_same_time_one_is_seen_whole(fixture: &Fixture) {
    const WRITES: u8 = 4;
    let (blob, length) = (name("out"), PART + 100);
    let mut writes = JoinSet::new();
    for mark in 0..WRITES {
        let store = if mark % 2 == 0 { &fixture.store } else { &fixture.another };
        let (blobs, blob) = (Arc::clone(&store.blobs), blob.clone());
        let owner = delivery(&format!("job-{mark}"), 1);
        writes.spawn(async move {
            match publish(&*blobs, &blob, (mark << 4, length), Some(&owner)).await {
                Ok(()) => Some(mark),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    None
                }
            }
        });
    }
    let published: Vec<_> = writes.join_all().await.into_iter().flatten().collect();
    let found = get(&*fixture.another.blobs, &blob).await.expect("at least one was published");
    let mark = found[0] >> 4;
    assert!(published.contains(&mark), "{mark} is seen, and {published:?} were published");
    assert!(found == whole(mark << 4, length), "a mixture");
}
