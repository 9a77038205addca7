//! The lease keeper: renews one delivery's lease and knows when it is too late to.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::shared::Shared;
use crate::context::{get, set};
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::ports::{Delivery, Queue};
use crate::retry::{bounded, unanswered};
use crate::telemetry::ByResult;

/// The longest one renewal may take, however long the lease: storage that needs more is not answering.
const TRY_MAX: Duration = Duration::from_secs(10);

/// How long a drain waits for a renewal that is under way, to release with the receipt that it gives.
const DRAIN_WAIT: Duration = Duration::from_secs(1);

const OPERATION: &str = "renew a lease";

/// One delivery and the time it is ours for.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) delivery: Delivery,
    length: Duration,
    /// When it ends. The job's task reads it before it writes anything.
    ends: Arc<Mutex<Instant>>,
    pub(super) renew_at: Instant,
    /// A renewal got no answer: the receipt we have may no longer be the one that holds.
    in_doubt: bool,
}

impl Lease {
    /// The lease of a delivery that was asked for at `since`: counted from before the call, it can't end later here than
    /// at the queue.
    pub(super) fn new(delivery: Delivery, length: Duration, since: Instant) -> Self {
        let ends = Arc::new(Mutex::new(since + length));
        Self { delivery, length, ends, renew_at: since + length / 3, in_doubt: false }
    }

    /// When it ends, as shared with the job's task.
    pub(super) fn ends_shared(&self) -> Arc<Mutex<Instant>> {
        Arc::clone(&self.ends)
    }

    /// When it ends.
    pub(super) fn ends(&self) -> Instant {
        get(&self.ends)
    }

    /// Until when nobody else can have received the message; `None` when the receipt is in doubt.
    pub(super) fn surely_until(&self) -> Option<Instant> {
        (!self.in_doubt).then(|| self.ends())
    }

    /// Renews it; false when it is lost, or will be before another try could save it. A third of its length after the
    /// last renewal is the time to; then every twelfth, while it fails; and a twelfth before its end it counts as lost,
    /// so that the job is cancelled before anybody else can receive its message.
    pub(super) async fn renew(
        &mut self,
        shared: &Shared,
        queue: &dyn Queue,
        mut drain: watch::Receiver<Option<Deadline>>,
    ) -> bool {
        let began = Instant::now();
        let last = self.ends() - self.length / 12;
        let patience = (self.length / 6).min(TRY_MAX).min(last.saturating_duration_since(began));
        let hurried = async {
            let hurries =
                |deadline: &Option<Deadline>| deadline.is_some_and(|it| it.patient_until().is_none());
            if drain.wait_for(hurries).await.is_err() {
                std::future::pending::<()>().await;
            }
            sleep(DRAIN_WAIT).await;
        };
        let length = shared.lease();
        let renewal = queue.renew(&self.delivery.receipt, length);
        let renewed = tokio::select! {
            renewed = bounded(OPERATION, patience, renewal) => renewed,
            () = hurried => Err(unanswered(OPERATION)),
        };
        let result = if renewed.is_ok() { "ok" } else { "error" };
        shared.telemetry.lease_renewals.get_or_create(&ByResult { result }).inc();
        match renewed {
            Ok(receipt) => {
                self.delivery.receipt = receipt;
                self.in_doubt = false;
                self.length = length;
                set(&self.ends, began + length);
                self.renew_at = began + length / 3;
                true
            }
            Err(error) if error.kind() == ErrorKind::LeaseLost => false,
            Err(error) => {
                self.in_doubt |= error.kind() == ErrorKind::TimedOut;
                tracing::warn!(message_id = %self.delivery.id, %error, "could not renew a lease; trying again");
                self.renew_at = (Instant::now() + self.length / 12).min(last);
                Instant::now() < last
            }
        }
    }
}
