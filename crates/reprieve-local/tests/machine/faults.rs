//! External faults: disks, permissions, other programs, damage. Each gives a clear error and loses
//! nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve_core::ports::{NewMessage, Payload, RecordWrite, Release, Store};
use reprieve_core::{BlobName, Error, ErrorKind, JobId, PayloadName, WorkerId};
use reprieve_local::{LocalStore, Options, QueueName};
use rusqlite::Connection;

use crate::process::{finish, start_under};

const LEASE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options::new(QueueName::parse("jobs").unwrap()).owned_by(WorkerId::unique())
}

async fn open(path: &Path) -> Store {
    LocalStore::open(path, options()).await.unwrap().store()
}

async fn refused(path: &Path) -> Error {
    LocalStore::open(path, options()).await.expect_err("does not open")
}

fn message(bytes: usize) -> NewMessage {
    NewMessage { body: vec![b'x'; bytes], delay: Duration::ZERO }
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("db.d")
}

#[track_caller]
fn check(error: &Error, kind: ErrorKind, words: &str) {
    let text = error.to_string();
    assert!(
        error.kind() == kind && text.contains(words),
        "{kind:?} with {words:?}, not {:?}: {text}",
        error.kind()
    );
    let repeated = std::error::Error::source(error).map(ToString::to_string);
    assert_eq!(repeated, None, "{text}: the sentence is complete");
    assert!(!text.contains('\n') && text.len() < 400, "one sentence: {text}");
}

struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("reprieve.db")
    }

    /// Creates a store, closes it, and lets `change` modify its file.
    async fn changed_by(sql: &str) -> Self {
        let scene = Self::new();
        drop(open(&scene.path()).await);
        Connection::open(scene.path()).unwrap().execute_batch(sql).unwrap();
        scene
    }
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_left_as_it_is() {
    let scene = Scene::changed_by("PRAGMA user_version = 99").await;
    check(&refused(&scene.path()).await, ErrorKind::Incompatible, "update this program");
    let version: i64 =
        Connection::open(scene.path()).unwrap().pragma_query_one(None, "user_version").unwrap();
    assert_eq!(version, 99);
}

#[tokio::test]
async fn a_file_of_an_older_version_is_refused_and_left_as_it_is() {
    let scene = Scene::changed_by("PRAGMA user_version = 1").await;
    check(&refused(&scene.path()).await, ErrorKind::Incompatible, "finish its jobs with that version");
    let version: i64 =
        Connection::open(scene.path()).unwrap().pragma_query_one(None, "user_version").unwrap();
    assert_eq!(version, 1);
}

#[tokio::test]
async fn files_of_other_programs_are_refused_and_left_as_they_are() {
    let scene = Scene::new();
    std::fs::write(scene.path(), "a shopping list, long enough to be mistaken for a database\n".repeat(100))
        .unwrap();
    let before = std::fs::read(scene.path()).unwrap();
    check(&refused(&scene.path()).await, ErrorKind::Invalid, "is not a SQLite file");
    assert!(!beside(&scene.path()).exists(), "nothing is left beside it");
    assert_eq!(std::fs::read(scene.path()).unwrap(), before);

    let scene = Scene::new();
    Connection::open(scene.path()).unwrap().execute_batch("CREATE TABLE recipes(name)").unwrap();
    let before = std::fs::read(scene.path()).unwrap();
    check(&refused(&scene.path()).await, ErrorKind::Invalid, "another program's SQLite file");
    assert!(!beside(&scene.path()).exists(), "nothing is left beside it");
    assert_eq!(std::fs::read(scene.path()).unwrap(), before);
}

#[tokio::test]
async fn paths_that_name_no_file_are_refused() {
    let scene = Scene::new();
    check(&refused(scene.directory.path()).await, ErrorKind::Invalid, "is a directory; name a file in it");
    check(&refused(Path::new("/dev/null")).await, ErrorKind::Invalid, "name an ordinary file");
    let nowhere = scene.directory.path().join("no/such/place.db");
    check(&refused(&nowhere).await, ErrorKind::NotFound, "doesn't exist; create it");
}

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let scene = Scene::new();
    std::fs::write(scene.path(), "").unwrap();
    open(&scene.path()).await.queue.send(vec![message(1)]).await.unwrap();
}

