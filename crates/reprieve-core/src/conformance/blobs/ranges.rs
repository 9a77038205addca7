//! The promises about reading a blob in ranges.

use std::ops::Range;
use std::sync::Arc;

use super::{delivery, get, listed, name, put};
use crate::conformance::Fixture;
use crate::error::ErrorKind;
use crate::ids::BlobName;
use crate::ports::{BlobRange, BlobStore, Version};

/// Around the lengths at which stores change how they keep a blob, or send it.
const LENGTHS: [usize; 7] = [0, 1, 7, 64 << 10, (64 << 10) + 1, 1 << 20, (4 << 20) + 3];

/// Bytes of this length in which every place differs from its neighbours.
fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 31 + at / 251 + seed) % 251).expect("below 251")).collect()
}

/// Ranges of a blob of this length, inside it, at its end, beyond it, empty and reversed.
fn ranges(length: u64) -> Vec<Range<u64>> {
    let mut places = vec![0, 1, 2, length / 2, length.saturating_sub(1), length, length + 1, length + 5_000];
    places.extend([u64::MAX / 2, u64::MAX - 1, u64::MAX]);
    let pairs = places.iter().flat_map(|start| places.iter().map(|end| *start..*end));
    pairs.collect()
}

async fn range(
    blobs: &dyn BlobStore,
    blob: &BlobName,
    range: Range<u64>,
    version: Option<&Version>,
) -> Option<BlobRange> {
    blobs.get_range(blob, range.clone(), version).await.unwrap_or_else(|error| panic!("{range:?}: {error}"))
}

/// A range has the bytes that the blob has there, however far it reaches, and the blob's length and
/// version. A missing blob has no ranges.
pub async fn a_range_is_that_part_of_the_blob(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    for length in LENGTHS {
        let (blob, whole) = (name(&format!("in/{length}")), content(length, length));
        for nothing in [0..0, 0..1, 3..u64::MAX] {
            assert_eq!(range(another, &blob, nothing, None).await, None);
        }
        put(blobs, &blob, &whole, None).await;
        let written = listed(another, blob.as_str()).await.remove(0).version;
        let mut wanted = ranges(length as u64);
        // A large blob costs a store over a network too much for all of them.
        if length > 64 << 10 {
            wanted = wanted.into_iter().step_by(5).collect();
        }
        for wanted in wanted {
            let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(length);
            let expected = &whole[at(wanted.start)..at(wanted.end.max(wanted.start))];
            for version in [None, Some(&written)] {
                let read = range(another, &blob, wanted.clone(), version).await.expect("the blob is there");
                assert!(
                    read.bytes == expected,
                    "{wanted:?} of {length} bytes has {} instead of {}",
                    read.bytes.len(),
                    expected.len()
                );
                assert_eq!(read.length, length as u64, "{wanted:?}");
                assert_eq!(read.version, written, "{wanted:?}");
            }
        }
    }
}

/// A range of a version fails as soon as the blob has another, also one with the same bytes. A blob that
/// is gone has no range.
pub async fn a_range_of_a_version_is_never_of_another(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    for length in [0, 5, 100_000] {
        let (blob, bytes) = (name(&format!("in/{length}")), vec![b'x'; length]);
        put(blobs, &blob, &bytes, None).await;
        let first = range(another, &blob, 0..0, None).await.expect("is there").version;
        assert!(range(blobs, &blob, 0..10, Some(&first)).await.is_some());
        put(another, &blob, &bytes, Some(&delivery("job", 1))).await;
        for wanted in [0..0, 0..1, 3..5, 50_000..60_000, 200_000..300_000, 0..u64::MAX] {
            let refused = blobs.get_range(&blob, wanted.clone(), Some(&first)).await;
            let error = refused.expect_err("the blob has another version");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{wanted:?}: {error}");
        }
        let second = range(blobs, &blob, 0..0, None).await.expect("is there").version;
        another.delete(&blob, None).await.expect("deletes");
        assert_eq!(range(blobs, &blob, 0..1, Some(&second)).await, None);
        put(another, &blob, &bytes, None).await;
        let error = blobs.get_range(&blob, 0..1, Some(&second)).await.expect_err("it was written again");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let foreign = Version::new("another store's");
        let error = blobs.get_range(&blob, 0..1, Some(&foreign)).await.expect_err("no blob has it");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(get(blobs, &blob).await, Some(bytes));
    }
}

/// A reader that reads one range after the other sees the bytes of one write, or learns that the blob
/// was replaced.
pub async fn the_ranges_of_a_blob_that_is_being_replaced_never_mix(fixture: &Fixture) {
    const LENGTH: usize = 100_000;
    const WRITES: u8 = 24;
    let blob = name("in");
    put(&*fixture.store.blobs, &blob, &vec![0; LENGTH], None).await;
    let (writing, written) = (Arc::clone(&fixture.store.blobs), blob.clone());
    let writer = tokio::spawn(async move {
        for mark in 1..=WRITES {
            // A row and a file in turns, where those differ.
            let length = if mark % 2 == 0 { LENGTH } else { LENGTH / 2 };
            put(&*writing, &written, &vec![mark; length], None).await;
            tokio::task::yield_now().await;
        }
    });
    let another = &*fixture.another.blobs;
    let (mut last, mut whole) = (0, 0);
    while last < WRITES {
        // A store in memory never waits.
        tokio::task::yield_now().await;
        let first = range(another, &blob, 0..10_000, None).await.expect("it is always there");
        let mark = first.bytes[0];
        assert!(mark >= last, "went back from {last} to {mark}");
        last = mark;
        let mut at = 0;
        while at < first.length {
            match another.get_range(&blob, at..at + 10_000, Some(&first.version)).await {
                Ok(read) => {
                    let bytes = read.expect("it is always there").bytes;
                    assert!(!bytes.is_empty() && bytes.iter().all(|byte| *byte == mark), "a mixture");
                    at += bytes.len() as u64;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    break;
                }
            }
        }
        whole += u32::from(at >= first.length);
    }
    writer.await.expect("the writer ends");
    assert!(whole > 0, "the last write is read whole");
}
