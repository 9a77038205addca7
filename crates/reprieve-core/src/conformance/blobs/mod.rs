//! The promises of a [`BlobStore`].

mod parts;
mod ranges;

pub use parts::*;
pub use ranges::*;

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Fixture, bodies};
use crate::clock::unix_millis;
use crate::error::ErrorKind;
use crate::ids::{BlobName, Fence, JobId, Writer};
use crate::ports::{BlobStore, ListedBlob, Page, Version};

/// Larger than a page, a row or a packet.
const LARGE_BYTES: usize = 1024 * 1024 + 1;

/// How far the clocks of a store and of this machine may differ, in milliseconds.
const SKEW_MS: i64 = 60_000;

fn name(name: &str) -> BlobName {
    BlobName::parse(name).expect("the suite's names are valid")
}

fn owner(job: &str, fence: Fence) -> Writer {
    Writer { job: JobId::parse(job).expect("the suite's job ids are valid"), fence }
}

/// Delivery number `dequeue_count` of `job`.
fn delivery(job: &str, dequeue_count: u32) -> Writer {
    owner(job, Fence::new(0, dequeue_count))
}

async fn put(blobs: &dyn BlobStore, name: &BlobName, bytes: &[u8], writer: Option<&Writer>) {
    blobs.put(name, bytes.to_vec(), writer).await.expect("puts");
}

async fn get(blobs: &dyn BlobStore, name: &BlobName) -> Option<Vec<u8>> {
    blobs.get(name).await.expect("gets")
}

/// Asserts that a put by `writer` is superseded and changes nothing.
async fn superseded(blobs: &dyn BlobStore, name: &BlobName, writer: &Writer) {
    let before = get(blobs, name).await;
    let error = blobs.put(name, b"late".to_vec(), Some(writer)).await.expect_err("its fence is too low");
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
    assert_eq!(get(blobs, name).await, before, "a superseded put changed the blob");
}

/// A blob that one process put is read by every process, with any bytes, with or without an owner.
pub async fn every_process_gets_a_blob_byte_for_byte(fixture: &Fixture) {
    let (input, output) = (name("in"), name("out"));
    for bytes in bodies::awkward(LARGE_BYTES) {
        put(&*fixture.store.blobs, &input, &bytes, None).await;
        put(&*fixture.store.blobs, &output, &bytes, Some(&delivery("job", 1))).await;
        for store in [&fixture.store, &fixture.another] {
            for name in [&input, &output] {
                let got = get(&*store.blobs, name).await.expect("an empty blob is a blob");
                assert!(got == bytes, "{name}: {} bytes came back as {}", bytes.len(), got.len());
            }
        }
    }
}

/// There is no blob where none was put, or where it was deleted; deleting it again succeeds.
pub async fn a_missing_blob_is_none(fixture: &Fixture) {
    let blobs = &*fixture.store.blobs;
    let blob = name("a/b");
    assert_eq!(get(blobs, &blob).await, None);
    blobs.delete(&blob, None).await.expect("deletes what was never there");
    put(blobs, &blob, b"bytes", Some(&delivery("job", 1))).await;
    fixture.another.blobs.delete(&blob, None).await.expect("deletes");
    assert_eq!(get(blobs, &blob).await, None);
    assert_eq!(blobs.list("").await.expect("lists"), []);
    blobs.delete(&blob, None).await.expect("deletes what is gone");
    put(blobs, &blob, b"again", Some(&delivery("job", 1))).await;
    assert_eq!(get(blobs, &blob).await.as_deref(), Some(&b"again"[..]));
}

/// The same owner, and a later owner of the same job, replace the blob.
pub async fn the_same_or_a_later_owner_replaces(fixture: &Fixture) {
    let blob = name("out");
    let owners = [delivery("job", 1), delivery("job", 1), delivery("job", 2), delivery("job", 9)];
    let redriven = owner("job", Fence::new(1, 1));
    for (n, owner) in (0_u8..).zip(owners.iter().chain([&redriven, &redriven])) {
        put(&*fixture.another.blobs, &blob, &[n], Some(owner)).await;
        assert_eq!(get(&*fixture.store.blobs, &blob).await, Some(vec![n]), "put number {n}");
    }
}

