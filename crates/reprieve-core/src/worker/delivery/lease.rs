//! Keeps one delivery's lease: renews it, knows when it is too late to renew, and accepts late
//! answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::deadline::Deadline;
use crate::error::{ErrorKind, Result};
use crate::ports::{Delivery, Queue, Receipt};
use crate::process::in_process;
use crate::retry::unanswered;
use crate::telemetry::ByResult;
use crate::watch;
use crate::worker::shared::Shared;

/// The longest wait for one renewal, however long the lease. Storage that needs more is treated as
/// unavailable.
const TRY_MAX: Duration = Duration::from_secs(10);

/// How long a drain waits for a renewal under way before it goes on with the known receipt.
const DRAIN_WAIT: Duration = Duration::from_millis(200);

const OPERATION: &str = "renew a lease";

/// One delivery and the lease on its message.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) delivery: Delivery,
    length: Duration,
    /// When the lease ends. The job's task waits for a valid lease before every write.
    ends: watch::Sender<Instant>,
    pub(super) renew_at: Instant,
    /// Renewals that have not been answered in time.
    pub(super) late: LateAnswers,
    /// The answer of a renewal is lost: the known receipt may not be the valid one.
    in_doubt: bool,
    /// This machine was frozen during the last renewal.
    thawed: bool,
}

/// The answer of a renewal.
#[derive(Debug)]
pub(super) struct Renewed {
    began: Instant,
    length: Duration,
    answer: Result<Receipt>,
}

/// Renewals that were not answered in time. Any of them may return the valid receipt.
#[derive(Debug, Default)]
pub(super) struct LateAnswers(JoinSet<Renewed>);

