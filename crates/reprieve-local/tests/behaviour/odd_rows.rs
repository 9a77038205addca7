//! Rows that are damaged so that SQLite can't say what they hold: they stop nothing but themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::ports::{NewMessage, Payload, RecordWrite, Store};
use reprieve_core::record::{Place, open};
use reprieve_core::retention::{Cleaner, Keep, Position};
use reprieve_core::worker::{Settings, Worker, stopping};
use reprieve_core::{Job, JobContext, JobError, Step};

use crate::bench::{Bench, blob, eventually, job, payload};
use crate::whole_worker::{interrupted_job, run};

/// Closes the store, and waits until it has written everything into the database's file.
async fn close(bench: &Bench, store: Store) {
    drop(store);
    let is_busy = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    eventually("the store is closed", async || {
        bench.conn().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], is_busy).is_ok_and(|busy| busy == 0)
    })
    .await;
}

/// Where the content is in the database's file.
fn place_of(bench: &Bench, content: &[u8]) -> usize {
    let file = std::fs::read(bench.path()).unwrap();
    file.windows(content.len()).position(|at| at == content).expect("the row is in the file")
}

/// Flips a bit of the database's file. The lowest one of a column's type tells a text from bytes.
fn flip(bench: &Bench, at: usize, bit: u8) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(bench.path()).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << bit)], at as u64).unwrap();
}

/// The last byte of the row's header says that the last column is a text and not bytes.
#[tokio::test]
async fn a_record_whose_row_says_text_is_read() {
    let bench = Bench::new();
    let store = bench.open().await;
    let write = RecordWrite { record: b"reprieve-record of a test".to_vec(), ..RecordWrite::default() };
    store.records.put(&job("a"), None, write).await.unwrap();
    close(&bench, store).await;
    let at = place_of(&bench, b"reprieve-record of a test");
    // Before it: the header, the job, and six bytes of time; the note is empty.
    flip(&bench, at - 6 - 1 - 1, 0);
    let store = bench.open().await;
    let loaded = store.records.load(&job("a")).await;
    assert_eq!(loaded.unwrap().unwrap().bytes, b"reprieve-record of a test");
}

#[tokio::test]
async fn a_whole_worker_goes_on_beside_a_record_whose_row_says_text() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let id = interrupted_job(&store, 20).await;
    let whole = store.records.load(&id).await.unwrap().unwrap().bytes;
    close(&bench, store).await;
    let at = place_of(&bench, &whole);
    flip(&bench, at - 6 - id.as_str().len() - 1, 0);
    let store = bench.open_worker().await;
    let began = tokio::time::timeout(Duration::from_secs(30), run(&store, 20)).await;
    assert!(began.unwrap()[0] > 0, "it goes on at its checkpoint");
}

/// One row in a list has a column of another type: the rest of the list is still cleaned.
#[tokio::test]
async fn a_record_whose_note_is_no_text_does_not_stop_the_cleaning() {
    let bench = Bench::new();
    let store = bench.open().await;
    let write = RecordWrite { record: b"reprieve-record of a test".to_vec(), ..RecordWrite::default() };
    store.records.put(&job("a"), None, write).await.unwrap();
    close(&bench, store).await;
    let at = place_of(&bench, b"reprieve-record of a test");
    flip(&bench, at - 6 - 1 - 1 - 1, 0);
    let store = bench.open().await;
    let cleaner = Cleaner::new(store, Keep::default());
    let mut position = Some(Position::default());
    while let Some(at) = position {
        position = cleaner.clean(&at).await.unwrap_or_else(|error| panic!("{at:?}: {error}")).next;
    }
}

/// One message's body is a text: the others are still received.
#[tokio::test]
async fn a_message_whose_row_says_text_does_not_stop_the_queue() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let message = |body: &str| NewMessage { body: body.as_bytes().to_vec(), delay: Duration::ZERO };
    store.queue.send(vec![message("the first message"), message("the second message")]).await.unwrap();
    close(&bench, store).await;
    let at = place_of(&bench, b"the first message");
    flip(&bench, at - 12 - 1, 0);
    let store = bench.open_worker().await;
    let mut received = Vec::new();
    for _ in 0..5 {
        received.extend(store.queue.receive(1, Duration::from_secs(60)).await.unwrap());
    }
    assert!(received.iter().any(|it| it.body == b"the second message"), "{received:?}");
}

