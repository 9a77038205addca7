//! What every [`CheckpointStore`] must do.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Fixture, bodies};
use crate::error::ErrorKind;
use crate::ports::{CheckpointStore, Stored, Version};

/// A key as jobs have them.
const KEY: &str = "0198f0a2-order-17.v2_b/0";

/// More than fits a page, a row or a packet.
const LARGE_BYTES: usize = 1024 * 1024 + 1;

async fn save(store: &dyn CheckpointStore, expected: Option<&Version>, bytes: &[u8]) -> Version {
    store.save(KEY, expected, bytes.to_vec()).await.expect("saves")
}

async fn load(store: &dyn CheckpointStore) -> Option<Stored> {
    store.load(KEY).await.expect("loads")
}

/// Asserts that a save which expects `expected` is a conflict and changes nothing.
async fn refused(store: &dyn CheckpointStore, expected: Option<&Version>) {
    let before = load(store).await;
    let error = store.save(KEY, expected, b"refused".to_vec()).await.expect_err("the expectation is not met");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(load(store).await, before, "a refused save changed the value");
}

/// A key that was never saved has no value.
pub async fn what_was_never_saved_is_not_there(fixture: &Fixture) {
    assert_eq!(load(&*fixture.store.checkpoints).await, None);
}

/// What one process saved, every process loads, with the version that the save returned; any bytes, none at all too.
pub async fn what_one_process_saves_every_process_loads_byte_for_byte(fixture: &Fixture) {
    let mut version = None;
    for bytes in bodies::awkward(LARGE_BYTES) {
        let saved = save(&*fixture.store.checkpoints, version.as_ref(), &bytes).await;
        for store in [&fixture.store, &fixture.another] {
            let stored = load(&*store.checkpoints).await.expect("an empty value is a value");
            assert!(stored.bytes == bytes, "{} bytes came back as {}", bytes.len(), stored.bytes.len());
            assert_eq!(stored.version, saved);
        }
        version = Some(saved);
    }
}

/// A first save needs the absence of a value, and is refused where there is one.
pub async fn a_first_save_does_not_replace(fixture: &Fixture) {
    save(&*fixture.store.checkpoints, None, b"first").await;
    refused(&*fixture.another.checkpoints, None).await;
}

/// A save that expects any version but the present one is refused.
pub async fn a_stale_save_is_refused_and_changes_nothing(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.checkpoints, &*fixture.another.checkpoints);
    let first = save(store, None, b"first").await;
    let second = save(another, Some(&first), b"second").await;
    refused(store, Some(&first)).await;
    refused(another, Some(&first)).await;
    save(store, Some(&second), b"third").await;
    refused(another, Some(&second)).await;
}

/// A save that expects a version where there is nothing is a conflict too.
pub async fn a_save_that_expects_a_value_needs_one(fixture: &Fixture) {
    let store = &*fixture.store.checkpoints;
    let elsewhere = store.save("another-job/0", None, b"value".to_vec()).await.expect("saves");
    refused(store, Some(&elsewhere)).await;
}

/// Every save has a version of its own, also when the bytes are the same: who expects the version before has not seen
/// that somebody saved.
pub async fn saving_the_same_bytes_changes_the_version(fixture: &Fixture) {
    let store = &*fixture.store.checkpoints;
    let first = save(store, None, b"same").await;
    let second = save(store, Some(&first), b"same").await;
    assert_ne!(first, second);
    refused(store, Some(&first)).await;
}

/// Of 16 that expect the same version at once, from two processes, one is taken, and its bytes are what is stored.
pub async fn of_concurrent_saves_exactly_one_is_taken(fixture: &Fixture) {
    let mut expected = None;
    for round in 0..4 {
        let mut saves = JoinSet::new();
        for writer in 0..16 {
            let store = if writer % 2 == 0 { &fixture.store } else { &fixture.another };
            let (store, expected) = (Arc::clone(&store.checkpoints), expected.clone());
            saves.spawn(async move {
                let bytes = format!("round {round}, writer {writer}").into_bytes();
                match store.save(KEY, expected.as_ref(), bytes.clone()).await {
                    Ok(version) => Some(Stored { bytes, version }),
                    Err(error) if error.kind() == ErrorKind::Conflict => None,
                    Err(error) => panic!("a concurrent save is taken or a conflict, not: {error}"),
                }
            });
        }
        let mut taken: Vec<_> = saves.join_all().await.into_iter().flatten().collect();
        assert_eq!(taken.len(), 1, "how many of 16 saves were taken, in round {round}");
        let taken = taken.pop();
        assert_eq!(load(&*fixture.another.checkpoints).await, taken);
        expected = taken.map(|stored| stored.version);
    }
}

/// Writers that load, add one and save, and try again at a conflict, lose no addition.
pub async fn no_update_is_lost_between_concurrent_writers(fixture: &Fixture) {
    const WRITERS: usize = 4;
    const ADDITIONS: usize = 5;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = if writer % 2 == 0 { &fixture.store } else { &fixture.another };
        let store = Arc::clone(&store.checkpoints);
        writers.spawn(async move {
            let mut added = 0;
            while added < ADDITIONS {
                let (mut bytes, version) = load(&*store)
                    .await
                    .map_or((Vec::new(), None), |stored| (stored.bytes, Some(stored.version)));
                tokio::task::yield_now().await;
                bytes.push(0);
                match store.save(KEY, version.as_ref(), bytes).await {
                    Ok(_) => added += 1,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
            }
        });
    }
    writers.join_all().await;
    let stored = load(&*fixture.store.checkpoints).await.expect("is there");
    assert_eq!(stored.bytes.len(), WRITERS * ADDITIONS);
}

