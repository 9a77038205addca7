//! The promises of a [`RecordStore`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Fixture, bodies};
use crate::clock::unix_millis;
use crate::error::ErrorKind;
use crate::ids::{JobId, MessageId, PayloadName};
use crate::ports::{
    ListedPayload, ListedRecord, NOTE_BYTES_MAX, Page, Payload, RECORD_BYTES_MAX, RecordStore, RecordWrite,
    Stored, Version,
};

/// Larger than a page, a row or a packet.
const LARGE_BYTES: usize = 1024 * 1024 + 1;

/// The time limit for a required event, on a busy machine, in milliseconds.
const PATIENCE_MS: i64 = 20_000;

/// How far the clocks of a store and of this machine may differ, in milliseconds.
const SKEW_MS: i64 = 60_000;

/// The interval between two polls of a store.
const PAUSE: Duration = Duration::from_millis(50);

fn id(id: &str) -> JobId {
    JobId::parse(id).expect("the suite's job ids are valid")
}

/// The job of most tests, with a name like those of real jobs.
fn job() -> JobId {
    id("0198f0a2-order-17.v2_b")
}

/// The name of the payload of write number `sequence`.
fn payload(sequence: u64) -> PayloadName {
    PayloadName::new(0, &MessageId::new("d0c1-message"), 1, sequence)
}

fn record(bytes: &[u8]) -> RecordWrite {
    RecordWrite { record: bytes.to_vec(), ..RecordWrite::default() }
}

/// A write with a record that names payload number `sequence`, and with that payload.
fn with_payload(sequence: u64, bytes: Vec<u8>) -> RecordWrite {
    let record = payload(sequence).as_str().as_bytes().to_vec();
    RecordWrite {
        record,
        payload: Some(Payload { name: payload(sequence), bytes: bytes.into() }),
        ..RecordWrite::default()
    }
}

async fn put(store: &dyn RecordStore, expected: Option<&Version>, write: RecordWrite) -> Version {
    store.put(&job(), expected, write).await.expect("writes")
}

async fn load(store: &dyn RecordStore) -> Option<Stored> {
    store.load(&job()).await.expect("loads")
}

async fn read(store: &dyn RecordStore, sequence: u64) -> Option<Vec<u8>> {
    store.payload(&job(), &payload(sequence)).await.expect("reads a payload").map(Vec::from)
}

/// Asserts that a write that expects `expected` is a conflict and changes no record.
async fn refused(store: &dyn RecordStore, expected: Option<&Version>) {
    let before = load(store).await;
    let error = store.put(&job(), expected, record(b"refused")).await.expect_err("another version is there");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(load(store).await, before, "a refused write changed the record");
}

/// Asserts that a removal that expects `expected` is a conflict and changes no record.
async fn keeps(store: &dyn RecordStore, expected: &Version, payloads: &[PayloadName]) {
    let before = load(store).await;
    let error = store.remove(&job(), expected, payloads).await.expect_err("another version is there");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(load(store).await, before, "a refused removal changed the record");
}

/// Waits until payload number `sequence` is gone, which may be shortly after the call that made it
/// obsolete.
async fn gone(store: &dyn RecordStore, sequence: u64) {
    let limit = unix_millis() + PATIENCE_MS;
    while read(store, sequence).await.is_some() {
        assert!(unix_millis() < limit, "payload {sequence} is still there");
        sleep(PAUSE).await;
    }
}

/// A job without a record has no record and no payload.
pub async fn a_job_that_was_never_written_has_nothing(fixture: &Fixture) {
    assert_eq!(load(&*fixture.store.records).await, None);
    assert_eq!(read(&*fixture.store.records, 1).await, None);
}

/// A record that one process wrote is loaded by every process, with the version that the write
/// returned and with any bytes, even none.
pub async fn a_record_of_one_process_is_loaded_by_every_process_byte_for_byte(fixture: &Fixture) {
    let mut version = None;
    for bytes in bodies::awkward(RECORD_BYTES_MAX) {
        let written = put(&*fixture.store.records, version.as_ref(), record(&bytes)).await;
        let stored = load(&*fixture.store.records).await.expect("an empty record is a record");
        assert!(stored.bytes == bytes, "{} bytes came back as {}", bytes.len(), stored.bytes.len());
        assert_eq!(stored.version, written);
        assert_eq!(load(&*fixture.another.records).await, Some(stored));
        version = Some(written);
    }
}

