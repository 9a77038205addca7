//! Waits for a condition, with a limit.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often a condition is checked.
const EVERY: Duration = Duration::from_millis(10);

/// Checks `condition` until it returns a value, and returns that.
///
/// # Panics
/// After `limit`; the message contains `what`.
pub async fn until<T>(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} until {what}");
        sleep(EVERY).await;
    }
}

/// Checks `condition` until it holds.
///
/// # Panics
/// After `limit`; the message contains `what`.
pub async fn until_true(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    until(what, limit, async || condition().then_some(())).await;
}

/// Does the same as [`until_true`] and blocks the thread, for tests without a runtime.
///
/// # Panics
/// After `limit`; the message contains `what`.
#[expect(clippy::disallowed_methods, reason = "without a runtime, only the thread can sleep")]
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {limit:?} until {what}");
        std::thread::sleep(EVERY);
    }
}
