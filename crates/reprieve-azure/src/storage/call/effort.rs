//! Time limits and retries: a store has two sets of them, over one pool of connections.

use std::time::Duration;

use reprieve_core::retry::{Patience, persist};
use reprieve_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

/// The limits of one set of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    /// The limit of one small call.
    pub(crate) each: Duration,
    /// How long a failed call that may be repeated is repeated.
    total: Duration,
    hurried: bool,
}

/// The slowest transfer that is waited for, in bytes a second. About 0.1 MB/s, as on a very slow
/// connection.
const BYTES_A_SECOND: u64 = 128 * 1024;

impl Effort {
    /// For a person who waits for a check: survives a short failure, and detects a service that is
    /// down soon.
    pub(crate) const CHECK: Self =
        Self { each: Duration::from_secs(3), total: Duration::from_secs(4), hurried: true };

    /// For normal work: calls of up to 10 s, repeated for up to 30 s.
    pub(crate) const CALM: Self =
        Self { each: Duration::from_secs(10), total: Duration::from_secs(30), hurried: false };

    /// For a drain: calls of up to 1 s, repeated for up to 2 s.
    pub(crate) const DRAIN: Self =
        Self { each: Duration::from_secs(1), total: Duration::from_secs(2), hurried: true };

    /// The limit of a whole try of one small call: longer than the call's own limit, which has the
    /// better error message.
    pub(crate) fn whole_try(self) -> Duration {
        self.each + Duration::from_millis(500)
    }

    /// The limit of one transfer of `bytes`.
    pub(crate) fn transfer(self, bytes: usize) -> Duration {
        self.each + Duration::from_secs(u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_A_SECOND)
    }

    /// Calls `op` until it succeeds, `again` refuses its error, or the time is over. Each try
    /// limits itself, to at most `each`.
    pub(crate) async fn repeat<T, F: Future<Output = Result<T>>>(
        self,
        operation: &'static str,
        each: Duration,
        again: impl Fn(&Error) -> bool,
        op: impl FnMut() -> F,
    ) -> Result<T> {
        // One whole try is always waited for, but after `total` no other begins.
        let began = Instant::now();
        let until = began + self.total.max(each);
        let again = |error: &Error| began.elapsed() < self.total && again(error);
        persist(operation, self.patience(each, until), again, op).await
    }

    /// Does the same within `limit`, which also ends a try that is under way: for a body that other
    /// messages wait for.
    ///
    /// # Errors
    /// The last error of a try; [`TimedOut`](ErrorKind::TimedOut) when no try has ended.
    pub(crate) async fn repeat_within<T, F: Future<Output = Result<T>>>(
        self,
        operation: &'static str,
        limit: Duration,
        again: impl Fn(&Error) -> bool,
        op: impl FnMut() -> F,
    ) -> Result<T> {
        persist(operation, self.patience(limit, Instant::now() + limit), again, op).await
    }

    fn patience(self, each: Duration, until: Instant) -> Patience {
        if self.hurried { Patience::hurried(each, until) } else { Patience::calm(each, until) }
    }
}

/// Limits the time of several calls together.
pub(crate) async fn within<T>(
    limit: Duration,
    operation: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::TimedOut, operation, format!("there was no answer within {limit:?}")))
    })
}

/// Whether a call that was certainly not applied may succeed when it is repeated.
pub(crate) fn not_applied(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable
}

/// Whether a call that may be applied twice may succeed when it is repeated.
pub(crate) fn temporary(error: &Error) -> bool {
    error.is_temporary()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_may_take_long_is_not_made_again_for_long() {
        for effort in [Effort::CALM, Effort::DRAIN, Effort::CHECK] {
            let began = Instant::now();
            let busy = || async { Err::<(), _>(Error::new(ErrorKind::Unavailable, "list blobs", "busy")) };
            let hour = Duration::from_hours(1);
            let error = effort.repeat("list blobs", hour, temporary, busy).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let pause_max = Duration::from_secs(5);
            assert!(began.elapsed() <= effort.total + pause_max, "{effort:?}: {:?}", began.elapsed());
        }
    }
}
