//! Behaviour of this store beyond the promises of the ports.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::path::Path;
use std::time::Duration;

use reprieve_core::ports::{
    Delivery, NewMessage, Payload, RecordWrite, Release, Store, Version, WorkerReport,
};
use reprieve_core::worker::{Worker, stopping};
use reprieve_core::{
    BlobName, ErrorKind, Job, JobContext, JobError, JobId, PayloadName, Redrive, Result, Step, WorkerId,
};
use reprieve_local::{LocalStore, Options, QueueName};
use tokio::time::{Instant, timeout};

const LEASE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(10);

struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("reprieve.db")
    }

    async fn open(&self) -> Store {
        open(&self.path(), Options::new(queue("jobs"))).await
    }

    async fn open_worker(&self) -> Store {
        open(&self.path(), Options::new(queue("jobs")).owned_by(WorkerId::unique())).await
    }
}

async fn open(path: &Path, options: Options) -> Store {
    LocalStore::open(path, options).await.unwrap().store()
}

fn queue(name: &str) -> QueueName {
    QueueName::parse(name).unwrap()
}

fn name(name: &str) -> BlobName {
    BlobName::parse(name).unwrap()
}

fn job(id: &str) -> JobId {
    JobId::parse(id).unwrap()
}

fn payload(name: &str) -> PayloadName {
    PayloadName::parse(name).unwrap()
}

/// More than the database keeps inline.
fn large(byte: u8) -> Vec<u8> {
    vec![byte; 300 << 10]
}

/// Writes a record with a payload of this name as its state, in place of the state `obsolete`.
async fn save(
    store: &Store,
    id: &str,
    expected: Option<&Version>,
    state: (&str, Vec<u8>),
    obsolete: &[&str],
) -> Result<Version> {
    let (name, bytes) = (payload(state.0), state.1);
    let write = RecordWrite {
        record: state.0.into(),
        payload: Some(Payload { name, bytes: bytes.into() }),
        obsolete: obsolete.iter().map(|name| payload(name)).collect(),
        ..RecordWrite::default()
    };
    store.records.put(&job(id), expected, write).await
}

async fn send(store: &Store, bodies: &[&str], delay: Duration) {
    let messages = bodies.iter().map(|body| NewMessage { body: body.as_bytes().to_vec(), delay }).collect();
    store.queue.send(messages).await.unwrap();
}

async fn receive(store: &Store, max: usize) -> Vec<Delivery> {
    store.queue.receive(max, LEASE).await.unwrap()
}

fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| str::from_utf8(&delivery.body).unwrap()).collect()
}

/// Waits for a condition that depends on another thread.
async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let bench = Bench::new();
    let large = vec![7; 1 << 20];
    let (small_version, large_version) = {
        let store = bench.open().await;
        send(&store, &["one", "two"], Duration::ZERO).await;
        store.blobs.put(&name("in/a.txt"), b"blob".to_vec(), None).await.unwrap();
        let small = save(&store, "a", None, ("0.m.1-1", b"small".to_vec()), &[]).await.unwrap();
        (small, save(&store, "b", None, ("0.m.1-2", large.clone()), &[]).await.unwrap())
    };
    let store = bench.open().await;
    assert_eq!(bodies(&receive(&store, 10).await), ["one", "two"]);
    assert_eq!(store.blobs.get(&name("in/a.txt")).await.unwrap().unwrap(), b"blob");
    for (id, name, bytes, version) in
        [("a", "0.m.1-1", b"small".to_vec(), small_version), ("b", "0.m.1-2", large, large_version)]
    {
        let stored = store.records.load(&job(id)).await.unwrap().unwrap();
        assert_eq!((&*stored.bytes, &stored.version), (name.as_bytes(), &version));
        assert!(
            store.records.payload(&job(id), &payload(name)).await.unwrap().as_deref() == Some(&bytes[..])
        );
    }
}

