//! Retries: one loop for every call to a store, limited by time and never by a client library's
//! retries.

use std::future::{Future, ready};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use futures_util::future::Either;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{Error, ErrorKind, Result};

/// How long to retry, and at what intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The longest time for one try before it counts as [`TimedOut`](ErrorKind::TimedOut). After a
    /// first timeout the next try may take twice as long, and after that three times. So a store
    /// that is only slow gets the time to answer, and the recovery of one that was down is noticed
    /// soon.
    pub each: Duration,
    /// The longest wait between two tries, without the random part, which adds up to as much again.
    pub between: Duration,
    /// When to stop.
    pub until: Instant,
}

impl Patience {
    /// Tries of at most `each` until `until`, with waits that grow to 2.5 s: for calls that are not
    /// urgent.
    #[must_use]
    pub const fn calm(each: Duration, until: Instant) -> Self {
        Self { each, between: Duration::from_millis(2_500), until }
    }

    /// Tries of at most `each` until `until`, with waits of at most 100 ms: for a drain, which must
    /// notice at once that the storage answers again.
    #[must_use]
    pub const fn hurried(each: Duration, until: Instant) -> Self {
        Self { each, between: Duration::from_millis(100), until }
    }
}

/// Ten years: longer than any process runs. For retries that only an interruption or the loss of
/// the lease ends.
pub(crate) const FOREVER: Duration = Duration::from_hours(10 * 365 * 24);

/// How long a call may fail before a warning is logged.
const HICCUP: Duration = Duration::from_secs(1);

/// Whether a retry of the framework's own reads and writes may help. Missing roles or containers
/// and similar errors count too: an operator can fix them, and no job has caused them.
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

/// Whether a job's own read or write is repeated. Here a missing container or blob is an answer, and a role
/// that was taken away, or is yet to be known everywhere, no failure of the job.
pub(crate) fn may_pass_for_a_job(error: &Error) -> bool {
    error.is_temporary() || error.kind() == ErrorKind::Denied
}

/// Makes a call that fails with [`TimedOut`](ErrorKind::TimedOut) after `each`.
///
/// # Errors
/// The call's.
pub fn bounded<T>(
    operation: &'static str,
    each: Duration,
    call: impl Future<Output = Result<T>>,
) -> impl Future<Output = Result<T>> {
    // Not within the block, which would have room for the call twice.
    let call = timeout(each, call);
    async move { call.await.unwrap_or_else(|_| Err(unanswered(operation))) }
}

/// The error of a call that got no answer in time.
pub(crate) fn unanswered(operation: &'static str) -> Error {
    Error::new(ErrorKind::TimedOut, operation, "no answer in time")
}

/// Calls `op` until it succeeds, fails with an error that `again` rejects, or `patience.until` has
/// passed. The first wait between two tries is 50 ms; each later one is twice as long. Each wait is
/// extended by a random part of up to its length.
///
/// # Errors
/// The last error of `op`; [`TimedOut`](ErrorKind::TimedOut) when there was none.
pub async fn persist<T, F: Future<Output = Result<T>>>(
    operation: &'static str,
    patience: Patience,
    again: impl Fn(&Error) -> bool,
    mut op: impl FnMut() -> F,
) -> Result<T> {
    // Nearly every call succeeds at once, and reserves no memory for others, nor two timers.
    let (began, jitter) = (Instant::now(), crate::chance::number());
    let each = began.checked_add(patience.each).unwrap_or(patience.until);
    let first = timeout_at(each.min(patience.until), op()).await;
    match first.unwrap_or_else(|_| Err(unanswered(operation))) {
        Err(error) if Instant::now() < patience.until && again(&error) => {
            Box::pin(persist_after((error, began), jitter, operation, patience, again, op)).await
        }
        done => done,
    }
}

/// Goes on as [`persist`] after its first try, which began then, has failed with this error.
async fn persist_after<T, F: Future<Output = Result<T>>>(
    (first, began): (Error, Instant),
    jitter: u64,
    operation: &'static str,
    patience: Patience,
    again: impl Fn(&Error) -> bool,
    mut op: impl FnMut() -> F,
) -> Result<T> {
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(patience.between)
        .with_jitter()
        .with_jitter_seed(jitter)
        .without_max_times();
    let last = Mutex::new(None);
    let timed_out = AtomicU32::new(0);
    let mut first = Some(first);
    let mut op = || {
        if let Some(error) = first.take() {
            return Either::Left(ready(Err(error)));
        }
        let each = patience.each * (1 + timed_out.load(Relaxed)).min(3);
        Either::Right(bounded(operation, each, op()))
    };
    let logged = AtomicBool::new(false);
    let tries = (|| op()).retry(backoff).when(again).notify(|error, wait| {
        timed_out.fetch_add(u32::from(error.kind() == ErrorKind::TimedOut), Relaxed);
        // Warns once per call, and only about lasting failures: a short one is no concern of the
        // operator.
        if began.elapsed() >= HICCUP && !logged.swap(true, Relaxed) {
            tracing::warn!(operation, %error, "the operation still fails; retrying");
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

/// How often the same failure is logged.
const EVERY: Duration = Duration::from_mins(1);

/// The time of the last log line.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Option<Instant>);

impl LogThrottle {
    /// Reports whether to log the failure: the first time, and then once a minute while it lasts.
    pub(crate) fn is_news(&mut self) -> bool {
        let news = self.0.is_none_or(|logged| logged.elapsed() >= EVERY);
        if news {
            self.0 = Some(Instant::now());
        }
        news
    }
}
