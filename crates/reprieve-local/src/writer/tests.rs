//! Groups in which an operation fails.

use reprieve_core::ErrorKind;
use std::sync::Arc;

use super::*;
use crate::address::Durability;
use crate::files::Files;
use crate::schema;

struct Bench {
    writer: Writer,
    files: Files,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(prepare: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::made(&directory.path().join("a.db"));
        let mut gate = Gate::open(&files).unwrap();
        let conn = schema::connect(&files).unwrap();
        let conn = schema::open_writer(conn, &files, Durability::Process, &mut gate).unwrap();
        conn.execute_batch(prepare).unwrap();
        let bell = Bell::open(&files.bell()).unwrap();
        let (clock, file) = (Arc::new(StoreClock::new()), files.database().to_owned());
        let writer = Writer::start(conn, gate, clock, bell, file).unwrap();
        Self { writer, files, _directory: directory }
    }

    fn other_gate(&self) -> Gate {
        Gate::open(&self.files).unwrap()
    }

    /// Adds a queue with this name, and then executes `wrong`, if given.
    fn add(&self, name: &'static str, wrong: Option<&'static str>) -> oneshot::Receiver<Outcome<()>> {
        let apply = move |tx: &Tx<'_>| {
            tx.execute("INSERT INTO queue(name) VALUES(?1)", [name])?;
            if let Some(wrong) = wrong {
                tx.execute(wrong, [])?;
            }
            Ok(())
        };
        self.writer.submit(0, apply, Ok)
    }

    fn names(&self) -> Vec<String> {
        let conn = schema::open_reader(&self.files).unwrap();
        let mut names = conn.prepare("SELECT name FROM queue ORDER BY id").unwrap();
        names.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.writer.close();
    }
}

fn kind(answer: Result<Outcome<()>, oneshot::error::RecvError>) -> Result<(), ErrorKind> {
    answer.unwrap_or_else(|_| Err(Failure::stopped())).map_err(|failure| failure.during("test").kind())
}

/// Runs three operations in one group. The second executes `wrong` after it has written.
async fn the_second_fails_alone(prepare: &str, wrong: &'static str, wanted: ErrorKind) {
    let bench = Bench::new(prepare);
    let mut gate = bench.other_gate();
    // The held gate keeps the thread from taking an operation before the whole group waits.
    let held = gate.enter().unwrap();
    let (a, b, c) = (bench.add("aaa", None), bench.add("bbb", Some(wrong)), bench.add("ccc", None));
    drop(held);
    assert_eq!((kind(a.await), kind(b.await), kind(c.await)), (Ok(()), Err(wanted), Ok(())), "{wrong}");
    assert_eq!(bench.names(), ["aaa", "ccc"], "{wrong}");
    assert_eq!(kind(bench.add("ddd", None).await), Ok(()), "the thread goes on");
}

#[tokio::test]
async fn an_operation_that_fails_half_way_fails_no_other() {
    the_second_fails_alone("", "INSERT INTO queue(id, name) VALUES(1, 'x'), (1, 'y')", ErrorKind::Internal)
        .await;
}

#[tokio::test]
async fn a_commit_that_fails_is_tried_again_without_the_culprit() {
    let prepare = "PRAGMA foreign_keys = ON; CREATE TABLE parent(id INTEGER PRIMARY KEY);
        CREATE TABLE child(id INTEGER REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED);";
    the_second_fails_alone(prepare, "INSERT INTO child(id) VALUES(7)", ErrorKind::Internal).await;
}

#[tokio::test]
async fn a_full_file_fails_only_what_does_not_fit() {
    let prepare = "PRAGMA max_page_count = 60;";
    let wrong = "INSERT INTO body(queued_at, sent_at, data) VALUES(0, 0, zeroblob(1000000))";
    the_second_fails_alone(prepare, wrong, ErrorKind::Full).await;
}

#[tokio::test]
async fn an_abandoned_request_is_left_out() {
    let bench = Bench::new("");
    let mut gate = bench.other_gate();
    let held = gate.enter().unwrap();
    drop(bench.add("aaa", None));
    let b = bench.add("bbb", None);
    drop(held);
    assert_eq!(kind(b.await), Ok(()));
    assert_eq!(bench.names(), ["bbb"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_too_long_for_the_gate_is_refused_and_never_applied() {
    let bench = Bench::new("");
    let mut gate = bench.other_gate();
    let held = gate.enter().unwrap();
    let a = bench.add("aaa", None);
    bench.writer.refuse_overdue(&bench.files.write_lock());
    tokio::time::advance(TURN + Duration::from_millis(1)).await;
    let b = bench.add("bbb", None);
    bench.writer.refuse_overdue(&bench.files.write_lock());
    assert_eq!(kind(a.await), Err(ErrorKind::Unavailable));
    drop(held);
    assert_eq!(kind(b.await), Ok(()), "what came later still has its turn");
    assert_eq!(bench.names(), ["bbb"]);
}

#[tokio::test]
async fn after_a_panic_every_caller_gets_an_answer() {
    let bench = Bench::new("");
    let broken = bench.writer.submit(0, |_| -> Result<(), Fault> { panic!("on purpose") }, Ok);
    assert_eq!(kind(broken.await), Err(ErrorKind::Internal));
    assert_eq!(kind(bench.add("aaa", None).await), Err(ErrorKind::Internal));
}

#[tokio::test]
async fn closing_does_what_was_asked_before() {
    let bench = Bench::new("");
    let a = bench.add("aaa", None);
    bench.writer.close();
    assert_eq!(kind(a.await), Ok(()));
    assert_eq!(kind(bench.add("bbb", None).await), Err(ErrorKind::Internal));
}