/// A record of exactly [`RECORD_BYTES_MAX`] bytes is accepted, with a payload beside it.
pub async fn a_record_of_the_largest_size_is_taken(fixture: &Fixture) {
    let largest = bodies::uniform(7, RECORD_BYTES_MAX);
    let write = RecordWrite { record: largest.clone(), ..with_payload(1, b"beside".to_vec()) };
    put(&*fixture.store.records, None, write).await;
    assert!(load(&*fixture.another.records).await.expect("is there").bytes == largest);
    assert_eq!(read(&*fixture.another.records, 1).await.as_deref(), Some(&b"beside"[..]));
}

/// The time of the last write is known, and the same for every process.
pub async fn a_record_has_the_time_of_its_last_write(fixture: &Fixture) {
    let store = &*fixture.store.records;
    let first = put(store, None, record(b"first")).await;
    let written = load(store).await.expect("is there").modified_unix_ms;
    assert!((unix_millis() - written).abs() < SKEW_MS, "{written} is not now");
    let limit = unix_millis() + PATIENCE_MS;
    let mut version = first;
    loop {
        version = put(store, Some(&version), record(b"again")).await;
        let again = load(store).await.expect("is there").modified_unix_ms;
        assert_eq!(load(&*fixture.another.records).await.expect("is there").modified_unix_ms, again);
        assert!(again >= written, "the time went back from {written} to {again}");
        if again > written {
            return;
        }
        assert!(unix_millis() < limit, "a later write has no later time");
        sleep(PAUSE).await;
    }
}

/// A first write is refused where there is a record.
pub async fn a_first_write_does_not_replace(fixture: &Fixture) {
    put(&*fixture.store.records, None, record(b"first")).await;
    refused(&*fixture.another.records, None).await;
}

/// A write that expects any version but the present one is refused.
pub async fn a_stale_write_is_refused_and_changes_nothing(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    let first = put(store, None, record(b"first")).await;
    let second = put(another, Some(&first), record(b"second")).await;
    refused(store, Some(&first)).await;
    refused(another, Some(&first)).await;
    put(store, Some(&second), record(b"third")).await;
    refused(another, Some(&second)).await;
}

/// A write that expects a version is a conflict where there is no record.
pub async fn a_write_that_expects_a_record_needs_one(fixture: &Fixture) {
    let store = &*fixture.store.records;
    let elsewhere = store.put(&id("another-job"), None, record(b"value")).await.expect("writes");
    refused(store, Some(&elsewhere)).await;
}

/// Every write has a new version, even when the bytes are the same.
pub async fn writing_the_same_bytes_changes_the_version(fixture: &Fixture) {
    let store = &*fixture.store.records;
    let first = put(store, None, record(b"same")).await;
    let second = put(store, Some(&first), record(b"same")).await;
    assert_ne!(first, second);
    refused(store, Some(&first)).await;
}

/// Of 16 concurrent writes from two processes that expect the same version, one succeeds, and its
/// record and payload are stored.
pub async fn of_concurrent_writes_exactly_one_is_taken(fixture: &Fixture) {
    let mut expected = None;
    for round in 0..4 {
        let mut writes = JoinSet::new();
        for writer in 0..16 {
            let store = if writer % 2 == 0 { &fixture.store } else { &fixture.another };
            let (store, expected) = (Arc::clone(&store.records), expected.clone());
            writes.spawn(async move {
                let sequence = round * 16 + writer;
                let write = with_payload(sequence, sequence.to_string().into_bytes());
                match store.put(&job(), expected.as_ref(), write.clone()).await {
                    Ok(version) => Some((sequence, write.record, version)),
                    Err(error) if error.kind() == ErrorKind::Conflict => None,
                    Err(error) => panic!("a concurrent write is taken or a conflict, not: {error}"),
                }
            });
        }
        let taken: Vec<_> = writes.join_all().await.into_iter().flatten().collect();
        assert_eq!(taken.len(), 1, "how many of 16 writes were taken, in round {round}");
        let (sequence, bytes, version) = &taken[0];
        let stored = load(&*fixture.another.records).await.expect("is there");
        assert_eq!((&stored.bytes, &stored.version), (bytes, version));
        assert_eq!(read(&*fixture.store.records, *sequence).await, Some(sequence.to_string().into_bytes()));
        expected = Some(version.clone());
    }
}