/// An owner is refused, in any process, after a later owner of the same job has written the blob.
pub async fn an_earlier_owner_is_superseded_and_changes_nothing(fixture: &Fixture) {
    let blob = name("out");
    put(&*fixture.another.blobs, &blob, b"second", Some(&delivery("job", 2))).await;
    superseded(&*fixture.store.blobs, &blob, &delivery("job", 1)).await;
    superseded(&*fixture.another.blobs, &blob, &delivery("job", 1)).await;

    // 10 is after 9 as a number, and before it as text.
    put(&*fixture.another.blobs, &blob, b"tenth", Some(&delivery("job", 10))).await;
    superseded(&*fixture.store.blobs, &blob, &delivery("job", 9)).await;

    put(&*fixture.another.blobs, &blob, b"redriven", Some(&owner("job", Fence::new(1, 1)))).await;
    superseded(&*fixture.store.blobs, &blob, &owner("job", Fence::new(0, u32::MAX))).await;
}

/// An earlier owner is refused only for names that the later owner has written.
pub async fn fences_are_kept_per_name(fixture: &Fixture) {
    let blobs = &*fixture.store.blobs;
    put(blobs, &name("out/a"), b"second", Some(&delivery("job", 2))).await;
    put(blobs, &name("out/b"), b"first", Some(&delivery("job", 1))).await;
    assert_eq!(get(blobs, &name("out/b")).await.as_deref(), Some(&b"first"[..]));
    superseded(blobs, &name("out/a"), &delivery("job", 1)).await;
}

/// Fences of different jobs are not compared: the later put replaces, even under a smaller fence.
pub async fn another_job_replaces_whatever_its_fence(fixture: &Fixture) {
    let blob = name("out");
    let puts = [delivery("one", 7), delivery("ONE", 5), delivery("one.2", 4), delivery("two", 1)];
    for (n, owner) in (0_u8..).zip(&puts) {
        put(&*fixture.store.blobs, &blob, &[n], Some(owner)).await;
        assert_eq!(get(&*fixture.another.blobs, &blob).await, Some(vec![n]), "put number {n}");
    }
}

/// A producer's put is not fenced: it replaces any blob, and an owner's put replaces it.
pub async fn a_put_without_an_owner_is_not_fenced(fixture: &Fixture) {
    let blob = name("in");
    let owner = delivery("job", 5);
    let puts = [None, None, Some(&owner), None, Some(&owner)];
    for (n, writer) in (0_u8..).zip(puts) {
        put(&*fixture.store.blobs, &blob, &[n], writer).await;
        assert_eq!(get(&*fixture.another.blobs, &blob).await, Some(vec![n]), "put number {n}");
    }
}

/// The blob ends as the latest owner's, however the puts of a job's owners overlap.
pub async fn the_latest_of_concurrent_owners_wins(fixture: &Fixture) {
    const OWNERS: u32 = 16;
    // Each round starts the puts in another order: ascending, descending, and two in between.
    for (round, step) in [1, OWNERS - 1, 5, 11].into_iter().enumerate() {
        let blob = name(&format!("out/{round}"));
        let mut puts = JoinSet::new();
        for owner in (1..=OWNERS).map(|n| n * step % OWNERS + 1) {
            let store = if owner % 2 == 0 { &fixture.store } else { &fixture.another };
            let (blobs, blob) = (Arc::clone(&store.blobs), blob.clone());
            puts.spawn(async move {
                let bytes = owner.to_string().into_bytes();
                if let Err(error) = blobs.put(&blob, bytes, Some(&delivery("job", owner))).await {
                    assert_eq!(error.kind(), ErrorKind::Superseded, "owner {owner}: {error}");
                    assert_ne!(owner, OWNERS, "the latest owner was refused");
                }
            });
        }
        puts.join_all().await;
        let kept = get(&*fixture.store.blobs, &blob).await;
        assert_eq!(kept, Some(OWNERS.to_string().into_bytes()), "round {round}");
    }
}

/// A get during puts returns one put or another, whole, and never nothing.
pub async fn a_get_during_puts_never_sees_a_mixture(fixture: &Fixture) {
    const PUTS: u8 = 12;
    let blob = name("out/large.bin");
    let writer = delivery("job", 1);
    put(&*fixture.store.blobs, &blob, &bodies::uniform(0, LARGE_BYTES), Some(&writer)).await;
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let (blobs, blob) = (Arc::clone(&fixture.another.blobs), blob.clone());
        readers.spawn(async move {
            let mut last = 0;
            while last < PUTS {
                let bytes = get(&*blobs, &blob).await.expect("a blob that is being replaced is there");
                let mark = bodies::mark_of(&bytes, LARGE_BYTES);
                assert!(mark >= last, "put {mark} was seen after put {last}");
                last = mark;
                tokio::task::yield_now().await;
            }
        });
    }
    for mark in 1..=PUTS {
        put(&*fixture.store.blobs, &blob, &bodies::uniform(mark, LARGE_BYTES), Some(&writer)).await;
        tokio::task::yield_now().await;
    }
    readers.join_all().await;
}

