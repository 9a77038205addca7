//! How hard to try: the two sets of bounds that a store is opened with, over one pool of connections.

use std::time::Duration;

use reprieve_core::retry::{Patience, persist};
use reprieve_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

/// The bounds of one set of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    /// The longest one small call may take.
    pub(crate) each: Duration,
    /// How long a call that can simply be made again is made again.
    total: Duration,
    hurried: bool,
}

/// The slowest transfer that is still waited for, in bytes a second. A page on a bad day has a tenth of a megabyte.
const BYTES_A_SECOND: u64 = 128 * 1024;

impl Effort {
    /// For a person who waits for the outcome of a check: a hiccup passes, a service that is gone is noticed soon.
    pub(crate) const CHECK: Self =
        Self { each: Duration::from_secs(3), total: Duration::from_secs(4), hurried: true };

    /// While nothing hurries: calls of up to 10 s, for half a minute.
    pub(crate) const CALM: Self =
        Self { each: Duration::from_secs(10), total: Duration::from_secs(30), hurried: false };

    /// In a drain: a second for a call, and two for making it again.
    pub(crate) const DRAIN: Self =
        Self { each: Duration::from_secs(1), total: Duration::from_secs(2), hurried: true };

    /// How long a whole try of one small call may take: longer than the call's own limit, whose words are the better ones.
    pub(crate) fn whole_try(self) -> Duration {
        self.each + Duration::from_millis(500)
    }

    /// The longest one transfer of `bytes` may take.
    pub(crate) fn transfer(self, bytes: usize) -> Duration {
        self.each + Duration::from_secs(u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_A_SECOND)
    }

    /// Calls `op` until it succeeds, `again` refuses its error, or the effort is spent; each try bounds itself, by `each` at
    /// the most.
    pub(crate) async fn repeat<T, F: Future<Output = Result<T>>>(
        self,
        operation: &'static str,
        each: Duration,
        again: impl Fn(&Error) -> bool,
        op: impl FnMut() -> F,
    ) -> Result<T> {
        // One whole try is always waited for, but after the time for all of them no other is begun.
        let began = Instant::now();
        let until = began + self.total.max(each);
        let again = |error: &Error| began.elapsed() < self.total && again(error);
        persist(operation, self.patience(each, until), again, op).await
    }

    /// The same for at most `limit`, also while a try is under way: for a body that others wait for.
    ///
    /// # Errors
    /// The last error that a try gave; [`TimedOut`](ErrorKind::TimedOut) when none did.
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

/// Bounds something that is made of several calls.
pub(crate) async fn within<T>(
    limit: Duration,
    operation: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::TimedOut, operation, format!("there was no answer within {limit:?}")))
    })
}

/// Whether a call that was surely not applied may succeed when it is made again.
pub(crate) fn not_applied(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable
}

/// Whether a call that does no harm when it is applied twice may succeed when it is made again.
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
