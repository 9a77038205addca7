//! Processes that share a file and die or freeze, one case at a time.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::ports::{PART_BYTES, Payload, RecordWrite, Store, Stored, Upload, WorkerReport};
use reprieve_core::{BlobName, ErrorKind, JobId, PayloadName, WorkerId};
#[cfg(unix)]
use reprieve_testkit::Signal;
use tokio::time::{Instant, sleep};

use crate::process::finish;
use crate::scene::{PATIENCE, Say, Scene, open, send};

const LARGE: usize = 3 << 20;
const LONG: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_killed_process_messages_are_receivable_within_a_second() {
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    send(&store, 20).await;
    let mut child = scene.start("hold", "3600000");
    scene.log().wait_for("holding").await;
    assert_eq!(store.queue.depth().await.unwrap().leased, Some(20));
    assert_eq!(store.roster.reports(LONG).await.unwrap().len(), 1);

    child.kill();
    let killed = Instant::now();
    let mut deliveries = Vec::new();
    while deliveries.len() < 20 {
        deliveries.extend(store.queue.receive(20, LONG).await.unwrap());
        assert!(killed.elapsed() < PATIENCE);
        sleep(Duration::from_millis(5)).await;
    }
    let after = killed.elapsed();
    println!("released {after:?} after the kill");
    assert!(after < Duration::from_secs(1), "{after:?}");
    assert!(deliveries.iter().all(|delivery| delivery.dequeue_count == 2), "a release is not a receive");
    assert!(store.roster.reports(LONG).await.unwrap().is_empty(), "its report goes with it");
    assert_eq!(store.roster.departed(LONG).await.unwrap().len(), 1, "it is kept for the ledger");
}

/// One session's file may belong to another user or be damaged; other dead sessions are recovered
/// all the same.
#[cfg(unix)]
#[tokio::test]
async fn an_unreadable_session_does_not_block_the_recovery_of_others() {
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    let conn = rusqlite::Connection::open(scene.path()).unwrap();
    conn.execute("INSERT INTO session(token) VALUES('unreadable')", []).unwrap();
    drop(conn);
    let sessions = scene.path().with_extension("db.d").join("sessions");
    std::os::unix::fs::symlink("unreadable", sessions.join("unreadable")).unwrap();
    send(&store, 3).await;
    let mut child = scene.start("hold", "3600000");
    scene.log().wait_for("holding").await;
    child.kill();
    assert_eq!(store.queue.recover().await.unwrap(), 3);
}