/// Of a concurrent write and removal that expect the same version, one succeeds.
pub async fn of_a_write_and_a_removal_at_once_exactly_one_is_taken(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    for _ in 0..8 {
        let version = put(store, None, record(b"first")).await;
        let job = job();
        let (written, removed) = tokio::join!(
            store.put(&job, Some(&version), record(b"second")),
            another.remove(&job, &version, &[])
        );
        match (written, removed) {
            (Ok(second), Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                another.remove(&job, &second, &[]).await.expect("removes");
            }
            (Err(error), Ok(())) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
            both => panic!("exactly one is taken, not: {both:?}"),
        }
        assert_eq!(load(store).await, None);
    }
}

/// Writers that load, add one, write, and retry after a conflict lose no addition.
pub async fn no_update_is_lost_between_concurrent_writers(fixture: &Fixture) {
    const WRITERS: usize = 4;
    const ADDITIONS: usize = 5;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = if writer % 2 == 0 { &fixture.store } else { &fixture.another };
        let store = Arc::clone(&store.records);
        writers.spawn(async move {
            let mut added = 0;
            while added < ADDITIONS {
                let (mut bytes, version) = load(&*store)
                    .await
                    .map_or((Vec::new(), None), |stored| (stored.bytes, Some(stored.version)));
                tokio::task::yield_now().await;
                bytes.push(0);
                match store.put(&job(), version.as_ref(), record(&bytes)).await {
                    Ok(_) => added += 1,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
            }
        });
    }
    writers.join_all().await;
    let stored = load(&*fixture.store.records).await.expect("is there");
    assert_eq!(stored.bytes.len(), WRITERS * ADDITIONS);
}

/// A load during writes returns one write or another, whole.
pub async fn a_load_during_writes_never_sees_a_mixture(fixture: &Fixture) {
    const WRITES: u8 = 24;
    let uniform = |mark| record(&bodies::uniform(mark, RECORD_BYTES_MAX));
    let mut version = put(&*fixture.store.records, None, uniform(0)).await;
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let store = Arc::clone(&fixture.another.records);
        readers.spawn(async move {
            let mut seen = HashSet::new();
            let mut last = 0;
            while last < WRITES {
                let stored = load(&*store).await.expect("is there");
                let mark = bodies::mark_of(&stored.bytes, RECORD_BYTES_MAX);
                assert!(mark >= last, "write {mark} was seen after write {last}");
                last = mark;
                seen.insert((stored.version.as_str().to_owned(), mark));
                tokio::task::yield_now().await;
            }
            seen
        });
    }
    let mut written = HashSet::from([(version.as_str().to_owned(), 0)]);
    for mark in 1..=WRITES {
        version = put(&*fixture.store.records, Some(&version), uniform(mark)).await;
        written.insert((version.as_str().to_owned(), mark));
        tokio::task::yield_now().await;
    }
    for seen in readers.join_all().await {
        assert!(seen.is_subset(&written), "a version came with bytes of another write");
    }
}

/// A payload is readable by every process from the write that names it on, byte for byte, in any
/// size.
pub async fn a_payload_is_read_by_every_process_byte_for_byte(fixture: &Fixture) {
    let mut version = None;
    let sizes = [0, 1, 300 * 1024, LARGE_BYTES];
    let bytes = |size| (0..=250).cycle().take(size).collect::<Vec<u8>>();
    for (sequence, size) in (0..).zip(sizes) {
        let write = with_payload(sequence, bytes(size));
        version = Some(put(&*fixture.store.records, version.as_ref(), write).await);
        for store in [&fixture.another, &fixture.store] {
            let read = read(&*store.records, sequence).await.expect("an empty payload is a payload");
            assert!(read == bytes(size), "{size} bytes came back as {}", read.len());
        }
    }
    for (sequence, size) in (0..).zip(sizes) {
        let read = read(&*fixture.another.records, sequence).await;
        assert_eq!(read.map(|read| read.len()), Some(size), "later writes leave a payload alone");
    }
}

