//! Processes that share a directory, on a clock that jumps ahead while all wait.

use std::cell::Cell;

use futures_util::future::join_all;
use reprieve_core::clock::{simulate, wall_now};
use tempfile::TempDir;

use super::*;

const VERSION: &str = "1";

/// The timeout of a poll.
const WITHIN: Duration = Duration::from_secs(3);

struct Vm {
    directory: TempDir,
}

impl Vm {
    fn new() -> Self {
        simulate(wall_now());
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn process(&self) -> SharedAnswers {
        SharedAnswers::new(&self.path(), "http://127.0.0.1/")
    }

    /// A directory that can be removed.
    fn path(&self) -> PathBuf {
        self.directory.path().join("state")
    }
}

fn body(text: &str) -> Body {
    let ahead = Some(jiff::SignedDuration::from_millis(1_500));
    Body { bytes: text.as_bytes().to_vec(), ahead }
}

fn refused(status: Option<u16>) -> Failure {
    Failure {
        kind: FailureKind::of_status(429),
        status,
        retry_after: None,
        error: Error::new(ErrorKind::Unavailable, OPERATION, "too many requests"),
    }
}

/// Asks, and returns `answer`.
async fn asked(of: &SharedAnswers, answer: &str) -> String {
    let asked = of.answer(VERSION, WITHIN, async { Ok((body(answer), Instant::now())) }).await;
    String::from_utf8(asked.expect("an answer").0.bytes).expect("text")
}

/// Polls each second, for as many seconds. Counts the requests.
async fn polls(of: &SharedAnswers, phase_ms: u64, seconds: u64, requests: &Cell<u64>) {
    let began = Instant::now() + Duration::from_millis(phase_ms);
    for second in 0..seconds {
        tokio::time::sleep_until(began + Duration::from_secs(second)).await;
        let ask = async {
            requests.set(requests.get() + 1);
            sleep(Duration::from_millis(5)).await;
            Ok((body("polled"), Instant::now()))
        };
        of.answer(VERSION, WITHIN, ask).await.expect("an answer");
    }
}

/// All processes poll for some seconds. Returns the number of requests.
async fn requests(of: &[SharedAnswers], seconds: u64) -> u64 {
    let requests = Cell::new(0);
    join_all((130..).step_by(130).zip(of).map(|(phase, it)| polls(it, phase, seconds, &requests))).await;
    requests.get()
}

#[tokio::test(start_paused = true)]
async fn one_process_asks_and_the_others_read_its_answers_until_it_ends() {
    let vm = Vm::new();
    let (first, second) = (vm.process(), vm.process());
    assert_eq!(asked(&first, "a").await, "a");
    assert_eq!(asked(&second, "never asked").await, "a");
    let reading = asked(&second, "never asked");
    let writing = async {
        sleep(LOOK_EVERY * 2).await;
        asked(&first, "b").await
    };
    assert_eq!(tokio::join!(reading, writing), ("b".to_owned(), "b".to_owned()));
    drop(first);
    assert_eq!(asked(&second, "taken over").await, "taken over");
}

#[tokio::test(start_paused = true)]
async fn refusals_and_the_lack_of_an_answer_are_shared() {
    let vm = Vm::new();
    let (first, second) = (vm.process(), vm.process());
    assert_eq!(asked(&first, "a").await, "a");
    let mut seen = Some(0);
    assert!(matches!(second.look(VERSION, &mut seen), Look::News(..)));
    for (kind, status) in [(FailureKind::Throttled, Some(429)), (FailureKind::TimedOut, None)] {
        sleep(Duration::from_millis(50)).await;
        first.write(VERSION, Instant::now(), &Err(Failure { kind, ..refused(status) }));
        let Look::News(written, sent) = second.look(VERSION, &mut seen) else { panic!("no news") };
        let failure = written.read(sent).expect_err("a failure");
        assert_eq!((failure.kind, failure.status), (kind, status));
        assert!(failure.passes() && failure.error.to_string().contains("too many requests"));
        assert!(matches!(second.look(VERSION, &mut seen), Look::Wait));
    }
}

#[tokio::test(start_paused = true)]
async fn one_other_process_asks_while_the_first_is_stopped_and_until_it_asks_again() {
    let vm = Vm::new();
    let stopped = vm.process();
    assert_eq!(asked(&stopped, "a").await, "a");
    let others: Vec<_> = (0..7).map(|_| vm.process()).collect();
    let began = Instant::now();
    let requests_of_others = requests(&others, 20).await;
    assert!((19..=21).contains(&requests_of_others), "{requests_of_others} requests in 20 s");
    assert!(began.elapsed() < Duration::from_millis(21_500), "each poll has an answer within 1.5 s");
    let (before, after) = (Cell::new(0), Cell::new(0));
    let others = others.iter().map(|other| polls(other, 300, 10, &after));
    tokio::join!(polls(&stopped, 0, 10, &before), join_all(others));
    assert_eq!(before.get(), 10);
    assert!(after.get() <= 1, "{} requests of the others", after.get());
}

#[tokio::test(start_paused = true)]
async fn the_next_process_asks_when_the_second_is_stopped_too() {
    let vm = Vm::new();
    let stopped: Vec<_> = (0..3).map(|_| vm.process()).collect();
    for (rank, process) in (0..).zip(&stopped) {
        assert_eq!(asked(process, "a").await, "a");
        sleep(SILENT_AFTER * (rank + 1)).await;
    }
    let others: Vec<_> = (0..6).map(|_| vm.process()).collect();
    let sent = requests(&others, 20).await;
    assert!((18..=22).contains(&sent), "{sent} requests in 20 s");
}

#[tokio::test(start_paused = true)]
async fn no_other_process_asks_while_the_first_waits_for_an_answer() {
    let vm = Vm::new();
    let processes: Vec<_> = (0..8).map(|_| vm.process()).collect();
    let requests = Cell::new(0);
    // The service hangs, and a poll times out after three seconds.
    let hang = async |of: &SharedAnswers| {
        let ask = async {
            requests.set(requests.get() + 1);
            sleep(WITHIN).await;
            Err(refused(None))
        };
        of.answer(VERSION, WITHIN, ask).await.expect_err("no answer");
    };
    let polls = async |of: &SharedAnswers, phase: u64| {
        sleep(Duration::from_millis(phase)).await;
        let polls = (0..20).map(async |second| {
            sleep(Duration::from_secs(second)).await;
            hang(of).await;
        });
        join_all(polls).await;
    };
    join_all((0..).step_by(130).zip(&processes).map(|(phase, it)| polls(it, phase))).await;
    assert!((20..=23).contains(&requests.get()), "{} requests in 20 s", requests.get());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_requested_before_the_last_one_is_no_news() {
    let vm = Vm::new();
    let (stopped, other, reader) = (vm.process(), vm.process(), vm.process());
    assert_eq!(asked(&stopped, "a").await, "a");
    let requested = Instant::now();
    sleep(SILENT_AFTER * 2).await;
    assert_eq!(asked(&other, "Preempt").await, "Preempt");
    let mut seen = Some(0);
    assert!(matches!(reader.look(VERSION, &mut seen), Look::News(..)));
    sleep(Duration::from_secs(1)).await;
    stopped.write(VERSION, requested, &Ok((body("outdated"), requested)));
    assert!(matches!(reader.look(VERSION, &mut seen), Look::Wait));
    assert_eq!(asked(&other, "Preempt").await, "Preempt", "and does not end the other's asking");
    assert!(matches!(reader.look(VERSION, &mut seen), Look::News(..)));
}

#[tokio::test(start_paused = true)]
async fn a_poll_takes_an_answer_once_and_none_that_is_old() {
    let vm = Vm::new();
    let (first, second, third) = (vm.process(), vm.process(), vm.process());
    assert_eq!(asked(&first, "a").await, "a");
    assert!(matches!(second.look(VERSION, &mut None), Look::News(..)));
    assert!(matches!(second.look(VERSION, &mut None), Look::Wait));
    sleep(Duration::from_secs(2)).await;
    assert!(matches!(third.look(VERSION, &mut None), Look::Wait));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_a_process_only_tried_is_left_to_the_others() {
    let vm = Vm::new();
    let (first, second) = (vm.process(), vm.process());
    assert_eq!(asked(&first, "a").await, "a");
    sleep(LEADS_FOR + LOOK_EVERY).await;
    assert!(matches!(first.look("2", &mut None), Look::Ask), "its other version");
    assert!(matches!(second.look(VERSION, &mut None), Look::Ask));
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_can_not_be_used_is_no_hindrance() {
    let shared = SharedAnswers::new(Path::new("/nonexistent/reprieve"), "");
    assert_eq!(asked(&shared, "a").await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_was_removed_is_made_again_and_one_process_asks() {
    let vm = Vm::new();
    let processes: Vec<_> = (0..6).map(|_| vm.process()).collect();
    assert!((5..=6).contains(&requests(&processes, 5).await));
    fs::remove_dir_all(vm.path()).expect("removed");
    assert!((10..=11).contains(&requests(&processes, 10).await));
    fs::remove_dir_all(vm.path()).expect("it was made again");
    fs::write(vm.path(), "in the way").expect("a file");
    assert!(requests(&processes, 2).await >= 12, "each by itself");
    fs::remove_file(vm.path()).expect("removed");
    assert!((10..=11).contains(&requests(&processes, 10).await));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_can_not_write_leaves_the_asking_to_another() {
    let vm = Vm::new();
    let (first, second) = (vm.process(), vm.process());
    assert_eq!(asked(&first, "a").await, "a");
    let [answer, other] = ["json", "aside"].map(|what| first.files(VERSION).with_extension(what));
    fs::rename(&answer, &other).and_then(|()| fs::create_dir(&answer)).expect("a directory in the way");
    assert_eq!(asked(&first, "b").await, "b");
    fs::remove_dir(&answer).expect("removed");
    assert_eq!(asked(&second, "c").await, "c");
    assert_eq!(asked(&first, "never asked").await, "c");
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_replace_a_newer_one() {
    let vm = Vm::new();
    let shared = vm.process();
    assert!(matches!(shared.look(VERSION, &mut None), Look::Ask));
    let early = Instant::now();
    sleep(Duration::from_secs(1)).await;
    let late = Instant::now();
    shared.write(VERSION, late, &Ok((body("late"), late)));
    shared.write(VERSION, early, &Ok((body("early"), early)));
    let text = fs::read_to_string(shared.files(VERSION).with_extension("json")).expect("a file");
    assert!(text.contains("late"), "{text}");
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn the_instance_document_is_kept_for_this_boot() {
    let vm = Vm::new();
    let (first, second) = (vm.process(), vm.process());
    assert_eq!(second.kept_instance(), None);
    first.keep_instance(b"{}");
    assert_eq!(second.kept_instance().as_deref(), Some(&b"{}"[..]));
    assert_eq!(SharedAnswers::new(&vm.path(), "http://127.0.0.2/").kept_instance(), None);
    let other_boot = format!("{}\n{{}}", "0".repeat(36));
    fs::write(first.instance_file("json"), other_boot).expect("written");
    assert_eq!(second.kept_instance(), None);
}
