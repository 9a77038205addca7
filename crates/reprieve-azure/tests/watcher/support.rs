//! A mock and a watcher of one of its VMs, on one runtime with a clock that jumps ahead while the
//! runtime is idle.
//!
//! Sockets are real, so the clock may also jump while an answer is on its way between two tasks;
//! then it is a poll later. Limits below leave room for that.

#[cfg(not(target_os = "macos"))]
use std::net::SocketAddr;
#[cfg(not(target_os = "macos"))]
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use reprieve_azure::scheduled_events::{Client, Watcher};
use reprieve_core::ports::{Change, Ending, InterruptionSource};
use reprieve_core::{Notice, NoticeKind, Phase};
use reprieve_sim::metadata::{Config, MetadataServer};
use tokio::time::timeout;

pub(crate) const ME: &str = "workers_0";
pub(crate) const NEIGHBOUR: &str = "workers_1";
pub(crate) const NOTICE: Duration = Duration::from_secs(30);

pub(crate) const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) async fn server() -> MetadataServer {
    MetadataServer::start(Config::with_vms([ME, NEIGHBOUR])).await.expect("a mock")
}

pub(crate) fn client(server: &MetadataServer) -> Client {
    Client::new(&server.vm_url(ME)).expect("a base URL")
}

/// A mock that can be stopped and restarted at the same address.
///
/// It has its own loopback address, because on 127.0.0.1 another process might take the port
/// meanwhile. (Not on macOS, which has only one.)
#[cfg(not(target_os = "macos"))]
pub(crate) async fn server_at_its_own_address() -> MetadataServer {
    static TESTS: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let addr = SocketAddr::from(([127, high | 1, low, TESTS.fetch_add(1, Ordering::Relaxed)], 0));
    MetadataServer::start(Config { addr, ..Config::with_vms([ME, NEIGHBOUR]) }).await.expect("a mock")
}

/// Starts a watcher as [`ME`].
pub(crate) fn watch(server: &MetadataServer) -> Watcher {
    Watcher::spawn(client(server), None)
}

/// Starts a mock, and a watcher that has had its first answer, without active events.
pub(crate) async fn calm() -> (MetadataServer, Watcher) {
    let server = server().await;
    let watcher = watch(&server);
    assert_eq!(next(&watcher, seconds(2)).await, Change::Answered);
    (server, watcher)
}

/// The next change other than this VM's name.
async fn event(watcher: &Watcher) -> Change {
    loop {
        match watcher.next().await {
            Change::Named(_) => {}
            change => return change,
        }
    }
}

#[track_caller]
pub(crate) fn next(watcher: &Watcher, within: Duration) -> impl Future<Output = Change> {
    let caller = std::panic::Location::caller();
    async move {
        let change = timeout(within, event(watcher));
        change
            .await
            .unwrap_or_else(|_| panic!("{caller}: no change within {within:?}; {:?}", watcher.stats()))
    }
}

pub(crate) async fn noticed(watcher: &Watcher, within: Duration) -> Notice {
    match next(watcher, within).await {
        Change::Noticed(notice) => notice,
        other => panic!("a notice was due, not {other:?}"),
    }
}

pub(crate) async fn over(watcher: &Watcher, within: Duration) -> Ending {
    match next(watcher, within).await {
        Change::Over(_, ending) => ending,
        other => panic!("an ending was due, not {other:?}"),
    }
}

/// Checks that nothing changes for this long, while polls continue.
pub(crate) async fn calm_for(watcher: &Watcher, long: Duration) {
    let before = watcher.stats().polls;
    if let Ok(change) = timeout(long, event(watcher)).await {
        panic!("nothing was due, but {change:?}");
    }
    assert!(watcher.stats().polls > before, "{:?}", watcher.stats());
}

/// Waits until `met`, for a minute at most.
pub(crate) async fn until(what: &str, met: impl FnMut() -> bool) {
    reprieve_testkit::until_true(what, seconds(60), met).await;
}

#[track_caller]
pub(crate) fn check(notice: &Notice, kind: &NoticeKind, phase: Phase) {
    assert_eq!((&notice.kind, notice.phase), (kind, phase));
}