impl LateAnswers {
    /// Returns the next answer. Cancel-safe; waits without limit when none is under way.
    pub(super) async fn next(&mut self) -> Renewed {
        loop {
            match self.0.join_next().await {
                Some(Ok(renewed)) => return renewed,
                // A queue that panicked returns no receipt.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

impl Lease {
    /// Creates the lease of a delivery received by a call begun at `since`. Counted from before the
    /// call, the lease never ends later here than at the queue.
    pub(super) fn new(delivery: Delivery, length: Duration, since: Instant) -> Self {
        let ends = watch::Sender::new(since + length);
        Self {
            delivery,
            length,
            ends,
            renew_at: since + length / 3,
            late: LateAnswers::default(),
            in_doubt: false,
            thawed: false,
        }
    }

    /// Returns the channel that shares the lease's end with the job's task.
    pub(super) fn ends_shared(&self) -> watch::Sender<Instant> {
        self.ends.clone()
    }

    /// Returns when the lease ends.
    pub(super) fn ends(&self) -> Instant {
        self.ends.get()
    }

    /// Reports whether a renewal is unanswered, which may return the valid receipt.
    pub(super) fn awaits_an_answer(&self) -> bool {
        !self.late.0.is_empty()
    }

    /// Reports whether the known receipt may not be the valid one.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt || self.awaits_an_answer()
    }

    /// Notes that the known receipt may not be the valid one.
    pub(super) fn note_doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Completes when a late answer has arrived and has been applied. Cancel-safe; waits without
    /// limit when none is under way.
    pub(super) async fn late_answer(&mut self) {
        let renewed = self.late.next().await;
        self.take_in(renewed);
    }

    /// Applies a late answer.
    pub(super) fn take_in(&mut self, Renewed { began, length, answer }: Renewed) {
        match answer {
            Ok(receipt) => self.take(receipt, began, length),
            Err(error) if error.kind() == ErrorKind::LeaseLost => {}
            Err(_) => self.in_doubt = true,
        }
    }

    fn take(&mut self, receipt: Receipt, began: Instant, length: Duration) {
        self.delivery.receipt = receipt;
        self.in_doubt = false;
        self.length = length;
        self.ends.set(began + length);
        self.renew_at = began + length / 3;
    }

    /// Renews the lease. Returns false when the lease is lost, or would end before another try
    /// could save it. A renewal is due a third of the lease's length after the last one, and then
    /// every twelfth while it fails. A twelfth before its end the lease counts as lost, so that the
    /// job is cancelled before another worker can receive its message.
    ///
    /// If the end passed before anything was tried, this machine was frozen. The message may still
    /// belong to this worker: one more renewal decides.
    pub(super) async fn renew(
        &mut self,
        shared: &Shared,
        queue: &Arc<dyn Queue>,
        drain: watch::Receiver<Option<Deadline>>,
    ) -> bool {
        let (began, slack) = (Instant::now(), self.length / 24);
        let last = self.ends() - self.length / 12;
        let frozen = std::mem::take(&mut self.thawed) || (began >= last && began > self.renew_at + slack);
        if began >= last && !frozen {
            return false;
        }
        // After a freeze there is only this one try, and the job waits for it.
        let patience = if frozen { self.length / 3 } else { (self.length / 6).min(last - began) };
        let patience = patience.min(TRY_MAX);
        let length = shared.lease();
        let mut renewal = send(queue, &self.delivery.receipt, length);
        let answered = tokio::select! {
            biased;
            answered = timeout(patience, &mut renewal) => answered.ok(),
            () = hurried(drain) => None,
        };
        let renewed = if let Some(answered) = answered {
            answered.unwrap_or_else(|_| Err(unanswered(OPERATION)))
        } else {
            self.late.0.spawn(in_process(async move {
                let answer = renewal.await.unwrap_or_else(|_| Err(unanswered(OPERATION)));
                Renewed { began, length, answer }
            }));
            Err(unanswered(OPERATION))
        };
        let result = if renewed.is_ok() { "ok" } else { "error" };
        shared.telemetry.lease_renewals.get_or_create(&ByResult { result }).inc();
        match renewed {
            Ok(receipt) => {
                // An earlier renewal with an older receipt can't have been applied after this one.
                self.late = LateAnswers::default();
                self.take(receipt, began, length);
                true
            }
            Err(error) if error.kind() == ErrorKind::LeaseLost => self.holds_by_a_late_answer(last).await,
            Err(error) => {
                tracing::warn!(message_id = %self.delivery.id, %error, "failed to renew a lease; retrying");
                self.in_doubt |= error.kind() == ErrorKind::TimedOut && self.late.0.is_empty();
                let now = Instant::now();
                // A freeze in the middle of the call: the renewal did not have its full time.
                self.thawed = !frozen && now > began + patience + slack;
                self.renew_at = if self.thawed { now } else { (now + self.length / 12).min(last) };
                self.thawed || (!frozen && now < last)
            }
        }
    }

    /// Handles a refused receipt. If an earlier renewal is still unanswered, its receipt may be the
    /// valid one.
    async fn holds_by_a_late_answer(&mut self, until: Instant) -> bool {
        let ends = self.ends();
        while !self.late.0.is_empty() && timeout_at(until, self.late_answer()).await.is_ok() {
            if self.ends() > ends {
                return true;
            }
        }
        false
    }
}

/// Starts a renewal, which continues even if the caller stops waiting for it.
fn send(queue: &Arc<dyn Queue>, receipt: &Receipt, length: Duration) -> AbortOnDropHandle<Result<Receipt>> {
    let (queue, receipt) = (Arc::clone(queue), Receipt::new(receipt.as_str()));
    AbortOnDropHandle::new(tokio::spawn(in_process(async move { queue.renew(&receipt, length).await })))
}

/// Completes 200 ms after a drain that is not patient has begun.
async fn hurried(mut drain: watch::Receiver<Option<Deadline>>) {
    drain.wait_for(|deadline| deadline.is_some_and(|it| it.patient_until().is_none())).await;
    sleep(DRAIN_WAIT).await;
}
