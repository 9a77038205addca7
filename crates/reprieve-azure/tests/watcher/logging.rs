//! The log lines of the watcher.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use reprieve_core::ports::Change;
use reprieve_sim::metadata::{Config, Endpoint, Fault, FaultRule, MetadataServer};

use crate::support::{ME, calm_for, next, seconds, server, watch};

thread_local! {
    /// The log of this thread: a test and its runtime are on one thread.
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Returns this thread's lines of warning and above.
///
/// The subscriber is global, for all tests of this process: one that comes and goes with each test
/// would now and then find a line switched off by the others.
struct Log;

impl Log {
    fn start() {
        static GLOBAL: Once = Once::new();
        GLOBAL.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::WARN)
                .with_ansi(false)
                .with_writer(|| Self)
                .init();
        });
        WRITTEN.take();
    }

    fn lines_with(words: &str) -> usize {
        WRITTEN.with_borrow(|written| {
            String::from_utf8_lossy(written).lines().filter(|line| line.contains(words)).count()
        })
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.with_borrow_mut(|written| written.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_logged_once_after_five_seconds() {
    Log::start();
    let config = Config { first_answer_after: seconds(100), ..Config::with_vms([ME]) };
    let server = MetadataServer::start(config).await.expect("a mock");
    let watcher = watch(&server);
    let hint = "outside Azure set --metadata-url off";
    calm_for(&watcher, seconds(4)).await;
    assert_eq!(Log::lines_with(hint), 0);
    calm_for(&watcher, seconds(90)).await;
    assert_eq!(Log::lines_with(hint), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_name_is_logged_as_such() {
    Log::start();
    let server = server().await;
    server.inject(Endpoint::Instance, &Fault::Status(500), 1000);
    let watcher = watch(&server);
    calm_for(&watcher, seconds(30)).await;
    assert_eq!(Log::lines_with("set --vm-name"), 1);
    assert_eq!(Log::lines_with("set --metadata-url off"), 0);
}

#[tokio::test(start_paused = true)]
async fn consecutive_failures_are_logged_once_a_minute() {
    Log::start();
    let server = server().await;
    let watcher = watch(&server);
    assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
    let rule = FaultRule { lasts: Some(seconds(150).into()), ..FaultRule::new("500") };
    server.add_fault(&rule).expect("a rule");
    calm_for(&watcher, seconds(160)).await;
    assert!((282..=302).contains(&watcher.stats().errors), "{:?}", watcher.stats());
    assert_eq!(Log::lines_with("failed to poll scheduled events"), 3);
    assert_eq!(Log::lines_with(""), 3, "and no other lines");
}
