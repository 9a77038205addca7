//! Blobs: rows when they are small, files when they are large.

use reprieve_core::ports::Store;
use reprieve_core::{ErrorKind, Fence, Writer};

use crate::bench::{Bench, blob, eventually, job};

const SMALL: usize = 100;
/// The largest row, and one byte more.
const ROW_MAX: usize = 64 << 10;
const LARGE: usize = ROW_MAX + 1;

fn writer(id: &str, dequeue_count: u32) -> Writer {
    Writer { job: job(id), fence: Fence::new(0, dequeue_count) }
}

async fn put(store: &Store, name: &str, bytes: Vec<u8>) {
    store.blobs.put(&blob(name), bytes, None).await.unwrap();
}

async fn get(store: &Store, name: &str) -> Option<Vec<u8>> {
    store.blobs.get(&blob(name)).await.unwrap()
}

#[tokio::test]
async fn small_blobs_are_rows_and_large_ones_files() {
    let bench = Bench::new();
    let store = bench.open().await;
    for (at, (length, files)) in
        [(0, 0), (1, 0), (ROW_MAX, 0), (LARGE, 1), (1 << 20, 2)].into_iter().enumerate()
    {
        let name = format!("out/{at}");
        put(&store, &name, vec![7; length]).await;
        assert_eq!(bench.files("blobs").len(), files, "after {length} bytes");
        assert!(get(&store, &name).await == Some(vec![7; length]));
    }
}

#[tokio::test]
async fn a_blob_changes_between_row_and_file_and_leaves_no_file() {
    let bench = Bench::new();
    let (store, another) = (bench.open().await, bench.open().await);
    let lengths = [SMALL, LARGE, 2 * LARGE, SMALL, 0, LARGE, SMALL];
    for (mark, length) in (1..).zip(lengths) {
        put(&store, "out/a", vec![mark; length]).await;
        assert!(get(&another, "out/a").await == Some(vec![mark; length]), "put number {mark}");
        assert!(another.blobs.exists(&blob("out/a")).await.unwrap());
        assert_eq!(another.blobs.list("").await.unwrap(), [blob("out/a")]);
        assert_eq!(bench.files("blobs").len(), usize::from(length > ROW_MAX), "put number {mark}");
    }
    for length in [SMALL, LARGE] {
        put(&store, "out/a", vec![1; length]).await;
        another.blobs.delete(&blob("out/a"), None).await.unwrap();
        assert_eq!((get(&store, "out/a").await, bench.files("blobs").len()), (None, 0));
    }
}

