//! Four processes use all features at once, and are killed again and again: nothing is lost,
//! nothing is completed twice.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::ports::{Delivery, Payload, RecordWrite, Store};
use reprieve_core::{BlobName, ErrorKind, Fence, JobId, PayloadName, Writer};
use rusqlite::Connection;
use tokio::time::{Instant, sleep};

use crate::process::output_if_ended;
use crate::scene::{Log, PATIENCE, Say, Scene, open, send};

/// How long processes are killed by default. Raise it by hand for longer runs.
const TORTURE: Duration = Duration::from_secs(8);

/// Four processes send, lease, renew, save, publish and complete, and are killed again and again.
#[tokio::test]
async fn killing_processes_at_any_moment_loses_nothing() {
    let scene = Scene::new();
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let start = |place: usize, rng: &mut SmallRng| {
        scene.start(if place < 2 { "produce" } else { "consume" }, &rng.random::<u32>().to_string())
    };
    let mut children: Vec<_> = (0..4).map(|place| start(place, &mut rng)).collect();
    let (begun, mut kills) = (Instant::now(), 0);
    while begun.elapsed() < TORTURE {
        sleep(Duration::from_millis(rng.random_range(20..120))).await;
        let place = rng.random_range(0..4);
        let ended = output_if_ended(&mut children[place]);
        assert!(ended.is_none(), "a process ended by itself: {}", ended.unwrap_or_default());
        children[place].kill();
        children[place] = start(place, &mut rng);
        kills += 1;
    }
    drop(children);

    let finishers: Vec<_> =
        (0..3).map(|_| scene.start("consume", &rng.random::<u32>().to_string())).collect();
    let store = open(&scene.path()).await;
    let drained = Instant::now();
    while store.queue.depth().await.unwrap().total > 0 {
        assert!(drained.elapsed() < PATIENCE, "{:?}", store.queue.depth().await);
        sleep(Duration::from_millis(20)).await;
    }
    drop(finishers);
    store.queue.recover().await.unwrap();
    let events = Story::read(&scene.log());
    println!(
        "{kills} kills, {} sent, {} completed, {} received again",
        events.sent.len(),
        events.completed.len(),
        events.again
    );
    assert!(kills > 20 && events.sent.len() > 100 && events.again > 0, "it was a torture");
    events.check_messages();
    events.check_saves(&store).await;
    events.check_outputs(&store).await;
    drop(store);
    check_database(&scene.path());
}

fn check_database(path: &Path) {
    let conn = Connection::open(path).unwrap();
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    assert_eq!(
        number("SELECT count(*) FROM body WHERE id NOT IN (SELECT id FROM msg)"),
        0,
        "orphaned bodies"
    );
    assert_eq!(
        number("SELECT count(*) FROM msg WHERE id NOT IN (SELECT id FROM body)"),
        0,
        "messages without body"
    );
}

/// The children's actions, by their own log. They log each action before they start it, because
/// they may be killed before they could log its end.
#[derive(Default)]
struct Story {
    sent: HashSet<String>,
    completing: HashSet<String>,
    completed: HashMap<String, Vec<u32>>,
    saving: HashMap<String, u64>,
    saved: HashMap<String, Vec<u64>>,
    versions: HashSet<String>,
    versions_given: usize,
    again: usize,
}

impl Story {
    fn read(log: &Log) -> Self {
        let mut story = Self::default();
        for line in log.lines() {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["sent", id] => drop(story.sent.insert(id.to_owned())),
                ["again", _] => story.again += 1,
                ["completing", id] => drop(story.completing.insert(id.to_owned())),
                ["completed", id, fence] => {
                    story.completed.entry(id.to_owned()).or_default().push(fence.parse().unwrap());
                }
                ["saving", key, value] => {
                    let greatest = story.saving.entry(key.to_owned()).or_default();
                    *greatest = value.parse::<u64>().unwrap().max(*greatest);
                }
                ["saved", key, value, version] => {
                    story.saved.entry(key.to_owned()).or_default().push(value.parse().unwrap());
                    story.versions.insert(version.to_owned());
                    story.versions_given += 1;
                }
                _ => panic!("{line}"),
            }
        }
        story
    }

    fn check_messages(&self) {
        let done = |id: &&String| !self.completed.contains_key(*id) && !self.completing.contains(*id);
        assert_eq!(self.sent.iter().filter(done).count(), 0, "lost");
        assert_eq!(self.completed.values().filter(|fences| fences.len() > 1).count(), 0, "completed twice");
    }

    /// Each save adds one to the loaded value, so two saves of one value mean that one was lost.
    async fn check_saves(&self, store: &Store) {
        for (key, values) in &self.saved {
            let distinct: HashSet<_> = values.iter().collect();
            assert_eq!(distinct.len(), values.len(), "{key}: two saves replaced the same value");
            let job = JobId::parse(key.as_str()).unwrap();
            let stored = store.records.load(&job).await.unwrap().unwrap();
            let value = number(&stored.bytes);
            let state = store.records.payload(&job, &state_of(value)).await.unwrap();
            assert!(
                state.is_some_and(|state| number(&state) == value),
                "{key}: the record's payload is there"
            );
            assert!(*values.iter().max().unwrap() <= value && value <= self.saving[key], "{key} is {value}");
        }
        assert_eq!(self.versions.len(), self.versions_given, "a version was used twice");
    }

    /// The output of each job is complete, and its writer is not older than the worker that
    /// completed the job.
    async fn check_outputs(&self, store: &Store) {
        for (id, fences) in &self.completed {
            let output =
                store.blobs.get(&output_of(id)).await.unwrap().expect("a completed job has its output");
            let fence = u32::try_from(number(&output)).unwrap();
            assert!(
                output.len() == output_bytes(fence) && fence >= fences[0],
                "{id}: {fence} over {}",
                fences[0]
            );
        }
    }
}