#[tokio::test]
async fn recovery_releases_messages_at_once() {
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    send(&store, 20).await;
    let mut child = scene.start("hold", "3600000");
    scene.log().wait_for("holding").await;
    assert_eq!(store.queue.recover().await.unwrap(), 0, "the process lives");
    child.kill();
    // Another handle in this process may be about to do the same.
    let recovered = store.queue.recover().await.unwrap();
    assert!(recovered == 20 || recovered == 0, "{recovered}");
    let deadline = Instant::now() + Duration::from_millis(500);
    while store.queue.depth().await.unwrap().ready != Some(20) {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_frozen_process_keeps_its_leases_until_they_end_and_is_refused_afterwards() {
    const LEASE: Duration = Duration::from_millis(2_500);
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    send(&store, 20).await;
    let begun = Instant::now();
    let child = scene.start("hold", &LEASE.as_millis().to_string());
    scene.log().wait_for("holding").await;
    child.signal(Signal::STOP);
    let frozen = Instant::now();
    let mut deliveries = Vec::new();
    while deliveries.len() < 20 {
        assert_eq!(store.queue.recover().await.unwrap(), 0, "a frozen process is not a dead one");
        deliveries.extend(store.queue.receive(20, LONG).await.unwrap());
        assert!(
            deliveries.is_empty() || begun.elapsed() >= LEASE,
            "taken from the living: {:?}",
            begun.elapsed()
        );
        assert!(frozen.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20)).await;
    }
    child.signal(Signal::CONT);
    scene.log().wait_for("refused 20").await;
}

#[tokio::test]
async fn half_written_files_of_a_killed_process_are_swept() {
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    let beside = |name: &str| scene.directory.path().join("reprieve.db.d").join(name);
    let files = |name: &str| std::fs::read_dir(beside(name)).unwrap().count();
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut had_blob = false;
    for _ in 0..8 {
        let mut child = scene.start("write", "0");
        scene.log().wait_for("writing").await;
        sleep(Duration::from_millis(rng.random_range(1..60))).await;
        child.kill();
        std::fs::remove_file(scene.log().0).unwrap();
        let deadline = Instant::now() + PATIENCE;
        // The only payload that is not obsolete has at most one file, and so has the only blob.
        while files("blobs") > 1 || files("payloads") > 1 || files("sessions") > 1 {
            assert!(Instant::now() < deadline, "obsolete files stay");
            sleep(Duration::from_millis(20)).await;
        }
        let stored = store.records.load(&job()).await.unwrap();
        let payload = match &stored {
            Some(stored) => {
                let read = store.records.payload(&job(), &named(stored)).await.unwrap().map(Vec::from);
                Some(read.expect("the payload that a record names is there"))
            }
            None => None,
        };
        let whole =
            |bytes: &[u8], length| bytes.len() == length && bytes.iter().all(|byte| *byte == bytes[0]);
        assert!(payload.is_none_or(|bytes| whole(&bytes, LARGE)), "half a payload");
        let blob = store.blobs.get(&BlobName::parse("out/a").unwrap()).await.unwrap();
        assert!(blob.is_some() || !had_blob, "neither the old blob nor the new one");
        had_blob = blob.is_some();
        assert!(blob.is_none_or(|bytes| whole(&bytes, blob_bytes(bytes[0]))), "half a blob");
    }
}

/// Parts of a blob that was never published go with their process, and the others' work goes on.
#[tokio::test]
async fn parts_of_a_killed_process_are_swept() {
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    let blobs = scene.directory.path().join("reprieve.db.d/blobs");
    let files = || std::fs::read_dir(&blobs).unwrap().count();
    let (own, name) = (Upload::new(), BlobName::parse("out/own").unwrap());
    store.blobs.put_part(&name, &own, 0, vec![1; PART_BYTES].into()).await.unwrap();
    for _ in 0..3 {
        let mut child = scene.start("upload", "0");
        scene.log().wait_for("sent 2 parts").await;
        assert_eq!(files(), 2);
        child.kill();
        std::fs::remove_file(scene.log().0).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while files() > 1 {
            assert!(Instant::now() < deadline, "the dead process's parts stay");
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(store.blobs.list("").await.unwrap(), []);
    }
    store.blobs.put_part(&name, &own, 1, vec![1; 1].into()).await.unwrap();
    store.blobs.put_parts(&name, &own, PART_BYTES as u64 + 1, None).await.unwrap();
    assert!(store.blobs.get(&name).await.unwrap() == Some(vec![1; PART_BYTES + 1]));
}

/// The length of the blob that is written with this byte: it is a file and a row in turns.
fn blob_bytes(byte: u8) -> usize {
    if byte.is_multiple_of(2) { LARGE } else { 2_000 }
}

#[tokio::test]
async fn processes_share_a_queue_fairly() {
    const MESSAGES: u32 = 6_000;
    let scene = Scene::new();
    let store = open(&scene.path()).await;
    let children: Vec<_> = (0..4).map(|_| scene.start("drain", "0")).collect();
    let deadline = Instant::now() + PATIENCE;
    while scene.log().lines().len() < 4 {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(5)).await;
    }
    send(&store, MESSAGES as usize).await;
    File::create(scene.directory.path().join("go")).unwrap();
    for child in children {
        finish(child);
    }
    let lines = scene.log().lines();
    let shares: Vec<u32> =
        lines.iter().filter_map(|line| line.strip_prefix("drained ")?.parse().ok()).collect();
    assert_eq!(shares.iter().sum::<u32>(), MESSAGES, "{shares:?}");
    let least = *shares.iter().min().unwrap();
    let fairness = f64::from(least) * 4.0 / f64::from(MESSAGES);
    println!("shares {shares:?}: the least is {fairness:.2} of the mean");
    assert!(shares.len() == 4 && fairness > 0.6, "{shares:?}");
}

pub(crate) async fn hold(store: &Store, say: &Say, owner: WorkerId, lease: Duration) {
    let report = WorkerReport {
        stage: "start".to_owned(),
        at_unix_ms: reprieve_core::clock::unix_millis(),
        ..WorkerReport::new(owner)
    };
    store.roster.publish(&report).await.unwrap();
    let held = store.queue.receive(100, lease).await.unwrap();
    say.say("holding");
    // Longer than the lease: a frozen worker finds that it has lost its leases.
    sleep(lease + Duration::from_secs(1)).await;
    let mut refused = 0;
    for delivery in &held {
        let lost = store.queue.renew(&delivery.receipt, lease).await;
        refused += usize::from(lost.is_err_and(|error| error.kind() == ErrorKind::LeaseLost));
    }
    say.say(&format!("refused {refused}"));
    std::future::pending::<()>().await;
}

fn job() -> JobId {
    JobId::parse("a").unwrap()
}

/// Returns the payload that a record names.
fn named(stored: &Stored) -> PayloadName {
    PayloadName::parse(str::from_utf8(&stored.bytes).unwrap()).unwrap()
}

pub(crate) async fn write(store: &Store, say: &Say) {
    say.say("writing");
    let name = BlobName::parse("out/a").unwrap();
    for byte in (0..=255).cycle() {
        let stored = store.records.load(&job()).await.unwrap();
        let state =
            PayloadName::parse(format!("0.m.1-{}-{}", std::process::id(), rand::random::<u64>())).unwrap();
        let write = RecordWrite {
            record: state.as_str().into(),
            payload: Some(Payload { name: state, bytes: vec![byte; LARGE].into() }),
            obsolete: stored.iter().map(named).collect(),
            ..RecordWrite::default()
        };
        store.records.put(&job(), stored.as_ref().map(|stored| &stored.version), write).await.unwrap();
        store.blobs.put(&name, vec![byte; blob_bytes(byte)], None).await.unwrap();
    }
}

pub(crate) async fn upload(store: &Store, say: &Say) {
    let (upload, name) = (Upload::new(), BlobName::parse("out/child").unwrap());
    for number in 0..2 {
        store.blobs.put_part(&name, &upload, number, vec![2; PART_BYTES].into()).await.unwrap();
    }
    say.say("sent 2 parts");
    std::future::pending::<()>().await;
}

pub(crate) async fn drain(store: &Store, say: &Say, go: &Path) {
    say.say("ready");
    while !go.exists() {
        sleep(Duration::from_millis(1)).await;
    }
    let mut drained = 0;
    while let Some(delivery) = store.queue.receive(1, LONG).await.unwrap().pop() {
        store.queue.complete(&delivery.receipt).await.unwrap();
        drained += 1;
    }
    say.say(&format!("drained {drained}"));
}
