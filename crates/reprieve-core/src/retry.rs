//! Trying again: one loop for every call to a store, bounded by a time, never by the patience of a client library.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{Error, ErrorKind, Result};

/// How long to go on trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The longest one try may take before it counts as [`TimedOut`](ErrorKind::TimedOut). After a try that timed out the
    /// next one has twice as long, and then three times: a store that is only slow answers, and one that comes back
    /// is not missed for long.
    pub each: Duration,
    /// The longest wait between two tries, but for as much again at random.
    pub between: Duration,
    /// When to give up.
    pub until: Instant,
}

impl Patience {
    /// Tries of at most `each` until `until`, with waits that grow to 2.5 s: for when nothing hurries.
    #[must_use]
    pub const fn calm(each: Duration, until: Instant) -> Self {
        Self { each, between: Duration::from_millis(2_500), until }
    }

    /// Tries of at most `each` until `until`, with waits of at most 100 ms: for a drain, where the storage that comes back
    /// must be noticed at once.
    #[must_use]
    pub const fn hurried(each: Duration, until: Instant) -> Self {
        Self { each, between: Duration::from_millis(100), until }
    }
}

/// Longer than anything runs: for tries that only an interruption or the loss of the lease ends.
pub(crate) const FOR_EVER: Duration = Duration::from_hours(10 * 365 * 24);

/// How long something may fail before that is worth a line in the log.
const HICCUP: Duration = Duration::from_secs(1);

/// Whether another try of the framework's own reads and writes may help. Wrong roles, a missing container and the like
/// count too: they are an operator's to mend, and no job is to blame for them.
pub fn may_pass(error: &Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::LeaseLost
            | ErrorKind::Conflict
            | ErrorKind::Superseded
            | ErrorKind::Invalid
            | ErrorKind::TooLarge
            | ErrorKind::Incompatible
    )
}

/// A call that counts as [`TimedOut`](ErrorKind::TimedOut) after `each`.
pub(crate) async fn bounded<T>(
    operation: &'static str,
    each: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    timeout(each, call).await.unwrap_or_else(|_| Err(unanswered(operation)))
}

/// The error of a call that got no answer in time.
pub(crate) fn unanswered(operation: &'static str) -> Error {
    Error::new(ErrorKind::TimedOut, operation, "no answer in time")
}

/// Calls `op` until it succeeds, fails with an error that `again` refuses, or patience runs out. The first wait between
/// two tries is 50 ms, each one after that twice as long, with as much again at random.
///
/// # Errors
/// The last error that `op` gave; [`TimedOut`](ErrorKind::TimedOut) when it gave none.
pub async fn persist<T, F: Future<Output = Result<T>>>(
    operation: &'static str,
    patience: Patience,
    again: impl Fn(&Error) -> bool,
    mut op: impl FnMut() -> F,
) -> Result<T> {
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(patience.between)
        .with_jitter()
        .with_jitter_seed(crate::chance::number())
        .without_max_times();
    let last = Mutex::new(None);
    let timed_out = AtomicU32::new(0);
    let mut op = || bounded(operation, patience.each * (1 + timed_out.load(Relaxed)).min(3), op());
    let (began, said) = (Instant::now(), AtomicBool::new(false));
    let tries = (|| op()).retry(backoff).when(again).notify(|error, wait| {
        timed_out.fetch_add(u32::from(error.kind() == ErrorKind::TimedOut), Relaxed);
        // Once for each call, and not for a hiccup: what lasts is said where an operator looks.
        if began.elapsed() >= HICCUP && !said.swap(true, Relaxed) {
            tracing::warn!(operation, %error, "still failing; going on trying");
        } else {
            tracing::debug!(operation, %error, ?wait, "trying again");
        }
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.again());
    });
    timeout_at(patience.until, tries).await.unwrap_or_else(|_| {
        let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        Err(last.unwrap_or_else(|| unanswered(operation)))
    })
}
