//! Lists in parts, with odd names and rows, and with more entries than one part.

use std::collections::BTreeSet;

use reprieve_core::BlobName;
use reprieve_core::ports::{Page, Payload, RecordWrite};
use reprieve_core::retention::{Cleaner, Keep, Position};

use crate::bench::{Bench, job, payload};

/// Odd names, and numbers of entries around the length of a part (1,000).
#[tokio::test]
async fn every_blob_with_the_prefix_is_listed_once_and_no_other() {
    for count in [999, 1_000, 1_001, 2_000] {
        let bench = Bench::new();
        let store = bench.open().await;
        let odd =
            ["é", "Z", "z", "日本", "\u{10FFFF}", "\u{FFFD}", "%41", "_", "~", " ", "a/b", "'", "\u{E000}"];
        let mut expected = BTreeSet::new();
        for number in 0..count {
            let name = format!("results/{}{number}", odd[number % odd.len()]);
            store.blobs.put(&BlobName::parse(&name).unwrap(), vec![1], None).await.unwrap();
            expected.insert(name);
        }
        for beside in
            ["results", "results.x", "results0", "Results/x", "result/x", "results-of-mine/x", "a", "é"]
        {
            store.blobs.put(&BlobName::parse(beside).unwrap(), vec![1], None).await.unwrap();
        }
        let blobs = &store.blobs;
        let listed = Page::all(|at| async move { blobs.page("results/", at.as_deref()).await });
        let listed = listed.await.unwrap();
        assert_eq!(listed.len(), count);
        let listed = listed.into_iter().map(|entry| entry.name.to_string());
        assert_eq!(listed.collect::<BTreeSet<_>>(), expected);
    }
}

/// Jobs whose ids sort oddly, each with payloads around a part's end, one of them named by nothing.
#[tokio::test]
async fn payloads_of_jobs_with_odd_ids_are_listed_once_and_removed_when_old() {
    let bench = Bench::new();
    let store = bench.open().await;
    let ids = ["a", "a-", "a.", "a0", "A", "a_b", "a.b-c", "Z9", "0", "aa", "a-a"];
    let mut expected = BTreeSet::new();
    for (number, id) in ids.iter().cycle().take(2_500).enumerate() {
        let name = payload(&format!("{number}.m.1-{number}"));
        let stored = Payload { name: name.clone(), bytes: vec![7; 10].into() };
        store.records.store_payload(&job(id), stored).await.unwrap();
        expected.insert((job(id).to_string(), name.to_string()));
    }
    for id in ids {
        let write = RecordWrite { record: b"no record".to_vec(), ..RecordWrite::default() };
        if id == "a." {
            store.records.put(&job(id), None, write).await.unwrap();
        }
    }
    let records = &store.records;
    let listed = Page::all(|at| async move { records.payload_page(at.as_deref()).await });
    let listed = listed.await.unwrap();
    assert_eq!(listed.len(), 2_500);
    let listed = listed.into_iter().map(|it| (it.job.to_string(), it.name.to_string()));
    assert_eq!(listed.collect::<BTreeSet<_>>(), expected);
    bench.conn().execute("UPDATE payload SET at = at - 9 * 86400000", []).unwrap();
    let mut removed = [0, 0];
    for (dry, removed) in [true, false].into_iter().zip(&mut removed) {
        let cleaner = Cleaner::new(store.clone(), Keep::default()).dry_run(dry);
        let mut position = Some(Position::default());
        while let Some(at) = position {
            let part = cleaner.clean(&at).await.unwrap();
            *removed += part.removed.payloads;
            position = part.next;
        }
    }
    let of_damaged = expected.iter().filter(|(job, _)| job == "a.").count() as u64;
    assert_eq!(removed, [2_500 - of_damaged; 2], "a damaged record may name any");
}

/// A name that is no job id was not written by Reprieve. It must not keep everything else of the store
/// for ever.
#[tokio::test]
async fn a_row_of_another_program_does_not_stop_the_cleaning() {
    let bench = Bench::new();
    let store = bench.open().await;
    store.blobs.put(&BlobName::parse("results/old.json").unwrap(), vec![1], None).await.unwrap();
    let odd = Payload { name: payload("0.m.1-1"), bytes: vec![7; 10].into() };
    store.records.store_payload(&job("a"), odd).await.unwrap();
    let conn = bench.conn();
    conn.execute("UPDATE payload SET job = 'a b'", []).unwrap();
    conn.execute("UPDATE blob SET at = at - 31 * 86400000", []).unwrap();
    let cleaner = Cleaner::new(store.clone(), Keep::default());
    let (mut position, mut removed, mut error) = (Some(Position::default()), 0, None);
    while let Some(at) = position {
        match cleaner.clean(&at).await {
            Ok(part) => (removed, position) = (removed + part.removed.results, part.next),
            Err(failed) => (position, error) = (None, Some(failed.to_string())),
        }
    }
    assert_eq!((removed, error), (1, None), "the result is of no job that has an odd row");
}
