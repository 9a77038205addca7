//! Waiting for something to be so, never longer than said.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often a condition is looked at.
const EVERY: Duration = Duration::from_millis(10);

/// Looks at `condition` until it gives something, and returns that.
///
/// # Panics
/// After `limit`, naming `what` was waited for.
pub async fn until<T>(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(there) = condition().await {
            return there;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} until {what}");
        sleep(EVERY).await;
    }
}