/// A payload that is stored ahead of its record is read by every process, before and after a record
/// names it, and is removed like any other. It can be stored twice.
pub async fn a_payload_stored_ahead_is_read_and_removed_like_any_other(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    for size in [0, 10, LARGE_BYTES] {
        for sequence in [1, 2] {
            let ahead = || Payload { name: payload(sequence), bytes: bodies::uniform(7, size).into() };
            store.store_payload(&job(), ahead()).await.expect("stores");
            another.store_payload(&job(), ahead()).await.expect("stores again");
        }
        assert_eq!(read(another, 1).await, Some(bodies::uniform(7, size)), "before a record names it");
        let first = put(store, None, record(b"names 1 and 2")).await;
        assert_eq!(read(another, 2).await, Some(bodies::uniform(7, size)));
        let obsolete = RecordWrite { obsolete: vec![payload(1)], ..record(b"names 2") };
        let second = put(store, Some(&first), obsolete).await;
        gone(another, 1).await;
        another.remove(&job(), &second, &[payload(2)]).await.expect("removes");
        gone(store, 2).await;
    }
}

/// Payloads that a write lists as obsolete are removed after it, and no others; listing a missing
/// one is harmless.
pub async fn obsolete_payloads_are_removed_and_no_others(fixture: &Fixture) {
    let store = &*fixture.store.records;
    let mut version = None;
    for (sequence, size) in (0..).zip([10, 300 * 1024, LARGE_BYTES, 10, 300 * 1024]) {
        let write = with_payload(sequence, bodies::uniform(1, size));
        version = Some(put(store, version.as_ref(), write).await);
    }
    let obsolete = vec![payload(0), payload(1), payload(2), payload(99)];
    let write = RecordWrite { obsolete, ..with_payload(5, b"new".to_vec()) };
    put(&*fixture.another.records, version.as_ref(), write).await;
    for sequence in 0..3 {
        gone(store, sequence).await;
    }
    for (sequence, size) in [(3, 10), (4, 300 * 1024), (5, 3)] {
        assert_eq!(read(store, sequence).await.map(|bytes| bytes.len()), Some(size), "payload {sequence}");
    }
}

/// A refused write changes neither the record nor the payloads that the record names, even if the
/// write lists them as obsolete.
pub async fn a_refused_write_keeps_the_payloads(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    for size in [10, 300 * 1024] {
        let first = put(store, None, with_payload(1, bodies::uniform(1, size))).await;
        let write = RecordWrite { obsolete: vec![], ..with_payload(2, bodies::uniform(2, size)) };
        let second = put(store, Some(&first), write).await;
        for expected in [None, Some(&first)] {
            let before = load(another).await;
            let obsolete = vec![payload(1), payload(2)];
            let late = RecordWrite { obsolete, ..with_payload(3, bodies::uniform(3, size)) };
            let error = another.put(&job(), expected, late).await.expect_err("another version is there");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert_eq!(load(store).await, before);
        }
        // Long enough for a removal in the background.
        sleep(PAUSE * 4).await;
        for sequence in [1, 2] {
            let bytes = read(store, sequence).await.expect("a payload that a record may name is there");
            assert_eq!(u64::from(bodies::mark_of(&bytes, size)), sequence);
        }
        store.remove(&job(), &second, &[payload(1), payload(2), payload(3)]).await.expect("removes");
        for sequence in 1..=3 {
            gone(another, sequence).await;
        }
    }
}

