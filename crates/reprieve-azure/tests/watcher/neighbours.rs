//! Several watchers on one VM that share a directory: one asks, all hear.

use std::fs::{self, File};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use reprieve_azure::scheduled_events::{ApiVersion, Watcher};
use reprieve_core::ports::Change;
use reprieve_core::{NoticeKind, Phase};
use reprieve_sim::metadata::{Config, Endpoint, Fault, FaultRule, MetadataServer};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::support::{ME, NOTICE, check, client, next, noticed, seconds, server};

const WORKERS: usize = 8;

/// The number of requests for events.
fn requests(server: &MetadataServer) -> u64 {
    server.state().vms.iter().map(|vm| vm.polls).sum()
}

/// Watchers in one directory that have had their first answers.
async fn neighbours(server: &MetadataServer) -> (TempDir, Vec<Watcher>) {
    let directory = tempfile::tempdir().expect("a directory");
    let start = |_| Watcher::spawn(client(server).sharing(directory.path()), Some(ME.to_owned()));
    let watchers: Vec<_> = (0..WORKERS).map(start).collect();
    for answered in join_all(watchers.iter().map(|watcher| next(watcher, seconds(5)))).await {
        assert_eq!(answered, Change::Answered);
    }
    (directory, watchers)
}

/// Real time: the answers cross the file system, for which a paused clock does not wait.
#[tokio::test]
async fn eight_workers_send_as_many_requests_as_one_and_all_hear_a_preempt() {
    let server = server().await;
    let (_directory, watchers) = neighbours(&server).await;
    let before = requests(&server);
    sleep(seconds(5)).await;
    let sent = requests(&server) - before;
    assert!((8..=12).contains(&sent), "{sent} requests in 5 s: two versions, each once a second");
    server.evict(ME, NOTICE).expect("a known VM");
    let announced = Instant::now();
    for watcher in &watchers {
        let notice = noticed(watcher, seconds(3)).await;
        check(&notice, &NoticeKind::Preempt, Phase::Scheduled);
        assert!(
            notice.received - announced <= Duration::from_millis(2_000),
            "{:?}",
            notice.received - announced
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn another_worker_takes_over_within_a_second_and_a_half() {
    let server = server().await;
    let (_directory, mut watchers) = neighbours(&server).await;
    // The first asks.
    while watchers.len() > 1 {
        drop(watchers.remove(0));
        let dropped = Instant::now();
        let before = requests(&server);
        let asked = timeout(seconds(3), async {
            while requests(&server) == before {
                sleep(Duration::from_millis(10)).await;
            }
        });
        asked.await.expect("somebody asks");
        assert!(dropped.elapsed() <= Duration::from_millis(1_500), "{:?}", dropped.elapsed());
    }
    server.evict(ME, NOTICE).expect("a known VM");
    check(&noticed(&watchers[0], seconds(3)).await, &NoticeKind::Preempt, Phase::Scheduled);
    server.stop().await;
}

/// Each polled in lanes of its own before, and took another one's lock for a version: together they sent more
/// than the limit, and single ones heard up to 22 s late.
#[tokio::test]
async fn eight_workers_hear_a_preempt_under_the_limit_where_an_older_version_answers_and_the_one_that_polls_ends()
 {
    let config = Config { requests_per_second: NonZeroU32::new(5), ..Config::with_vms([ME]) };
    let server = MetadataServer::start(config).await.expect("a mock");
    let (_directory, mut watchers) = neighbours(&server).await;
    sleep(seconds(2)).await;
    assert!(watchers.iter().all(|watcher| watcher.stats().errors == 0), "no 429 at the start");
    for version in ApiVersion::ALL.into_iter().filter(|version| *version != ApiVersion::V2019_04_01) {
        let rule = FaultRule { version: Some(version.to_string()), ..FaultRule::new("503") };
        server.add_fault(&rule).expect("a rule");
    }
    sleep(seconds(2)).await;
    drop(watchers.remove(0));
    server.evict(ME, NOTICE).expect("a known VM");
    let announced = Instant::now();
    for watcher in &watchers {
        let notice = noticed(watcher, seconds(10)).await;
        assert!(notice.received - announced <= seconds(3), "{:?}", notice.received - announced);
    }
    server.stop().await;
}

/// A file about the events, beside the lock of the worker that polls.
fn file(directory: &Path, extension: &str) -> PathBuf {
    let mut names =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let lock = names.find(|path| path.extension() == Some("lock0".as_ref())).expect("a lock");
    lock.with_extension(extension)
}

/// An answer that another worker was given meanwhile, and that the others have yet to read, stays where it is.
#[tokio::test]
async fn what_is_no_document_is_shared_as_a_failure_and_replaces_no_answer() {
    for fault in [Fault::Empty, Fault::Garbage("<html>sign in</html>".to_owned())] {
        let server = server().await;
        let (directory, watchers) = neighbours(&server).await;
        server.inject(Endpoint::ScheduledEvents, &fault, 1_000);
        while watchers.iter().any(|watcher| watcher.stats().errors == 0) {
            sleep(Duration::from_millis(10)).await;
        }
        let text = fs::read(file(directory.path(), "json")).expect("text");
        let shared: Vec<serde_json::Value> = serde_json::from_slice(&text).expect("answers");
        let (answers, failures): (Vec<_>, Vec<_>) = shared.iter().partition(|it| it["failure"].is_null());
        let is_document = |text: &str| text.contains("DocumentIncarnation");
        assert!(
            !answers.is_empty() && answers.iter().all(|it| it["text"].as_str().is_some_and(is_document)),
            "{fault:?}: {answers:?}"
        );
        assert!(failures.iter().any(|it| it["failure"]["kind"] == "garbage"), "{fault:?}: {failures:?}");
        server.stop().await;
    }
}

/// Holds the lock of the worker that polls, and shows that it lives. It gets no answers.
async fn poll_in_vain(directory: &Path) -> AbortOnDropHandle<()> {
    let path = file(directory, "lock0");
    let lock = File::options().write(true).open(&path).expect("the lock's file");
    while lock.try_lock().is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    // What was answered before, if that was written yet.
    let answers = path.with_extension("json");
    assert!(fs::remove_file(&answers).is_ok() || !answers.exists());
    AbortOnDropHandle::new(tokio::spawn(async move {
        let _lock = lock;
        for sign in 1_u64.. {
            fs::write(path.with_extension("sign0"), sign.to_be_bytes()).expect("a sign");
            sleep(Duration::from_millis(300)).await;
        }
    }))
}

/// A file that keeps whoever opens it until it is dropped, as one on a disk that hangs does.
#[cfg(unix)]
struct Hanging(PathBuf);

#[cfg(unix)]
impl Hanging {
    fn put(path: PathBuf) -> Self {
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success(), "{}", path.display());
        Self(path)
    }
}

#[cfg(unix)]
impl Drop for Hanging {
    fn drop(&mut self) {
        let aside = self.0.with_extension("aside");
        let opened =
            fs::rename(&self.0, &aside).and_then(|()| File::options().read(true).write(true).open(&aside));
        drop(opened.expect("a pipe"));
    }
}

/// Real time: a thread is blocked.
#[cfg(unix)]
#[tokio::test]
async fn workers_whose_directory_hangs_poll_for_themselves_hear_a_preempt_and_share_again_afterwards() {
    let server = server().await;
    let (directory, watchers) = neighbours(&server).await;
    let hanging = Hanging::put(file(directory.path(), "claim"));
    server.evict(ME, NOTICE).expect("a known VM");
    let announced = Instant::now();
    for watcher in &watchers {
        check(&noticed(watcher, seconds(4)).await, &NoticeKind::Preempt, Phase::Scheduled);
        assert!(announced.elapsed() <= seconds(3), "{:?}", announced.elapsed());
    }
    let rate = async || {
        let before = requests(&server);
        sleep(seconds(2)).await;
        requests(&server) - before
    };
    let alone = rate().await;
    assert!(alone >= WORKERS as u64 * 2, "each polls: {alone} requests in 2 s");
    drop(hanging);
    let shared = timeout(seconds(10), async { while rate().await > 6 {} }).await;
    shared.expect("one of them polls again");
    server.stop().await;
}

/// A single poll may take as long as one of the worker that polls.
#[tokio::test]
async fn a_worker_beside_one_that_polls_in_vain_hears_a_service_that_takes_seconds() {
    let server = server().await;
    let directory = tempfile::tempdir().expect("a directory");
    let spawn = || Watcher::spawn(client(&server).sharing(directory.path()), Some(ME.to_owned()));
    let first = spawn();
    assert_eq!(next(&first, seconds(5)).await, Change::Answered);
    drop(first);
    let _in_vain = poll_in_vain(directory.path()).await;
    server.inject(Endpoint::ScheduledEvents, &Fault::Late(seconds(4)), 1_000);
    let began = Instant::now();
    let watchers = [spawn(), spawn()];
    for watcher in &watchers {
        assert_eq!(next(watcher, seconds(9)).await, Change::Answered);
    }
    assert!(
        began.elapsed() >= seconds(6),
        "it tries after 2 s, and the answer takes 4: {:?}",
        began.elapsed()
    );
    server.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_worker_whose_service_does_not_tell_its_name_has_it_from_another_one() {
    for fault in [Fault::Status(500), Fault::Hang] {
        let server = server().await;
        let directory = tempfile::tempdir().expect("a directory");
        let spawn = || Watcher::spawn(client(&server).sharing(directory.path()), None);
        let first = spawn();
        assert_eq!(next(&first, seconds(5)).await, Change::Answered);
        server.inject(Endpoint::Instance, &fault, 1_000);
        let second = spawn();
        assert_eq!(next(&second, seconds(5)).await, Change::Answered, "{fault:?}");
        server.evict(ME, NOTICE).expect("a known VM");
        check(&noticed(&second, seconds(3)).await, &NoticeKind::Preempt, Phase::Scheduled);
        server.stop().await;
    }
}

#[tokio::test]
async fn workers_that_start_together_ask_once_for_their_machines_name() {
    let server = server().await;
    // No fault, but it counts what it lets through, and gives each request some time.
    server.inject(Endpoint::Instance, &Fault::Late(Duration::from_millis(200)), 1_000);
    let directory = tempfile::tempdir().expect("a directory");
    let clients: Vec<_> = (0..WORKERS).map(|_| client(&server).sharing(directory.path())).collect();
    let names =
        clients.iter().flat_map(|client| [client.compute_once(seconds(5)), client.compute_once(seconds(5))]);
    for compute in join_all(names).await {
        assert_eq!(compute.expect("an answer").name, ME);
    }
    assert_eq!(server.state().faults[0].injected, 1);
    // One that has the answer of the others, and one that asks in any case.
    let later = client(&server).sharing(directory.path());
    assert_eq!(later.compute_once(seconds(5)).await.expect("an answer").name, ME);
    assert_eq!(server.state().faults[0].injected, 1);
    assert_eq!(later.compute(seconds(5)).await.expect("an answer").name, ME);
    assert_eq!(server.state().faults[0].injected, 2);
    server.stop().await;
}