#[tokio::test]
async fn a_refused_write_of_a_large_blob_leaves_no_file() {
    let bench = Bench::new();
    let store = bench.open().await;
    let name = blob("out/a");
    store.blobs.put(&name, vec![2; SMALL], Some(&writer("a", 2))).await.unwrap();
    let error = store.blobs.put(&name, vec![1; LARGE], Some(&writer("a", 1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded);
    assert!(!store.blobs.create(&name, vec![1; LARGE], &writer("a", 3)).await.unwrap());
    assert!(bench.files("blobs").is_empty());
    assert_eq!(get(&store, "out/a").await, Some(vec![2; SMALL]));
}

/// A person may remove a file. The blob can then be written again.
#[tokio::test]
async fn a_blob_without_its_file_does_not_exist_and_can_be_created() {
    let bench = Bench::new();
    let store = bench.open().await;
    let name = blob("out/a");
    let create = async |bytes: Vec<u8>| store.blobs.create(&name, bytes, &writer("a", 1)).await.unwrap();
    put(&store, "out/b", vec![1; SMALL]).await;
    for length in [LARGE, SMALL] {
        store.blobs.delete(&name, None).await.unwrap();
        assert!(create(vec![1; LARGE]).await);
        std::fs::remove_file(&bench.files("blobs")[0]).unwrap();
        assert_eq!(get(&store, "out/a").await, None);
        assert!(!store.blobs.exists(&name).await.unwrap());
        assert_eq!(store.blobs.list("").await.unwrap(), [blob("out/b")]);
        assert!(create(vec![2; length]).await);
        assert!(!create(vec![3; length]).await);
        assert!(get(&store, "out/a").await == Some(vec![2; length]));
    }
}

#[tokio::test]
async fn a_blob_with_a_file_of_another_length_is_damaged() {
    let bench = Bench::new();
    let store = bench.open().await;
    put(&store, "out/a", vec![1; LARGE]).await;
    let file = bench.files("blobs").remove(0);
    for length in [0, 1, LARGE - 1, LARGE + 1] {
        std::fs::write(&file, vec![1; length]).unwrap();
        let error = store.blobs.get(&blob("out/a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("out/a is damaged"), "{error}");
    }
    put(&store, "out/a", vec![2; LARGE]).await;
    assert!(get(&store, "out/a").await == Some(vec![2; LARGE]), "and can be written again");
}

#[tokio::test]
async fn a_blob_with_a_row_of_another_length_is_damaged() {
    let bench = Bench::new();
    let store = bench.open().await;
    put(&store, "out/a", vec![1; SMALL]).await;
    bench.conn().execute("UPDATE blob SET data = x'010101'", []).unwrap();
    let error = store.blobs.get(&blob("out/a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let error = store.open_blob(&blob("out/a")).await.unwrap_err();
    assert!(error.to_string().contains("out/a is damaged: its row has 3 bytes"), "{error}");
}

/// It is there for every operation, and none can read it.
#[cfg(unix)]
#[tokio::test]
async fn a_blob_with_a_file_that_can_not_be_looked_at_is_there() {
    let bench = Bench::new();
    let store = bench.open().await;
    put(&store, "out/a", vec![1; LARGE]).await;
    let file = bench.files("blobs").remove(0);
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&file, &file).unwrap();
    assert!(store.blobs.exists(&blob("out/a")).await.unwrap());
    assert_eq!(store.blobs.list("").await.unwrap(), [blob("out/a")]);
    assert_eq!(store.blobs.page("", None).await.unwrap().entries.len(), 1);
    assert_eq!(store.blobs.get(&blob("out/a")).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(!store.blobs.create(&blob("out/a"), vec![2], &writer("j", 9)).await.unwrap());
    store.blobs.delete(&blob("out/a"), None).await.unwrap();
    assert!(!store.blobs.exists(&blob("out/a")).await.unwrap() && bench.files("blobs").is_empty());
}

#[tokio::test]
async fn readers_see_whole_blobs_while_rows_and_files_replace_each_other() {
    const PUTS: u8 = 60;
    let bench = Bench::new();
    let (store, another) = (bench.open().await, bench.open().await);
    let length = |mark: u8| if mark.is_multiple_of(2) { SMALL } else { LARGE };
    put(&store, "out/a", vec![0; SMALL]).await;
    let reading = tokio::spawn(async move {
        let mut last = 0;
        while last < PUTS {
            let bytes = get(&another, "out/a").await.expect("a blob that is being replaced is there");
            let mark = bytes[0];
            assert!(bytes == vec![mark; length(mark)], "a mixture");
            assert!(mark >= last, "went back");
            last = mark;
        }
    });
    for mark in 1..=PUTS {
        put(&store, "out/a", vec![mark; length(mark)]).await;
    }
    tokio::time::timeout(crate::bench::PATIENCE, reading).await.expect("the last one is read").unwrap();
}

const DAY_MS: i64 = 86_400_000;

fn age(bench: &Bench, name: &str, by_ms: i64) {
    let aged = bench.conn().execute("UPDATE fence SET at = at - ?2 WHERE name = ?1", (name, by_ms));
    assert_eq!(aged.unwrap(), 1, "{name} has a fence of its own");
}

async fn is_superseded(store: &Store, name: &str, writer: &Writer) -> bool {
    match store.blobs.put(&blob(name), b"late".to_vec(), Some(writer)).await {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
            true
        }
    }
}

#[tokio::test]
async fn a_fence_lasts_as_long_as_its_blob_and_a_day_more() {
    let bench = Bench::new();
    let store = bench.open().await;
    for name in ["kept", "deleted", "long-deleted"] {
        store.blobs.put(&blob(name), b"2".to_vec(), Some(&writer("a", 2))).await.unwrap();
    }
    assert_eq!(bench.number("SELECT count(*) FROM fence", []), 0, "a blob's row has its own");
    for name in ["deleted", "long-deleted"] {
        store.blobs.delete(&blob(name), None).await.unwrap();
    }
    age(&bench, "deleted", DAY_MS - 60_000);
    age(&bench, "long-deleted", DAY_MS + 1);
    let _worker = bench.open_worker().await;
    eventually("the expired fence is swept", async || bench.number("SELECT count(*) FROM fence", []) == 1)
        .await;
    for (name, refused) in [("kept", true), ("deleted", true), ("long-deleted", false)] {
        assert_eq!(is_superseded(&store, name, &writer("a", 1)).await, refused, "{name}");
    }
}

#[tokio::test]
async fn a_fence_outlasts_the_writes_of_other_jobs_and_producers() {
    let bench = Bench::new();
    let store = bench.open().await;
    let name = blob("out");
    let owners = [Some(writer("a", 5)), None, Some(writer("b", 3)), Some(writer("c", 1)), None];
    for owner in &owners {
        store.blobs.put(&name, b"x".to_vec(), owner.as_ref()).await.unwrap();
    }
    for (id, count) in [("a", 4), ("b", 2), ("c", 0)] {
        assert!(is_superseded(&store, "out", &writer(id, count)).await, "{id}");
    }
    store.blobs.put(&name, b"x".to_vec(), Some(&writer("a", 6))).await.unwrap();
    assert!(is_superseded(&store, "out", &writer("a", 5)).await, "the row's fence counts, not the older one");
    store.blobs.delete(&name, None).await.unwrap();
    for (id, count) in [("a", 5), ("b", 2)] {
        assert!(is_superseded(&store, "out", &writer(id, count)).await, "{id}, after the blob was deleted");
    }
    assert!(store.blobs.create(&name, b"x".to_vec(), &writer("a", 1)).await.unwrap());
    assert!(is_superseded(&store, "out", &writer("a", 5)).await, "a create does not lower a fence");
    assert!(!is_superseded(&store, "out", &writer("a", 6)).await);
}