/// A removed record is gone for every process, with the payloads that the removal names, and no
/// others.
pub async fn a_removal_removes_the_record_and_the_payloads_it_names(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    let first = put(store, None, with_payload(1, bodies::uniform(1, 10))).await;
    let second = put(store, Some(&first), with_payload(2, bodies::uniform(2, LARGE_BYTES))).await;
    let third = put(store, Some(&second), with_payload(3, bodies::uniform(3, 10))).await;
    another.remove(&job(), &third, &[payload(1), payload(2), payload(99)]).await.expect("removes");
    assert_eq!(load(store).await, None);
    gone(store, 1).await;
    gone(store, 2).await;
    assert_eq!(read(store, 3).await, Some(bodies::uniform(3, 10)), "it was not named");
    put(store, None, record(b"a new life")).await;
}

/// A removal that expects any version but the present one is refused, and keeps the record and its
/// payloads.
pub async fn a_stale_removal_is_refused_and_keeps_everything(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    let first = put(store, None, with_payload(1, b"one".to_vec())).await;
    put(another, Some(&first), with_payload(2, bodies::uniform(2, 300 * 1024))).await;
    for store in [store, another] {
        keeps(store, &first, &[payload(1), payload(2)]).await;
    }
    sleep(PAUSE * 4).await;
    assert_eq!(read(store, 1).await.as_deref(), Some(&b"one"[..]));
    assert!(read(store, 2).await.is_some());
}

/// A removal where there is no record is a conflict.
pub async fn a_removal_needs_a_record(fixture: &Fixture) {
    let store = &*fixture.store.records;
    let elsewhere = store.put(&id("another-job"), None, record(b"value")).await.expect("writes");
    keeps(store, &elsewhere, &[]).await;
    let version = put(store, None, with_payload(1, b"one".to_vec())).await;
    store.remove(&job(), &version, &[]).await.expect("removes");
    keeps(&*fixture.another.records, &version, &[payload(1)]).await;
    assert_eq!(read(store, 1).await.as_deref(), Some(&b"one"[..]), "a refused removal removed a payload");
}

/// A writer that missed a removal can't restore the record.
pub async fn a_write_after_a_removal_that_it_did_not_see_is_refused(fixture: &Fixture) {
    let version = put(&*fixture.store.records, None, record(b"value")).await;
    fixture.another.records.remove(&job(), &version, &[]).await.expect("removes");
    refused(&*fixture.store.records, Some(&version)).await;
    assert_eq!(load(&*fixture.store.records).await, None);
}

/// No version is used twice for a job, so one from before a removal never matches after it.
pub async fn a_version_is_never_used_twice(fixture: &Fixture) {
    let store = &*fixture.store.records;
    let mut versions: Vec<Version> = Vec::new();
    for _ in 0..3 {
        let first = put(store, None, record(b"same")).await;
        let second = put(store, Some(&first), record(b"same")).await;
        for old in &versions {
            refused(store, Some(old)).await;
            keeps(store, old, &[]).await;
        }
        fixture.another.records.remove(&job(), &second, &[]).await.expect("removes");
        versions.extend([first, second]);
    }
    let distinct: HashSet<_> = versions.iter().collect();
    assert_eq!(distinct.len(), versions.len(), "a version was used twice: {versions:?}");
}

/// Job ids that share a prefix, or differ only in case, are different jobs with separate payloads.
pub async fn jobs_are_distinct(fixture: &Fixture) {
    let jobs = ["job", "job1", "job01", "job10", "job-", "job.0", "Job", "JOB", "jo", "job_", "job.0-1"];
    let store = &fixture.store.records;
    let mut versions = Vec::new();
    for job in jobs {
        let write = RecordWrite { record: job.into(), ..with_payload(1, job.into()) };
        let written = store.put(&id(job), None, write).await;
        versions.push(written.unwrap_or_else(|error| panic!("{job} is a new job: {error}")));
    }
    store.remove(&id(jobs[1]), &versions[1], &[payload(1)]).await.expect("removes");
    for job in jobs {
        let expected = (job != jobs[1]).then(|| job.as_bytes().to_vec());
        let stored = fixture.another.records.load(&id(job)).await.expect("loads");
        assert_eq!(stored.map(|stored| stored.bytes), expected, "{job}");
        if let Some(expected) = expected {
            let read = fixture.another.records.payload(&id(job), &payload(1)).await.expect("reads");
            assert_eq!(read.as_deref(), Some(&expected[..]), "{job}");
        }
    }
}