/// Names that a path, a URL, a pattern or a careless comparison would confuse are distinct, and
/// every valid name is accepted.
pub async fn names_are_distinguished(fixture: &Fixture) {
    let long = ["x".repeat(240), "y".repeat(240), "z".repeat(240)].join("/");
    let names = [
        "a",
        "a/b",
        "a/b/c",
        "ab",
        "A",
        "A/b",
        "a/B",
        "a b",
        "a+b",
        "a%20b",
        "a%2Fb",
        "a?b",
        "a#b",
        "a&b=c",
        "a;b",
        "a'b",
        "a\"b",
        "a*b",
        "a_b",
        "a-b",
        "a.b",
        " a",
        "..a",
        ".a",
        "~a",
        "$a",
        "été/猫.png",
        "ÉTÉ/猫.png",
        "été/犬.png",
        "🐈",
        "CON",
        "nul.txt",
        &long,
    ];
    for text in names {
        put(&*fixture.store.blobs, &name(text), text.as_bytes(), None).await;
    }
    fixture.store.blobs.delete(&name("a/b"), None).await.expect("deletes");
    for text in names {
        let got = get(&*fixture.another.blobs, &name(text)).await;
        let expected = (text != "a/b").then(|| text.as_bytes().to_vec());
        assert_eq!(got, expected, "{text:?}");
    }
}

/// A list contains the names with the prefix, taken literally and whole, in order; `""` lists all.
pub async fn a_list_has_the_names_with_the_prefix_in_order(fixture: &Fixture) {
    let blobs = &*fixture.store.blobs;
    let names =
        ["out/2", "out/10", "out/1", "Out/1", "output", "o%t", "o_t", "ou", "out/été", "in/out/1", "~"];
    for text in names {
        put(blobs, &name(text), b"", None).await;
    }
    put(blobs, &name("out/gone"), b"", None).await;
    blobs.delete(&name("out/gone"), None).await.expect("deletes");

    for prefix in
        ["", "o", "ou", "out", "out/", "out/1", "out/10", "O", "o%", "o_", "in/", "ut", "/", "out/é", "x"]
    {
        let mut expected: Vec<_> =
            names.iter().filter(|text| text.starts_with(prefix)).map(|text| name(text)).collect();
        expected.sort();
        let listed = fixture.another.blobs.list(prefix).await.expect("lists");
        assert_eq!(listed, expected, "prefix {prefix:?}");
    }
}

/// A blob that one process creates is read by every process, with any bytes.
pub async fn a_created_blob_is_read_by_every_process_byte_for_byte(fixture: &Fixture) {
    for (n, bytes) in bodies::awkward(LARGE_BYTES).into_iter().enumerate() {
        let blob = name(&format!("results/{n}"));
        let created = fixture.store.blobs.create(&blob, bytes.clone(), &delivery("job", 1)).await;
        assert!(created.expect("creates"), "there was none");
        for store in [&fixture.another, &fixture.store] {
            let got = get(&*store.blobs, &blob).await.expect("an empty blob is a blob");
            assert!(got == bytes, "{} bytes came back as {}", bytes.len(), got.len());
        }
    }
}

/// A create leaves an existing blob of any writer unchanged, and returns false.
pub async fn a_create_leaves_alone_what_is_there(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    for (n, writer) in [None, Some(delivery("job", 1)), Some(delivery("job", 9))].iter().enumerate() {
        let blob = name(&format!("out/{n}"));
        put(blobs, &blob, b"first", writer.as_ref()).await;
        for creator in [delivery("job", 1), delivery("job", 5), delivery("other", 1)] {
            assert!(!another.create(&blob, b"late".to_vec(), &creator).await.expect("looks"));
            assert_eq!(get(blobs, &blob).await.as_deref(), Some(&b"first"[..]));
        }
    }
    let blob = name("out/deleted");
    put(blobs, &blob, b"first", Some(&delivery("job", 1))).await;
    another.delete(&blob, None).await.expect("deletes");
    assert!(blobs.create(&blob, b"again".to_vec(), &delivery("job", 1)).await.expect("creates"));
    assert_eq!(get(another, &blob).await.as_deref(), Some(&b"again"[..]));
}