#[tokio::test]
async fn a_new_store_can_be_opened_by_many_at_once() {
    for round in 0..20 {
        let bench = Bench::new();
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let path = bench.path();
            opening.spawn(async move { LocalStore::open(&path, Options::new(queue("jobs"))).await });
        }
        while let Some(opened) = opening.join_next().await {
            let store = opened.unwrap().unwrap_or_else(|error| panic!("round {round}: {error}")).store();
            send(&store, &["a"], Duration::ZERO).await;
        }
    }
}

#[tokio::test]
async fn queues_in_one_file_are_apart_and_a_poison_queue_is_a_queue() {
    let bench = Bench::new();
    let jobs = bench.open().await;
    let others = open(&bench.path(), Options::new(queue("others"))).await;
    let poison = open(&bench.path(), Options::new(queue("jobs").poison())).await;
    send(&jobs, &["bad"], Duration::ZERO).await;
    assert!(receive(&others, 1).await.is_empty());

    let delivery = receive(&jobs, 1).await.remove(0);
    let letter = reprieve_core::ports::DeadLetter { reason: "unknown kind".to_owned() };
    jobs.queue.dead_letter(&delivery.receipt, &delivery.body, &letter).await.unwrap();
    assert_eq!(jobs.queue.depth().await.unwrap().poisoned, Some(1));
    let redriven = receive(&poison, 1).await.remove(0);
    assert_eq!((&*redriven.body, redriven.dequeue_count), (&b"bad"[..], 1));
    poison.queue.complete(&redriven.receipt).await.unwrap();
    assert_eq!(jobs.queue.depth().await.unwrap().poisoned, Some(0));
}

#[tokio::test]
async fn a_released_message_gets_its_place_in_line_back() {
    let bench = Bench::new();
    let store = bench.open().await;
    send(&store, &["first", "second", "third"], Duration::ZERO).await;
    let held = receive(&store, 2).await;
    for delivery in held.iter().rev() {
        store.queue.release(&delivery.receipt, &Release::default()).await.unwrap();
    }
    assert_eq!(bodies(&receive(&store, 3).await), ["first", "second", "third"]);
}