async fn listed_records(store: &dyn RecordStore) -> Vec<ListedRecord> {
    Page::all(|at| async move { store.page("", at.as_deref()).await }).await.expect("lists")
}

async fn listed_payloads(store: &dyn RecordStore) -> Vec<ListedPayload> {
    Page::all(|at| async move { store.payload_page(at.as_deref()).await }).await.expect("lists")
}

/// The parts of a list name every job with a record once, in order, with the time of the record's
/// last write.
pub async fn the_parts_of_a_list_name_every_record_once(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    assert_eq!(listed_records(another).await, []);
    let mut jobs: Vec<_> = (0..20).map(|number| id(&format!("job-{number}"))).collect();
    for job in jobs.iter().rev() {
        store.put(job, None, record(b"value")).await.expect("writes");
    }
    let gone = jobs.remove(7);
    let written = store.load(&gone).await.expect("loads").expect("is there");
    store.remove(&gone, &written.version, &[]).await.expect("removes");
    jobs.sort();
    let listed = listed_records(another).await;
    assert_eq!(listed.iter().map(|entry| entry.job.clone()).collect::<Vec<_>>(), jobs);
    for ListedRecord { job, modified_unix_ms, note } in listed {
        let stored = store.load(&job).await.expect("loads").expect("is there");
        assert_eq!((modified_unix_ms, note), (stored.modified_unix_ms, String::new()), "{job}");
    }
}

/// A list names the records of jobs whose ids begin with the prefix, with the note of the last write.
pub async fn a_list_has_the_notes_of_the_records_with_a_prefix(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    let longest = "\u{e4}\u{1f600}\n\0\"".repeat(NOTE_BYTES_MAX / 9);
    let mut notes = Vec::new();
    for (number, job) in ["a.1", "a.2", "a.3", "a", "A.1", "a-1", "ab.1", "b"].into_iter().enumerate() {
        let note = [longest.clone(), " {\"a\": 1} ".to_owned(), String::new()][number % 3].clone();
        let first = store.put(&id(job), None, RecordWrite { note: note.clone(), ..record(b"1") }).await;
        let version = first.expect("writes");
        notes.push((job, note));
        if number == 1 {
            // Another write replaces the note, also by none.
            let version = store.put(&id(job), Some(&version), record(b"2")).await.expect("writes");
            "second".clone_into(&mut notes[number].1);
            let write = RecordWrite { note: notes[number].1.clone(), ..record(b"3") };
            assert_eq!(listed_notes(another, "a.2").await, [("a.2".to_owned(), String::new())]);
            store.put(&id(job), Some(&version), write).await.expect("writes");
        }
    }
    for prefix in ["", "a.", "a", "a.1", "A", "b", "c"] {
        let mut expected: Vec<_> = notes.iter().filter(|(job, _)| job.starts_with(prefix)).collect();
        expected.sort_by_key(|(job, _)| id(job));
        let expected: Vec<_> =
            expected.into_iter().map(|(job, note)| ((*job).to_owned(), note.clone())).collect();
        assert_eq!(listed_notes(another, prefix).await, expected, "{prefix:?}");
    }
}

async fn listed_notes(store: &dyn RecordStore, prefix: &str) -> Vec<(String, String)> {
    let listed = Page::all(|at| async move { store.page(prefix, at.as_deref()).await }).await;
    listed.expect("lists").into_iter().map(|entry| (entry.job.to_string(), entry.note)).collect()
}