/// A created blob has its creator's fence: a later owner's put replaces it, an earlier owner's does
/// not.
pub async fn a_created_blob_is_fenced(fixture: &Fixture) {
    let (blob, blobs) = (name("out"), &*fixture.store.blobs);
    assert!(blobs.create(&blob, b"second".to_vec(), &delivery("job", 2)).await.expect("creates"));
    superseded(&*fixture.another.blobs, &blob, &delivery("job", 1)).await;
    put(&*fixture.another.blobs, &blob, b"third", Some(&delivery("job", 3))).await;
    assert_eq!(get(blobs, &blob).await.as_deref(), Some(&b"third"[..]));
}

/// Of 16 concurrent creates from two processes, one succeeds, and its bytes are stored.
pub async fn of_concurrent_creates_exactly_one_is_taken(fixture: &Fixture) {
    for round in 0..4 {
        let blob = name(&format!("results/{round}"));
        let mut creates = JoinSet::new();
        for creator in 1..=16 {
            let store = if creator % 2 == 0 { &fixture.store } else { &fixture.another };
            let (blobs, blob) = (Arc::clone(&store.blobs), blob.clone());
            creates.spawn(async move {
                let bytes = creator.to_string().into_bytes();
                let taken = blobs.create(&blob, bytes.clone(), &delivery("job", creator)).await;
                taken.expect("creates or finds").then_some(bytes)
            });
        }
        let taken: Vec<_> = creates.join_all().await.into_iter().flatten().collect();
        assert_eq!(taken.len(), 1, "how many of 16 creates were taken, in round {round}");
        assert_eq!(get(&*fixture.another.blobs, &blob).await.as_ref(), taken.first());
    }
}

/// An owner whose fence is too low does not delete a blob, and any other owner, and whoever is none,
/// does.
pub async fn a_delete_is_fenced_as_a_put_is(fixture: &Fixture) {
    let (blob, blobs, another) = (name("out/a"), &*fixture.store.blobs, &*fixture.another.blobs);
    another.delete(&blob, Some(&delivery("job", 1))).await.expect("deletes what was never there");
    put(another, &blob, b"ninth", Some(&delivery("job", 9))).await;
    for late in [delivery("job", 1), delivery("job", 8)] {
        let error = blobs.delete(&blob, Some(&late)).await.expect_err("its fence is too low");
        assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
        assert_eq!(get(another, &blob).await.as_deref(), Some(&b"ninth"[..]), "it was deleted");
    }
    let redriven = owner("job", Fence::new(1, 1));
    let deleters = [
        Some(delivery("job", 9)),
        Some(delivery("job", 10)),
        Some(redriven),
        Some(delivery("other", 1)),
        None,
    ];
    for (n, deleter) in deleters.iter().enumerate() {
        let blob = name(&format!("out/{n}"));
        put(another, &blob, b"x", Some(&delivery("job", 9))).await;
        blobs.delete(&blob, deleter.as_ref()).await.expect("deletes");
        assert_eq!(get(another, &blob).await, None, "{deleter:?}");
        blobs.delete(&blob, deleter.as_ref()).await.expect("deletes what is gone");
    }
    put(blobs, &name("in"), b"x", None).await;
    another.delete(&name("in"), Some(&delivery("job", 1))).await.expect("deletes a producer's");
    assert_eq!(get(blobs, &name("in")).await, None);
}

async fn listed(blobs: &dyn BlobStore, prefix: &str) -> Vec<ListedBlob> {
    Page::all(|at| async move { blobs.page(prefix, at.as_deref()).await }).await.expect("lists")
}

/// The parts of a list name every blob with the prefix once, in order, with its length and the time
/// of its last write.
pub async fn the_parts_of_a_list_name_every_blob_once(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    assert_eq!(listed(another, "").await, []);
    let before = unix_millis();
    let mut expected: Vec<_> = (0..20).map(|number| (name(&format!("out/{number}")), number)).collect();
    expected.push((name("out/large"), LARGE_BYTES));
    expected.sort();
    for (blob, length) in expected.iter().rev() {
        put(blobs, blob, &vec![b'x'; *length], Some(&delivery("job", 1))).await;
    }
    put(blobs, &name("out"), b"no part of it", None).await;
    put(blobs, &name("outer/1"), b"no part of it", None).await;
    put(blobs, &name("out/gone"), b"gone", None).await;
    blobs.delete(&name("out/gone"), None).await.expect("deletes");
    let found = listed(another, "out/").await;
    let short = |entry: &ListedBlob| (entry.name.clone(), usize::try_from(entry.bytes).expect("short"));
    assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
    for entry in found {
        let age = unix_millis() - entry.modified_unix_ms;
        assert!((-SKEW_MS..=SKEW_MS + unix_millis() - before).contains(&age), "{entry:?}");
    }
    assert_eq!(listed(another, "").await.len(), expected.len() + 2);
    assert_eq!(listed(another, "nothing/").await, []);
}