#[tokio::test]
async fn a_long_send_goes_through_whole() {
    let bench = Bench::new();
    let store = bench.open().await;
    let messages =
        (0..2_500u32).map(|n| NewMessage { body: n.to_string().into_bytes(), delay: Duration::ZERO });
    let ids = store.queue.send(messages.collect()).await.unwrap();
    assert_eq!(ids.len(), 2_500);
    let mut seen = Vec::new();
    while seen.len() < 2_500 {
        let deliveries = receive(&store, 900).await;
        assert!(!deliveries.is_empty());
        seen.extend(bodies(&deliveries).into_iter().map(|body| body.parse::<u32>().unwrap()));
    }
    assert!(seen.into_iter().eq(0..2_500), "in the order in which they were sent");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_nothing_is_sent() {
    let bench = Bench::new();
    let store = bench.open().await;
    let message = |bytes| NewMessage { body: vec![0; bytes], delay: Duration::ZERO };
    let error = store.queue.send(vec![message(1), message((1 << 20) + 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(store.queue.depth().await.unwrap().total, 0);
}

#[tokio::test]
async fn a_dropped_handle_releases_its_owners_messages() {
    let bench = Bench::new();
    let (one, two) = (bench.open_worker().await, bench.open().await);
    send(&two, &["a", "b"], Duration::ZERO).await;
    let held = receive(&one, 2).await;
    assert_eq!(held.len(), 2);
    drop(one);
    eventually("the leases are released", || async { two.queue.depth().await.unwrap().ready == Some(2) })
        .await;
    let again = receive(&two, 2).await;
    assert_eq!(again.iter().map(|delivery| delivery.dequeue_count).collect::<Vec<_>>(), [2, 2]);
    let error = two.queue.complete(&held[0].receipt).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "the old receipt no longer holds");
    let sessions = || async {
        std::fs::read_dir(bench.directory.path().join("reprieve.db.d/sessions")).unwrap().count() == 0
    };
    eventually("no session is left", sessions).await;
}

#[tokio::test]
async fn a_release_affects_neither_other_owners_nor_delayed_messages() {
    let bench = Bench::new();
    let (one, two) = (bench.open_worker().await, bench.open_worker().await);
    send(&two, &["a", "b"], Duration::ZERO).await;
    send(&two, &["later"], LEASE).await;
    let kept = receive(&two, 1).await.remove(0);
    receive(&one, 1).await;
    two.queue.arrived().await;
    assert!(receive(&two, 1).await.is_empty());
    drop(one);
    timeout(PATIENCE, two.queue.arrived()).await.expect("a waiting receiver is woken");
    assert_eq!(bodies(&receive(&two, 3).await), ["b"]);
    two.queue.complete(&kept.receipt).await.expect("the living keep theirs");
}

#[tokio::test]
async fn nothing_is_taken_from_the_living() {
    let bench = Bench::new();
    let (one, two) = (bench.open_worker().await, bench.open_worker().await);
    let anonymous = bench.open().await;
    send(&one, &["a", "b"], Duration::ZERO).await;
    let held = (receive(&one, 1).await, receive(&anonymous, 1).await);
    drop(anonymous);
    for _ in 0..50 {
        assert_eq!(one.queue.recover().await.unwrap() + two.queue.recover().await.unwrap(), 0);
    }
    one.queue.complete(&held.0[0].receipt).await.unwrap();
    two.queue.complete(&held.1[0].receipt).await.expect("a lease without a session stays valid");
}

#[tokio::test]
async fn a_session_without_its_file_has_ended() {
    let bench = Bench::new();
    let (dead, live) = (bench.open_worker().await, bench.open_worker().await);
    send(&live, &["a"], Duration::ZERO).await;
    receive(&dead, 1).await;
    // As after a power loss that the row survives and the file does not.
    let sessions = bench.directory.path().join("reprieve.db.d/sessions");
    let mut files: Vec<_> = std::fs::read_dir(sessions).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    std::fs::remove_file(&files[0]).unwrap();
    eventually("the lease is released", || async {
        live.queue.recover().await.unwrap();
        live.queue.depth().await.unwrap().ready == Some(1)
    })
    .await;
    assert_eq!(receive(&live, 1).await.len(), 1);
}

#[tokio::test]
async fn a_waiting_worker_is_woken_by_another_handle() {
    let bench = Bench::new();
    let (waiting, sending) = (bench.open_worker().await, bench.open().await);
    waiting.queue.arrived().await;
    assert!(receive(&waiting, 1).await.is_empty());
    let woken = tokio::spawn({
        let queue = waiting.queue.clone();
        async move { queue.arrived().await }
    });
    tokio::task::yield_now().await;
    assert!(!woken.is_finished());
    send(&sending, &["a"], Duration::ZERO).await;
    timeout(PATIENCE, woken).await.expect("the bell wakes it").unwrap();
    assert_eq!(receive(&waiting, 1).await.len(), 1);
}

#[tokio::test]
async fn a_message_sent_between_the_look_and_the_wait_ends_the_wait() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    store.queue.arrived().await;
    for round in 0..20 {
        assert!(receive(&store, 1).await.is_empty());
        send(&store, &["a"], Duration::ZERO).await;
        timeout(PATIENCE, store.queue.arrived())
            .await
            .unwrap_or_else(|_| panic!("round {round}: the ring was lost"));
        let delivery = receive(&store, 1).await.remove(0);
        store.queue.complete(&delivery.receipt).await.unwrap();
    }
}

#[tokio::test]
async fn the_first_wait_misses_nothing_either() {
    let bench = Bench::new();
    let (waiting, sending) = (bench.open_worker().await, bench.open().await);
    assert!(receive(&waiting, 1).await.is_empty());
    send(&sending, &["a"], Duration::ZERO).await;
    timeout(PATIENCE, waiting.queue.arrived()).await.expect("the wait is over");
}

#[tokio::test]
async fn a_waiting_worker_is_woken_when_a_delay_is_over() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    send(&store, &["later"], Duration::from_millis(300)).await;
    let begun = Instant::now();
    let mut deliveries = receive(&store, 1).await;
    while deliveries.is_empty() {
        timeout(PATIENCE, store.queue.arrived()).await.expect("it is woken in time");
        deliveries = receive(&store, 1).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "long before a poll would have found it");
}

#[tokio::test]
async fn counting_tells_the_states_of_messages_apart() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    send(&store, &["a", "b", "c"], Duration::ZERO).await;
    send(&store, &["d", "e"], LEASE).await;
    receive(&store, 1).await;
    let depth = store.queue.depth().await.unwrap();
    assert_eq!((depth.total, depth.ready, depth.leased, depth.delayed), (5, Some(2), Some(1), Some(2)));
}