/// The length of the output of a job's delivery: some are rows and some are files, so that one
/// replaces the other.
fn output_bytes(dequeue_count: u32) -> usize {
    if dequeue_count.is_multiple_of(2) { 100_000 } else { 2_000 }
}

fn output_of(id: &str) -> BlobName {
    BlobName::parse(format!("out/{id}.bin")).unwrap()
}

/// Returns the payload of the record with this value.
fn state_of(value: u64) -> PayloadName {
    PayloadName::parse(format!("state-{value}")).unwrap()
}

/// Returns a number with so much text after it that half a write is detected.
fn padded(number: u64, bytes: usize) -> Vec<u8> {
    let mut text = number.to_string().into_bytes();
    text.resize(bytes, b' ');
    text
}

fn number(bytes: &[u8]) -> u64 {
    str::from_utf8(bytes).unwrap().trim_end().parse().unwrap()
}

pub(crate) async fn produce(store: &Store, say: &Say) {
    loop {
        for id in send(store, 4).await {
            say.say(&format!("sent {id}"));
        }
        sleep(Duration::from_millis(8)).await;
    }
}

pub(crate) async fn consume(store: &Store, say: &Say, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    loop {
        let deliveries = store.queue.receive(2, Duration::from_secs(2)).await.unwrap();
        if deliveries.is_empty() {
            sleep(Duration::from_millis(2)).await;
        }
        for delivery in deliveries {
            let pause = Duration::from_micros(rng.random_range(0..3_000));
            if delivery.dequeue_count > 1 {
                say.say(&format!("again {}", delivery.id));
            }
            work(store, say, delivery, pause).await;
        }
    }
}

/// Runs one job: half of it, a renewal, a save, an output, the end.
async fn work(store: &Store, say: &Say, delivery: Delivery, pause: Duration) {
    let id = delivery.id.to_string();
    sleep(pause).await;
    let receipt = match store.queue.renew(&delivery.receipt, Duration::from_secs(2)).await {
        Ok(receipt) => receipt,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}"),
    };
    let stale = store.queue.complete(&delivery.receipt).await.expect_err("the old receipt holds nothing");
    assert_eq!(stale.kind(), ErrorKind::LeaseLost, "{stale}");

    save(store, say, &format!("job-{}", id.parse::<u64>().unwrap() % 16)).await;
    let writer =
        Writer { job: JobId::parse(id.clone()).unwrap(), fence: Fence::new(0, delivery.dequeue_count) };
    let output = padded(delivery.dequeue_count.into(), output_bytes(delivery.dequeue_count));
    match store.blobs.put(&output_of(&id), output, Some(&writer)).await {
        Ok(()) => {}
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Superseded, "{error}"),
    }
    say.say(&format!("completing {id}"));
    match store.queue.complete(&receipt).await {
        Ok(()) => say.say(&format!("completed {id} {}", delivery.dequeue_count)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}"),
    }
}

/// Adds one to a value that other processes add to as well.
async fn save(store: &Store, say: &Say, key: &str) {
    loop {
        let job = JobId::parse(key).unwrap();
        let stored = store.records.load(&job).await.unwrap();
        let (value, version) =
            stored.map_or((1, None), |stored| (number(&stored.bytes) + 1, Some(stored.version)));
        let write = RecordWrite {
            record: padded(value, 500),
            payload: Some(Payload { name: state_of(value), bytes: padded(value, 2_000).into() }),
            obsolete: vec![state_of(value - 1)],
            ..RecordWrite::default()
        };
        say.say(&format!("saving {key} {value}"));
        match store.records.put(&job, version.as_ref(), write).await {
            Ok(version) => return say.say(&format!("saved {key} {value} {}", version.as_str())),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
        }
    }
}