/// Who loads while others save sees one save or the other, whole.
pub async fn a_load_during_saves_never_sees_a_mixture(fixture: &Fixture) {
    const SAVES: u8 = 12;
    let mut version = save(&*fixture.store.checkpoints, None, &bodies::uniform(0, LARGE_BYTES)).await;
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let store = Arc::clone(&fixture.another.checkpoints);
        readers.spawn(async move {
            let mut seen = HashSet::new();
            let mut last = 0;
            while last < SAVES {
                let stored = load(&*store).await.expect("is there");
                let mark = bodies::mark_of(&stored.bytes, LARGE_BYTES);
                assert!(mark >= last, "save {mark} was seen after save {last}");
                last = mark;
                seen.insert((stored.version.as_str().to_owned(), mark));
                tokio::task::yield_now().await;
            }
            seen
        });
    }
    let mut saved = HashSet::from([(version.as_str().to_owned(), 0)]);
    for mark in 1..=SAVES {
        version =
            save(&*fixture.store.checkpoints, Some(&version), &bodies::uniform(mark, LARGE_BYTES)).await;
        saved.insert((version.as_str().to_owned(), mark));
        tokio::task::yield_now().await;
    }
    for seen in readers.join_all().await {
        assert!(seen.is_subset(&saved), "a version came with bytes of another save");
    }
}

/// A cleared value is gone, and clearing what is not there succeeds.
pub async fn a_cleared_value_is_gone(fixture: &Fixture) {
    let store = &*fixture.store.checkpoints;
    store.clear(KEY).await.expect("clears what was never there");
    save(store, None, b"value").await;
    fixture.another.checkpoints.clear(KEY).await.expect("clears");
    assert_eq!(load(store).await, None);
    store.clear(KEY).await.expect("clears what is gone");
}

/// Who has not seen that a value was cleared can't bring it back.
pub async fn a_save_after_a_clear_that_it_did_not_see_is_refused(fixture: &Fixture) {
    let version = save(&*fixture.store.checkpoints, None, b"value").await;
    fixture.another.checkpoints.clear(KEY).await.expect("clears");
    refused(&*fixture.store.checkpoints, Some(&version)).await;
    assert_eq!(load(&*fixture.store.checkpoints).await, None);
}

/// No version is ever used twice for a key, so one from before a clear never holds after it.
pub async fn a_version_is_never_used_twice(fixture: &Fixture) {
    let store = &*fixture.store.checkpoints;
    let mut versions: Vec<Version> = Vec::new();
    for _ in 0..3 {
        let first = save(store, None, b"same").await;
        let second = save(store, Some(&first), b"same").await;
        for old in &versions {
            refused(store, Some(old)).await;
        }
        versions.extend([first, second]);
        fixture.another.checkpoints.clear(KEY).await.expect("clears");
    }
    let distinct: HashSet<_> = versions.iter().collect();
    assert_eq!(distinct.len(), versions.len(), "a version was used twice: {versions:?}");
}

/// Keys that share a beginning, or differ only in case, are different keys.
pub async fn keys_are_told_apart(fixture: &Fixture) {
    let keys =
        ["job/0", "job/1", "job/01", "job/10", "job-/0", "job.0/0", "Job/0", "JOB/0", "jo/0", "job_/0"];
    let store = &fixture.store.checkpoints;
    for key in keys {
        store.save(key, None, key.into()).await.unwrap_or_else(|error| panic!("{key} is a new key: {error}"));
    }
    store.clear("job/1").await.expect("clears");
    for key in keys {
        let stored = fixture.another.checkpoints.load(key).await.expect("loads");
        let expected = (key != "job/1").then(|| key.as_bytes().to_vec());
        assert_eq!(stored.map(|stored| stored.bytes), expected, "{key}");
    }
}

/// One test per promise of a checkpoint store; see [`conformance`](crate::conformance).
#[macro_export]
macro_rules! checkpoints_conformance {
    ($fixture:ident $(, $($attribute:tt)*)?) => {
        $crate::__conformance! {
            checkpoints, checkpoints_conformance, $fixture, ($($($attribute)*)?),
            what_was_never_saved_is_not_there,
            what_one_process_saves_every_process_loads_byte_for_byte,
            a_first_save_does_not_replace,
            a_stale_save_is_refused_and_changes_nothing,
            a_save_that_expects_a_value_needs_one,
            saving_the_same_bytes_changes_the_version,
            of_concurrent_saves_exactly_one_is_taken,
            no_update_is_lost_between_concurrent_writers,
            a_load_during_saves_never_sees_a_mixture,
            a_cleared_value_is_gone,
            a_save_after_a_clear_that_it_did_not_see_is_refused,
            a_version_is_never_used_twice,
            keys_are_told_apart,
        }
    };
}