#[tokio::test]
async fn a_large_payload_that_is_obsolete_or_removed_leaves_no_file() {
    let bench = Bench::new();
    let store = bench.open().await;
    let files = || std::fs::read_dir(bench.directory.path().join("reprieve.db.d/payloads")).unwrap().count();
    let first = save(&store, "a", None, ("1", large(1)), &[]).await.unwrap();
    let second = save(&store, "a", Some(&first), ("2", large(2)), &["1"]).await.unwrap();
    assert_eq!(files(), 1);
    let error = save(&store, "a", Some(&first), ("3", large(3)), &["2"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(files(), 1, "a refused write leaves nothing");
    let third = save(&store, "a", Some(&second), ("4", b"small".to_vec()), &["2"]).await.unwrap();
    assert_eq!(files(), 0);
    let fourth = save(&store, "a", Some(&third), ("5", large(1)), &[]).await.unwrap();
    let fifth = save(&store, "a", Some(&fourth), ("6", large(1)), &[]).await.unwrap();
    assert_eq!(store.records.remove(&job("a"), &fourth, &[]).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(files(), 2);
    store.records.remove(&job("a"), &fifth, &["4", "5", "6"].map(payload)).await.unwrap();
    assert_eq!(files(), 0);
}

#[tokio::test]
async fn a_payload_without_its_file_is_none_and_a_short_one_is_short() {
    let bench = Bench::new();
    let store = bench.open().await;
    save(&store, "a", None, ("1", large(1)), &[]).await.unwrap();
    let directory = bench.directory.path().join("reprieve.db.d/payloads");
    let file = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, b"short").unwrap();
    let read = async || store.records.payload(&job("a"), &payload("1")).await.unwrap();
    assert_eq!(read().await.as_deref(), Some(&b"short"[..]), "its reader checks length and checksum");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(read().await, None);
    assert!(store.records.load(&job("a")).await.unwrap().is_some(), "the record is there");
}

#[tokio::test]
async fn large_payloads_are_read_while_they_are_replaced() {
    let bench = Bench::new();
    let (one, two) = (bench.open().await, bench.open().await);
    let mut version = save(&one, "a", None, ("0", large(0)), &[]).await.unwrap();
    let reading = tokio::spawn(async move {
        let mut last = 0;
        while last < 40 {
            let stored = two.records.load(&job("a")).await.unwrap().unwrap();
            let name = String::from_utf8(stored.bytes).unwrap();
            // It is `None` when it became obsolete after the record was loaded.
            if let Some(bytes) = two.records.payload(&job("a"), &payload(&name)).await.unwrap() {
                let mark = bytes[0];
                assert!(mark.to_string() == name && bytes == large(mark), "a mixture");
                assert!(mark >= last, "went back");
                last = mark;
            }
        }
    });
    for byte in 1..=40_u8 {
        let (name, before) = (byte.to_string(), (byte - 1).to_string());
        version = save(&one, "a", Some(&version), (&name, large(byte)), &[&before]).await.unwrap();
    }
    timeout(PATIENCE, reading).await.expect("the last one is read").unwrap();
}

#[tokio::test]
async fn letters_of_a_dead_process_are_received_again() {
    let bench = Bench::new();
    let (one, two) = (bench.open_worker().await, bench.open_worker().await);
    send(&one, &["bad"], Duration::ZERO).await;
    let delivery = receive(&one, 1).await.remove(0);
    let letter = reprieve_core::ports::DeadLetter::because("unknown kind");
    one.queue.dead_letter(&delivery.receipt, b"as given", &letter).await.unwrap();
    let held = one.queue.receive_letters(1, LEASE).await.unwrap();
    assert_eq!(held.len(), 1);
    assert!(two.queue.receive_letters(1, LEASE).await.unwrap().is_empty());
    drop(one);
    let again = two.queue.receive_letters(1, LEASE).await.unwrap();
    assert_eq!((&*again[0].body, again[0].dequeue_count), (&b"as given"[..], 2));
}

#[tokio::test]
async fn leftovers_of_the_dead_are_swept_and_other_files_stay() {
    let bench = Bench::new();
    let store = bench.open().await;
    save(&store, "a", None, ("1", large(1)), &[]).await.unwrap();
    store.blobs.put(&name("out/a"), large(2), None).await.unwrap();
    let beside = bench.directory.path().join("reprieve.db.d");
    let dead = "0194e5a1b2c37d4e8f90a1b2c3d4e5f6";
    let leftovers = [format!("blobs/{dead}-0"), format!("payloads/{dead}-0"), format!("sessions/{dead}")];
    for file in leftovers.iter().map(String::as_str).chain(["blobs/notes.txt", "payloads/notes-2.txt"]) {
        std::fs::write(beside.join(file), b"half").unwrap();
    }
    let _worker = bench.open_worker().await;
    let swept = || async { leftovers.iter().all(|left| !beside.join(left).exists()) };
    eventually("leftovers are swept", swept).await;
    let read = store.records.payload(&job("a"), &payload("1")).await.unwrap();
    assert!(read.as_deref() == Some(&large(1)[..]), "and no file that is used");
    assert!(store.blobs.get(&name("out/a")).await.unwrap() == Some(large(2)), "and no file that is used");
    for file in ["blobs/notes.txt", "payloads/notes-2.txt"] {
        assert!(beside.join(file).exists(), "nor another program's");
    }
}

#[tokio::test]
async fn reports_go_with_their_worker() {
    let bench = Bench::new();
    let worker = WorkerId::unique();
    let one = open(&bench.path(), Options::new(queue("jobs")).owned_by(worker.clone())).await;
    let two = bench.open().await;
    let report = WorkerReport {
        vm: "vm-1".to_owned(),
        pid: 1,
        stage: "start".to_owned(),
        at_unix_ms: reprieve_core::clock::unix_millis(),
        ..WorkerReport::new(worker)
    };
    one.roster.publish(&report).await.unwrap();
    assert_eq!(two.roster.reports(LEASE).await.unwrap(), [report]);
    drop(one);
    eventually("the report goes", || async { two.roster.reports(LEASE).await.unwrap().is_empty() }).await;
}

#[tokio::test]
async fn a_wall_clock_that_was_ahead_hides_nothing() {
    let bench = Bench::new();
    let ahead = reprieve_core::clock::unix_millis() + 3_600_000;
    let store = bench.open().await;
    let lock = bench.directory.path().join("reprieve.db.d/write.lock");
    // The time of a process with a clock an hour ahead.
    std::fs::write(&lock, ahead.to_le_bytes()).unwrap();
    send(&store, &["a"], Duration::ZERO).await;
    // The next process reads the time from this one, though its own clock is right.
    std::fs::write(&lock, []).unwrap();
    send(&store, &["b"], Duration::ZERO).await;
    let latest = i64::from_le_bytes(std::fs::read(&lock).unwrap().try_into().unwrap());
    assert!(latest >= ahead, "{latest} is before {ahead}");
    let later = bench.open().await;
    let delivery = receive(&later, 1).await.remove(0);
    assert_eq!(receive(&store, 2).await.len(), 1, "and its lease holds");
    later.queue.complete(&delivery.receipt).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_session_that_cannot_be_looked_at_keeps_no_other_from_being_ended() {
    let bench = Bench::new();
    let (one, two, live) = (bench.open_worker().await, bench.open_worker().await, bench.open_worker().await);
    send(&live, &["a", "b"], Duration::ZERO).await;
    receive(&one, 1).await;
    receive(&two, 1).await;
    let sessions = bench.directory.path().join("reprieve.db.d/sessions");
    let mut files: Vec<_> = std::fs::read_dir(sessions).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    // A link to itself can't be opened by any user.
    std::fs::remove_file(&files[0]).unwrap();
    std::os::unix::fs::symlink(&files[0], &files[0]).unwrap();
    std::fs::remove_file(&files[1]).unwrap();
    eventually("the dead process's lease is released", || async {
        live.queue.recover().await.unwrap();
        live.queue.depth().await.unwrap().ready == Some(1)
    })
    .await;
    assert_eq!(live.queue.depth().await.unwrap().leased, Some(1), "the other one's is kept");
}

#[tokio::test]
async fn a_queue_or_file_that_must_exist_is_not_made() {
    let bench = Bench::new();
    let refused = async |queue_name: &str| {
        let error = LocalStore::open(&bench.path(), Options::new(queue(queue_name)).existing()).await;
        let error = error.expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        error.to_string()
    };
    assert!(refused("jobs").await.contains("there is no store at"));
    assert_eq!(std::fs::read_dir(bench.directory.path()).unwrap().count(), 0);
    drop((bench.open().await, open(&bench.path(), Options::new(queue("others"))).await));
    for _ in 0..2 {
        let error = refused("typo").await;
        assert!(error.contains("there is no queue \"typo\" in "), "{error}");
        assert!(error.ends_with("; there are jobs, others"), "{error}");
    }
    drop(open(&bench.path(), Options::new(queue("jobs")).existing()).await);
}

#[tokio::test]
async fn the_session_is_over_when_the_last_handle_is_dropped() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let sessions = bench.directory.path().join("reprieve.db.d/sessions");
    assert_eq!(std::fs::read_dir(&sessions).unwrap().count(), 1);
    drop(store);
    assert_eq!(std::fs::read_dir(&sessions).unwrap().count(), 0);
}

/// A job that fails permanently.
struct Never;

#[async_trait::async_trait]
impl Job for Never {
    const KIND: &'static str = "never";
    type Args = String;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &String) {}

    async fn step(&self, _: &JobContext, _: &String, (): ()) -> Result<Step<(), ()>, JobError> {
        Err(JobError::fatal("never"))
    }
}

/// An event of nearly the maximum size leaves no room for the generation of its dead letter.
#[tokio::test]
async fn a_job_with_the_largest_event_is_dead_lettered_and_redriven() {
    const LARGEST: usize = (1 << 20) - 5;
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let (head, tail) =
        (r#"{"specversion":"1.0","id":"a","source":"reprieve","type":"never","data":""#, r#""}"#);
    let body = [head, &"x".repeat(LARGEST - head.len() - tail.len()), tail].concat();
    send(&store, &[&body], Duration::ZERO).await;
    let worker = Worker::builder(store.clone()).job(Never).build().unwrap();
    let (stopper, stopping) = stopping();
    let running = tokio::spawn(worker.run(stopping));
    let dead = async {
        while store.queue.depth().await.unwrap().total > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, dead).await.expect("it is dead-lettered");
    stopper.stop();
    running.await.unwrap();
    assert!(store.queue.dead_letters(1).await.unwrap()[0].body == body.as_bytes(), "as it came");
    assert_eq!(store.redrive(&Redrive::All).await.unwrap().jobs, [job("a")]);
    let depth = store.queue.depth().await.unwrap();
    assert_eq!((depth.ready, depth.poisoned), (Some(1), Some(0)));
}
