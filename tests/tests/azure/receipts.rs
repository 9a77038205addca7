//! Workers that are killed while their VM lives on: with `--state-dir`, their successors release what they
//! held at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reprieve_sim::storage::{Action, Operation, Rule, StorageServer};
use reprieve_tests::{Sandbox, Worker, saw_nothing, until};
use tokio::time::{Instant, sleep};

use crate::support::{PATIENCE, Walk, begun_by, double, emptied, worker};

const WALK: Walk = Walk { steps: 60, each_ms: 50 };
const JOBS: usize = 2;

/// A lease that ends after the test.
const LEASE: &str = "5m";

/// How soon a successor has the jobs. Starting the process is part of it.
const SOON: Duration = Duration::from_secs(2);

struct Machine {
    double: StorageServer,
    sandbox: Sandbox,
    directory: String,
}

impl Machine {
    async fn new() -> Self {
        let double = double().await;
        let sandbox = Sandbox::in_account(&double.connection_string(), 2).await;
        let directory = sandbox.path("state").display().to_string();
        Self { double, sandbox, directory }
    }

    fn worker(&self) -> Worker {
        let flags = ["--state-dir", &self.directory, "--lease", LEASE, "--concurrency", "2"];
        worker(&self.sandbox, &[&flags[..], &["--checkpoint-every", "0s"]].concat())
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).expect("the directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.extension().is_some_and(|end| end == "receipts")).collect()
    }
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_continues_the_jobs_of_a_killed_worker_at_once() {
    let machine = Machine::new().await;
    let jobs = WALK.enqueue(&machine.sandbox, JOBS).await;
    let mut first = machine.worker();
    begun_by(&machine.sandbox, &first, JOBS).await;
    assert_eq!((mode(Path::new(&machine.directory)), mode(&machine.files()[0])), (0o700, 0o600));
    // Some saves and renewals later.
    sleep(Duration::from_millis(500)).await;
    first.kill();
    let killed = Instant::now();
    let second = machine.worker();
    begun_by(&machine.sandbox, &second, JOBS).await;
    assert!(killed.elapsed() <= SOON, "{:?}", killed.elapsed());
    assert_eq!(machine.files().len(), 1, "only the living worker's");
    emptied(&machine.sandbox, PATIENCE).await;
    assert_eq!(WALK.check(&machine.sandbox, &jobs).await, 0);
    assert!(machine.sandbox.journal().redone() <= JOBS, "a step each");
    second.stop().await;
    assert!(machine.files().is_empty(), "nothing is held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receipts_of_living_workers_and_of_other_stores_stay() {
    let machine = Machine::new().await;
    let jobs = WALK.enqueue(&machine.sandbox, JOBS).await;
    let mut first = machine.worker();
    begun_by(&machine.sandbox, &first, JOBS).await;
    let file = machine.files().remove(0);
    let second = machine.worker();
    second.started(&machine.sandbox).await;
    sleep(Duration::from_secs(1)).await;
    assert!(file.exists(), "its worker lives");
    second.stop().await;
    first.kill();
    // As if it had been another store's.
    let text = fs::read_to_string(&file).expect("a text");
    let queue = machine.sandbox.queue();
    fs::write(&file, text.replacen(queue, &queue.replace("t-", "u-"), 1)).expect("a write");
    let third = machine.worker();
    third.started(&machine.sandbox).await;
    sleep(Duration::from_secs(1)).await;
    assert!(file.exists());
    let journal = machine.sandbox.journal().read();
    assert!(journal.iter().all(|step| step.pid != third.pid()), "the leases hold");
    assert_eq!(jobs.len(), JOBS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_does_not_answer_keeps_no_successor_from_the_work() {
    let machine = Machine::new().await;
    let mut first = machine.worker();
    first.started(&machine.sandbox).await;
    WALK.enqueue(&machine.sandbox, JOBS).await;
    begun_by(&machine.sandbox, &first, JOBS).await;
    let file = machine.files().remove(0);
    first.kill();
    // As if five workers had died.
    for copy in 0..4 {
        fs::copy(&file, file.with_file_name(format!("copy-{copy}.receipts"))).expect("a copy");
    }
    machine
        .double
        .add_fault(Rule::new(Action::Hang { applied: false }).on(Operation::Update).times(1_000))
        .expect("a rule");
    WALK.enqueue(&machine.sandbox, 1).await;
    let began = Instant::now();
    let second = machine.worker();
    begun_by(&machine.sandbox, &second, 1).await;
    assert!(began.elapsed() <= SOON * 3, "{:?}", began.elapsed());
    assert_eq!(machine.files().len(), 6, "no receipt is lost");
    machine.double.clear_faults();
    // They are released long before their leases end.
    begun_by(&machine.sandbox, &second, JOBS + 1).await;
    until("the files are gone", PATIENCE, async || (machine.files().len() == 1).then_some(())).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_of_another_boot_are_discarded() {
    let machine = Machine::new().await;
    WALK.enqueue(&machine.sandbox, JOBS).await;
    let mut first = machine.worker();
    begun_by(&machine.sandbox, &first, JOBS).await;
    let file = machine.files().remove(0);
    first.kill();
    let text = fs::read_to_string(&file).expect("a text");
    let (boot, rest) = text.split_once('\t').expect("a header");
    fs::write(&file, format!("{}\t{rest}", "0".repeat(boot.len()))).expect("a write");
    let second = machine.worker();
    until("the file is gone", PATIENCE, async || (!file.exists()).then_some(())).await;
    sleep(Duration::from_secs(1)).await;
    let journal = machine.sandbox.journal().read();
    assert!(journal.iter().all(|step| step.pid != second.pid()), "the leases hold");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_file_of_a_worker_does_not_hinder_a_start() {
    let machine = Machine::new().await;
    fs::create_dir(&machine.directory).expect("a directory");
    let path = |name: &str| Path::new(&machine.directory).join(name);
    let made = Command::new("mkfifo").arg(path("pipe.receipts")).status().expect("mkfifo runs");
    assert!(made.success());
    fs::File::create(path("huge.receipts")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    WALK.enqueue(&machine.sandbox, 1).await;
    let worker = machine.worker();
    begun_by(&machine.sandbox, &worker, 1).await;
    worker.stop().await;
    assert!(path("pipe.receipts").exists() && path("huge.receipts").exists(), "they are another's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_no_hindrance() {
    let machine = Machine::new().await;
    fs::create_dir(&machine.directory).expect("a directory");
    // A file system of one page, which is full.
    let mount = "mount -t tmpfs -o size=4k tmpfs \"$0\" || exit 1; \
                 head -c 9999 /dev/zero > \"$0/fill\" 2> /dev/null";
    let own = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let possible = format!("{mount}; exit 0");
    let tried = Command::new("unshare").args(own).args([&possible, &machine.directory]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return saw_nothing("REPRIEVE_TESTS_NEED_NAMESPACES", "no file system can be mounted");
    }
    WALK.enqueue(&machine.sandbox, 1).await;
    let run = format!("{mount}; shift; exec \"$@\"");
    let flags = ["--state-dir", &machine.directory, "--metadata-url", "off"];
    let program = [&machine.directory, "-", env!("CARGO_BIN_EXE_test-jobs")];
    let arguments = own.into_iter().chain([run.as_str()]).chain(program).chain(flags);
    let worker = Worker::start(&machine.sandbox, Path::new("unshare"), arguments);
    begun_by(&machine.sandbox, &worker, 1).await;
    let warned = "failed to create the file of receipts in --state-dir; if this worker is killed, its messages \
                  wait for the ends of their leases";
    assert_eq!(worker.log().lines(warned).len(), 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_that_can_not_be_used_is_an_error_at_the_start() {
    let machine = Machine::new().await;
    let file = machine.sandbox.path("a-file");
    fs::write(&file, "").expect("a file");
    let mut refused = worker(&machine.sandbox, &["--state-dir", &file.display().to_string()]);
    let ended = refused.ended(PATIENCE).await;
    let log = fs::read_to_string(refused.log().path()).expect("a log");
    assert_eq!(ended.code(), Some(2), "{log}");
    assert!(log.contains("a-file") && log.contains("choose another directory"), "{log}");
}
