//! Work that computes or blocks, on threads of its own.

use std::fmt;
use std::sync::Weak;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::context::JobContext;
use crate::panics;

impl JobContext {
    /// Runs `work` on a thread for such work and returns what it returns. The step waits without
    /// blocking its own thread, so that its timers, [`interrupted`](Self::interrupted) and other
    /// futures of the job go on: put both into a `select!`.
    ///
    /// A worker runs as many closures at once as the machine has cores; the others wait their turn, in order. Closures that
    /// were given up more than ten seconds ago and still run come on top. The time of a wait counts for the timeouts of the
    /// step. It counts for `stall-after` only while another closure of the job runs. So a worker with many jobs that mostly
    /// wait can compute in each of them without slowing all of them down. A call costs some microseconds more than calling `work`; a step that
    /// only computes, in a worker with one job per core, does not need it. Work must not block until other work of
    /// `compute` is done: if all that runs does so, it deadlocks.
    ///
    /// # Panics
    /// When `work` does: the panic continues in the step, with its place. Also when the machine can make no thread for
    /// closures.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop work whose turn has come. Its result is lost, and until it ends the job keeps
    /// its slot, also after a timeout: a kind that is limited to one computes one thing at a time. It keeps its turn for ten
    /// seconds at most. Work that waits for its turn does not begin. Work of more
    /// than a second should look at a [`stop_flag`](Self::stop_flag): if it goes on after its step has ended, however that
    /// was, for as long again as a timeout or `stall-after` of its kind, a minute at least, it counts as a step that blocks
    /// its thread, and makes a stuck slot. A step that has ended can't report progress for it.
    ///
    /// # Example: sum up on a thread of its own, and stop early when the job should yield
    /// ```
    /// # use reprieve_core::{JobContext, JobError, Step};
    /// # async fn step(cx: &JobContext, mut at: u64) -> Result<Step<u64, u64>, JobError> {
    /// let stop = cx.stop_flag();
    /// at = cx
    ///     .compute(move || {
    ///         while at < 1_000_000 && !stop.is_set() {
    ///             at += 1;
    ///         }
    ///         at
    ///     })
    ///     .await;
    /// # Ok(Step::Continue(at))
    /// # }
    /// ```
    pub async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let span = tracing::Span::current();
        // No other job may take this one's place before its work has ended.
        let slots = self.run.slots.get().and_then(Weak::upgrade);
        let (send, computed) = oneshot::channel();
        let turn = self.run.computing.run(&self.run.wait_time, move |thread| {
            let result = match thread {
                Ok(()) => panics::catch(|| span.in_scope(work)),
                Err(panic) => Err(panic),
            };
            drop(slots);
            // Nobody may want it any more.
            let _is_wanted = send.send(result).is_ok();
        });
        let computed = computed.await;
        drop(turn);
        match computed {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => panic.resume(),
            // The runtime is shutting down, and drops this future next.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns a flag for threads of the job's own, which can't await
    /// [`interrupted`](Self::interrupted).
    #[must_use]
    pub fn stop_flag(&self) -> StopFlag {
        StopFlag { interrupted: self.run.interrupted.clone(), revoked: self.run.revoked.clone() }
    }
}

/// Whether a job should yield; see [`JobContext::stop_flag`].
#[derive(Clone)]
pub struct StopFlag {
    interrupted: CancellationToken,
    revoked: CancellationToken,
}

impl StopFlag {
    /// Whether the job should yield, or runs elsewhere by now. Cheap enough for an inner loop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.interrupted.is_cancelled() || self.revoked.is_cancelled()
    }
}

impl fmt::Debug for StopFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StopFlag").field(&self.is_set()).finish()
    }
}