/// A flipped bit of a text makes it no UTF-8.
#[tokio::test]
async fn a_text_that_is_no_utf_8_does_not_stop_the_cleaning() {
    let mut wrong = Vec::new();
    for damage in [
        "UPDATE record SET note = CAST(x'22ff22' AS TEXT)",
        "UPDATE record SET job = CAST(x'e1' AS TEXT)",
        "UPDATE payload SET name = CAST(x'ff' AS TEXT)",
        "UPDATE payload SET job = CAST(x'e1' AS TEXT)",
        "UPDATE blob SET name = CAST(CAST('args/' AS BLOB) || x'ff' AS TEXT)",
    ] {
        let bench = Bench::new();
        let store = bench.open().await;
        let payload = Some(Payload { name: payload("0.m.1-1"), bytes: vec![1].into() });
        let write = RecordWrite { payload, note: "\"stored\"".to_owned(), ..RecordWrite::default() };
        store.records.put(&job("a"), None, write).await.unwrap();
        store.blobs.put(&blob("args/a.json"), vec![1], None).await.unwrap();
        assert_eq!(bench.conn().execute(damage, []).unwrap(), 1);
        let cleaner = Cleaner::new(store, Keep::default());
        let mut position = Some(Position::default());
        while let Some(at) = position {
            match cleaner.clean(&at).await {
                Ok(part) => position = part.next,
                Err(error) => {
                    wrong.push(format!("{damage}: {at:?}: {error}"));
                    position = None;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The row of the newest payload names no file that can be named. The job goes on at the checkpoint before,
/// and can save again.
#[tokio::test]
async fn a_job_whose_payload_row_names_no_file_can_save_again() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let id = interrupted_job(&store, 600 << 10).await;
    let look = async || open(&store.records.load(&id).await.unwrap().unwrap().bytes).unwrap().checkpoints;
    let before = look().await;
    let Place::Payload(name) = &before[0].place else { panic!("it is too large for the record") };
    let change = "UPDATE payload SET file = CAST(x'fffe' AS TEXT) WHERE name = ?1";
    assert_eq!(bench.conn().execute(change, [name.as_str()]).unwrap(), 1);
    let began = run(&store, 600 << 10).await;
    assert_eq!(began, [3], "it continues at the checkpoint before");
    let after = look().await;
    assert!(after[0].sequence > before[0].sequence, "it did not save: {before:#?} {after:#?}");
}

/// The removal of the files of dead processes reads the names of all files that rows have.
#[tokio::test]
async fn a_row_that_names_no_file_does_not_stop_the_sweep() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let stored = Payload { name: payload("0.m.1-1"), bytes: vec![1; 600 << 10].into() };
    store.records.store_payload(&job("a"), stored).await.unwrap();
    let change = "UPDATE payload SET file = CAST(x'fffe' AS TEXT)";
    assert_eq!(bench.conn().execute(change, []).unwrap(), 1);
    close(&bench, store).await;
    assert_eq!(bench.files("payloads").len(), 1);
    let store = bench.open_worker().await;
    eventually("the file that no row names is swept", async || bench.files("payloads").is_empty()).await;
    store.records.remove_payloads(&job("a"), &[payload("0.m.1-1")]).await.unwrap();
}

/// Ends what [`interrupted_job`] began.
#[derive(Clone, Default)]
struct Ends(Arc<AtomicU32>);

#[async_trait::async_trait]
impl Job for Ends {
    const KIND: &'static str = "carries";
    type Args = ();
    type Checkpoint = (u64, String);
    type Output = ();

    fn begin(&self, (): &()) -> (u64, String) {
        (0, String::new())
    }

    async fn step(
        &self,
        _: &JobContext,
        (): &(),
        (at, text): (u64, String),
    ) -> Result<Step<(u64, String), ()>, JobError> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.0.fetch_add(1, Relaxed);
        Ok(if at < 8 { Step::Continue((at + 1, text)) } else { Step::Done(()) })
    }
}

#[tokio::test]
async fn a_job_whose_payload_row_names_no_file_can_end() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let id = interrupted_job(&store, 600 << 10).await;
    let newest = open(&store.records.load(&id).await.unwrap().unwrap().bytes).unwrap().checkpoints.remove(0);
    let Place::Payload(name) = newest.place else { panic!("it is too large for the record") };
    let change = "UPDATE payload SET file = CAST(x'fffe' AS TEXT) WHERE name = ?1";
    assert_eq!(bench.conn().execute(change, [name.as_str()]).unwrap(), 1);
    let settings =
        Settings { checkpoint_every: CheckpointEvery::Every(Duration::ZERO), ..Settings::default() };
    let job = Ends::default();
    let worker = Worker::builder(store.clone()).settings(settings).job(job.clone()).build().unwrap();
    let (stopper, stopping) = stopping();
    let running = tokio::spawn(worker.run(stopping));
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if store.queue.depth().await.unwrap().total == 0 {
            break;
        }
    }
    let depth = store.queue.depth().await.unwrap().total;
    stopper.stop();
    running.await.unwrap();
    assert_eq!((depth, job.0.load(Relaxed)), (0, 6), "the job is not settled 20 s after its last step");
}

#[tokio::test]
async fn a_blob_whose_row_names_no_file_is_damaged_and_can_be_written_again() {
    let bench = Bench::new();
    let store = bench.open().await;
    let name = blob("out/a");
    store.blobs.put(&name, vec![1; 100_000], None).await.unwrap();
    assert_eq!(bench.conn().execute("UPDATE blob SET file = CAST(x'fffe' AS TEXT)", []).unwrap(), 1);
    let all = (
        store.blobs.exists(&name).await,
        store.blobs.list("").await,
        store.blobs.get(&name).await.map_err(|it| it.kind()),
        store.blobs.put(&name, vec![2; 10], None).await,
    );
    assert!(all.0.is_ok() && all.1.is_ok() && all.3.is_ok(), "{all:#?}");
}

/// A write that meets the row that names no file fails alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_names_no_file_fails_no_write_of_other_jobs() {
    let bench = Bench::new();
    let store = bench.open().await;
    let stored = Payload { name: payload("0.m.1-1"), bytes: vec![1; 600 << 10].into() };
    store.records.store_payload(&job("a"), stored).await.unwrap();
    let change = "UPDATE payload SET file = CAST(x'fffe' AS TEXT)";
    assert_eq!(bench.conn().execute(change, []).unwrap(), 1);
    let breaking = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                drop(store.records.remove_payloads(&job("a"), &[payload("0.m.1-1")]).await);
            }
            0
        })
    });
    let writing = (0..16).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut failed = 0;
            for at in 0..50 {
                let write = RecordWrite { record: b"x".to_vec(), ..RecordWrite::default() };
                failed += u32::from(
                    store.records.put(&job(&format!("b{number}-{at}")), None, write).await.is_err(),
                );
            }
            failed
        })
    });
    let mut failed = 0;
    for task in breaking.chain(writing).collect::<Vec<_>>() {
        failed += task.await.unwrap();
    }
    assert_eq!(failed, 0, "writes of other jobs failed");
}