/// A blob is deleted if it has the version that is named, and only then.
pub async fn a_version_is_deleted_only_while_it_is_the_present_one(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    let (blob, writer) = (name("out/a"), delivery("job", 1));
    let version = async || listed(blobs, "out/").await.pop().expect("is there").version;
    put(blobs, &blob, b"one", None).await;
    let one = version().await;
    put(another, &blob, b"one", Some(&writer)).await;
    let two = version().await;
    assert!(one != two, "the same bytes were written twice, and have one version");
    assert!(!another.delete_version(&blob, &one).await.expect("answers"), "an old version was deleted");
    assert_eq!(get(blobs, &blob).await.as_deref(), Some(&b"one"[..]));
    assert!(another.delete_version(&blob, &two).await.expect("deletes"));
    assert_eq!(get(blobs, &blob).await, None);
    assert!(!another.delete_version(&blob, &two).await.expect("answers"), "it was gone");
    assert!(another.create(&blob, b"one".to_vec(), &writer).await.expect("creates"));
    assert!(!blobs.delete_version(&blob, &two).await.expect("answers"), "a version was used twice");
    assert!(!blobs.delete_version(&blob, &Version::new("another store's")).await.expect("answers"));
    assert_eq!(get(blobs, &blob).await.as_deref(), Some(&b"one"[..]));
}

/// A blob exists, for every process, from its put or create until it is deleted.
pub async fn a_blob_exists_until_it_is_deleted(fixture: &Fixture) {
    let (blobs, another) = (&*fixture.store.blobs, &*fixture.another.blobs);
    let (one, other) = (name("a/b"), name("a"));
    for blob in [&one, &other] {
        assert!(!another.exists(blob).await.expect("looks"));
    }
    put(blobs, &one, b"", None).await;
    assert!(another.exists(&one).await.expect("looks"));
    assert!(!another.exists(&other).await.expect("looks"), "a part of a name is no blob");
    blobs.create(&other, b"x".to_vec(), &delivery("job", 1)).await.expect("creates");
    assert!(another.exists(&other).await.expect("looks"));
    blobs.delete(&one, None).await.expect("deletes");
    assert!(!another.exists(&one).await.expect("looks"));
}

/// One test per promise of a blob store; see [`conformance`](crate::conformance).
#[macro_export]
macro_rules! blobs_conformance {
    ($fixture:ident $(, $($attribute:tt)*)?) => {
        $crate::__conformance! {
            blobs, blobs_conformance, $fixture, ($($($attribute)*)?),
            every_process_gets_a_blob_byte_for_byte,
            a_missing_blob_is_none,
            the_same_or_a_later_owner_replaces,
            an_earlier_owner_is_superseded_and_changes_nothing,
            fences_are_kept_per_name,
            another_job_replaces_whatever_its_fence,
            a_put_without_an_owner_is_not_fenced,
            the_latest_of_concurrent_owners_wins,
            a_get_during_puts_never_sees_a_mixture,
            names_are_distinguished,
            a_list_has_the_names_with_the_prefix_in_order,
            a_created_blob_is_read_by_every_process_byte_for_byte,
            a_create_leaves_alone_what_is_there,
            a_created_blob_is_fenced,
            of_concurrent_creates_exactly_one_is_taken,
            a_blob_exists_until_it_is_deleted,
            the_parts_of_a_list_name_every_blob_once,
            a_version_is_deleted_only_while_it_is_the_present_one,
            a_delete_is_fenced_as_a_put_is,
            a_range_is_that_part_of_the_blob,
            a_range_of_a_version_is_never_of_another,
            the_ranges_of_a_blob_that_is_being_replaced_never_mix,
            parts_are_invisible_until_they_are_published_whole,
            parts_that_are_not_published_change_nothing,
            a_blob_with_missing_parts_is_not_published,
            a_publication_is_fenced_as_a_put_is,
            a_publication_may_be_repeated,
            of_writes_in_parts_at_the_same_time_one_is_seen_whole,
        }
    };
}