/// The parts of a list name every payload once, those of one job in sequence, with its length and
/// the time of its write, whether a record names it or not.
pub async fn the_parts_of_a_list_name_every_payload_once(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    assert_eq!(listed_payloads(another).await, []);
    let before = unix_millis();
    let jobs: Vec<_> = ["a", "A", "a-1", "b"].map(id).into();
    let mut expected = Vec::new();
    for (length, job) in jobs.iter().enumerate() {
        for number in 1..=6 {
            let bytes = bodies::uniform(1, length * 200 * 1024 + 1);
            expected.push((job.clone(), payload(number), bytes.len() as u64));
            store
                .store_payload(job, Payload { name: payload(number), bytes: bytes.into() })
                .await
                .expect("stores");
        }
    }
    let put = RecordWrite { obsolete: vec![payload(1)], ..with_payload(7, b"seven".to_vec()) };
    store.put(&jobs[0], None, put).await.expect("writes");
    expected.push((jobs[0].clone(), payload(7), 5));
    let limit = unix_millis() + PATIENCE_MS;
    let listed = loop {
        let listed = listed_payloads(another).await;
        // An obsolete payload may be removed a little later.
        if listed.len() < expected.len() || unix_millis() > limit {
            break listed;
        }
        sleep(PAUSE).await;
    };
    expected.retain(|(job, name, _)| (job, name) != (&jobs[0], &payload(1)));
    expected.sort();
    let order: Vec<_> = listed.iter().map(|entry| entry.job.clone()).collect();
    assert!(order.chunk_by(PartialEq::eq).count() == jobs.len(), "a job's payloads are apart: {order:?}");
    for entry in &listed {
        let age = unix_millis() - entry.modified_unix_ms;
        assert!((-SKEW_MS..=SKEW_MS + unix_millis() - before).contains(&age), "{entry:?}");
    }
    let mut found: Vec<_> = listed.into_iter().map(|entry| (entry.job, entry.name, entry.bytes)).collect();
    found.sort();
    assert_eq!(found, expected);
}

/// Removed payloads are gone, the others stay, and those that are gone may be removed again.
pub async fn payloads_are_removed_by_name(fixture: &Fixture) {
    let (store, another) = (&*fixture.store.records, &*fixture.another.records);
    let job = job();
    for number in 1..=3 {
        let bytes = bodies::uniform(1, 150 * 1024 * usize::try_from(number).expect("small"));
        store
            .store_payload(&job, Payload { name: payload(number), bytes: bytes.into() })
            .await
            .expect("stores");
    }
    for _ in 0..2 {
        another.remove_payloads(&job, &[payload(1), payload(3), payload(9)]).await.expect("removes");
    }
    another.remove_payloads(&id("another-job"), &[payload(2)]).await.expect("removes nothing");
    assert_eq!(read(store, 1).await, None);
    assert!(read(store, 2).await.is_some(), "another payload was removed");
    assert_eq!(read(store, 3).await, None);
    assert_eq!(listed_payloads(store).await.len(), 1);
}

/// One test per promise of a record store; see [`conformance`](crate::conformance).
#[macro_export]
macro_rules! records_conformance {
    ($fixture:ident $(, $($attribute:tt)*)?) => {
        $crate::__conformance! {
            records, records_conformance, $fixture, ($($($attribute)*)?),
            a_job_that_was_never_written_has_nothing,
            a_record_of_one_process_is_loaded_by_every_process_byte_for_byte,
            a_record_of_the_largest_size_is_taken,
            a_record_has_the_time_of_its_last_write,
            a_first_write_does_not_replace,
            a_stale_write_is_refused_and_changes_nothing,
            a_write_that_expects_a_record_needs_one,
            writing_the_same_bytes_changes_the_version,
            of_concurrent_writes_exactly_one_is_taken,
            of_a_write_and_a_removal_at_once_exactly_one_is_taken,
            no_update_is_lost_between_concurrent_writers,
            a_load_during_writes_never_sees_a_mixture,
            a_payload_is_read_by_every_process_byte_for_byte,
            a_payload_stored_ahead_is_read_and_removed_like_any_other,
            obsolete_payloads_are_removed_and_no_others,
            a_refused_write_keeps_the_payloads,
            a_removal_removes_the_record_and_the_payloads_it_names,
            a_stale_removal_is_refused_and_keeps_everything,
            a_removal_needs_a_record,
            a_write_after_a_removal_that_it_did_not_see_is_refused,
            a_version_is_never_used_twice,
            jobs_are_distinct,
            the_parts_of_a_list_name_every_record_once,
            a_list_has_the_notes_of_the_records_with_a_prefix,
            the_parts_of_a_list_name_every_payload_once,
            payloads_are_removed_by_name,
        }
    };
}