#[tokio::test]
async fn a_log_that_was_switched_off_is_switched_on_again() {
    let scene = Scene::changed_by("").await;
    let deadline = tokio::time::Instant::now() + LEASE;
    // It can be switched off only after the store is completely closed.
    while Connection::open(scene.path()).unwrap().execute_batch("PRAGMA journal_mode = DELETE").is_err() {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    open(&scene.path()).await;
    let mode: String =
        Connection::open(scene.path()).unwrap().pragma_query_one(None, "journal_mode").unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_missing_table_is_reported_as_damage() {
    let scene = Scene::changed_by("DROP TABLE body").await;
    check(&refused(&scene.path()).await, ErrorKind::Corrupt, "is damaged");
}

#[tokio::test]
async fn damage_is_reported_as_damage() {
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    for _ in 0..20 {
        store.queue.send((0..100).map(|_| message(200)).collect()).await.unwrap();
    }
    drop(store);
    // Write into the file and remove the log: all pages but the first are overwritten.
    let conn = Connection::open(scene.path()).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    let mut bytes = std::fs::read(scene.path()).unwrap();
    bytes[4096..].fill(0xA5);
    std::fs::write(scene.path(), bytes).unwrap();

    let error = match LocalStore::open(&scene.path(), options()).await {
        Err(error) => error,
        Ok(opened) => opened.store().queue.receive(1, LEASE).await.unwrap_err(),
    };
    check(&error, ErrorKind::Corrupt, "is damaged");
}

#[tokio::test]
async fn damage_found_later_is_reported_as_damage_and_ends_nothing() {
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    store.queue.send((0..1000).map(|_| message(2_000)).collect()).await.unwrap();
    drop(store);
    let conn = Connection::open(scene.path()).unwrap();
    let find = "SELECT rootpage FROM sqlite_schema WHERE name = 'record'";
    let root: u32 = conn.query_row(find, [], |row| row.get(0)).unwrap();
    let root = usize::try_from(root).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    let mut bytes = std::fs::read(scene.path()).unwrap();
    bytes[(root - 1) * 4096..root * 4096].fill(0xA5);

    // Opening also reads the page, so it is damaged under an open store that has it in its cache.
    let store = open(&scene.path()).await;
    std::fs::write(scene.path(), bytes).unwrap();
    let other = LocalStore::open(&scene.path(), options()).await;
    check(&other.expect_err("the damage is seen at once"), ErrorKind::Corrupt, "is damaged");
    let delivery = store.queue.receive(1, LEASE).await.unwrap().remove(0);
    store.queue.complete(&delivery.receipt).await.expect("what is not damaged goes on");
}

#[tokio::test]
async fn another_programs_transaction_is_waited_for_and_then_reported() {
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    let shell = Connection::open(scene.path()).unwrap();
    shell.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = store.queue.send(vec![message(1)]).await.unwrap_err();
    check(&error, ErrorKind::Unavailable, "another program holds");
    assert!(error.is_temporary());
    shell.execute_batch("COMMIT").unwrap();
    store.queue.send(vec![message(1)]).await.expect("and it goes on when that ends");
    assert_eq!(store.queue.depth().await.unwrap().total, 1, "a refused call was not applied");
}

#[test]
fn a_full_disk_is_reported_and_loses_nothing() {
    on_a_small_disk("mount -t tmpfs -o size=1536k tmpfs", "full");
}

#[test]
fn an_unwritable_directory_is_reported() {
    on_a_small_disk("mount -t tmpfs -o ro tmpfs", "read-only");
}

/// Runs the child on its own disk, in a mount namespace that ends with it.
#[expect(clippy::print_stderr, reason = "a test that is left out must say so")]
fn on_a_small_disk(mount: &str, role: &str) {
    let directory = tempfile::tempdir().unwrap();
    let script = format!("{mount} {} && exec \"$@\"", directory.path().display());
    let namespace: &[&str] = &["unshare", "--mount", "--map-root-user"];
    let possible = std::process::Command::new(namespace[0])
        .args(&namespace[1..])
        .args(["sh", "-c", &script, "sh", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !possible {
        eprintln!("skipped: a test can't mount a disk on this machine");
        return;
    }
    let wrapper = [namespace, &["sh", "-c", &script, "sh"]].concat();
    let path = directory.path().join("reprieve.db");
    let output = finish(start_under(&wrapper, &[role, path.to_str().unwrap()]));
    assert!(String::from_utf8_lossy(&output.stdout).contains("the child is done"), "the child did run");
}

pub(crate) async fn meet_a_directory_that_cannot_be_written(path: &Path) {
    check(&refused(path).await, ErrorKind::Denied, "can't be written");
}

pub(crate) async fn fill_the_disk(path: &Path) {
    let store = open(path).await;
    // A long send is split, and reports how many messages were sent.
    let error = store.queue.send(vec![message(100); 20_000]).await.unwrap_err();
    let mut sent = store.queue.depth().await.unwrap().total;
    check(&error, ErrorKind::Full, &format!("{sent} of 20000 were sent"));
    assert!(sent > 0, "some of it did fit");
    let error = loop {
        match store.queue.send(vec![message(4_000)]).await {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 30_000, "the disk never gets full");
    };
    check(&error, ErrorKind::Full, "is full");
    assert!(error.is_temporary());

    // A call that needs space is refused as a whole: nothing partial stays.
    let name = BlobName::parse("out/large").unwrap();
    let error = store.blobs.put(&name, vec![1; 8 << 20], None).await.unwrap_err();
    check(&error, ErrorKind::Full, "");
    assert_eq!(store.blobs.get(&name).await.unwrap(), None);
    let (job, state) = (JobId::parse("a").unwrap(), PayloadName::parse("0.m.1-1").unwrap());
    let payload = Some(Payload { name: state.clone(), bytes: vec![1; 8 << 20].into() });
    let write = RecordWrite { payload, ..RecordWrite::default() };
    let error = store.records.put(&job, None, write).await.unwrap_err();
    check(&error, ErrorKind::Full, "");
    assert_eq!(store.records.load(&job).await.unwrap(), None);
    assert_eq!(store.records.payload(&job, &state).await.unwrap(), None);
    assert_eq!(store.queue.depth().await.unwrap().total, sent, "reading needs no space");

    // A process that only reads can even be started.
    let looking = Options::new(QueueName::parse("jobs").unwrap());
    let status = LocalStore::open(path, looking).await.expect("opens on a full disk").store();
    assert_eq!(status.queue.depth().await.unwrap().total, sent);
    drop(status);

    // With a little space it continues by itself, and every message is there.
    let grown = std::process::Command::new("mount")
        .args(["-o", "remount,size=8m"])
        .arg(path.parent().unwrap())
        .status()
        .unwrap();
    assert!(grown.success());
    let mut received = 0;
    loop {
        let deliveries = store.queue.receive(100, LEASE).await.unwrap();
        if deliveries.is_empty() {
            break;
        }
        received += deliveries.len() as u64;
        for delivery in &deliveries {
            assert!(matches!(delivery.body.len(), 100 | 4_000), "whole");
            store.queue.complete(&delivery.receipt).await.unwrap();
        }
    }
    assert_eq!(received, sent, "nothing that was acknowledged is lost, nothing that was refused is there");
    store.queue.send(vec![message(1)]).await.unwrap();
    let delivery = store.queue.receive(1, LEASE).await.unwrap().remove(0);
    store.queue.release(&delivery.receipt, &Release::default()).await.unwrap();
    let conn = Connection::open(path).unwrap();
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
