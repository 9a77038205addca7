//! How a delivery ends: completed, tried again, kept with a reason, or given back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::Guardian;
use crate::checkpoint::Checkpoints;
use crate::context::get;
use crate::deadline::Deadline;
use crate::job::JobError;
use crate::ports::{DeadLetter, Release, Store};
use crate::producer::args_blob;
use crate::retry::Patience;
use crate::settle::{Settled, Settlement, Terms, settle};
use crate::worker::order::Order;
use crate::worker::outcome::{Ended, Outcome, retry_delay};
use crate::worker::runner::Ran;
use crate::worker::settings::LEASE_MAX;
use crate::worker::shared::Shared;

/// The longest one settling try may take while nothing hurries.
const TRY: Duration = Duration::from_secs(10);

/// The same in a drain, so that a try that gets no answer leaves time for others.
const DRAIN_TRY: Duration = Duration::from_secs(1);

/// How long a job that is for a newer binary is put back for. A rolling update takes minutes.
const NEWER_DELAY: Duration = Duration::from_mins(1);

/// How long the second message of a job is put back for at least. Nobody waits for it: the first does the work.
const TWIN_DELAY: Duration = Duration::from_mins(5);

impl Guardian {
    /// Settles by how the run ended.
    pub(super) async fn finish(self, mut order: Order, ran: Ran) -> Ended {
        match ran {
            Ran::Done(checkpoints) => self.complete(&order, &checkpoints).await,
            Ran::DoneBefore => {
                tracing::info!(job = %order.job(), "this was another message of a job that is done");
                let settled = self.settle(Settlement::Complete).await;
                Ended::new(order.kind.name, Outcome::Completed, &settled)
            }
            Ran::Yielded if order.steps() == 0 => self.give_back(order, Outcome::Unstarted).await,
            Ran::Yielded => self.give_back(order, Outcome::Saved).await,
            Ran::CutShort(reason) => {
                tracing::warn!(job = %order.job(), reason, "progress since the last checkpoint is lost at an interruption");
                self.give_back(order, Outcome::Cut).await
            }
            Ran::Failed(error) => self.fail(order, &error).await,
            Ran::Refused(reason) => self.bury(&order, reason).await,
            Ran::Newer(reason) => {
                tracing::info!(job = %order.job(), reason, "left to a worker with a newer binary");
                order.envelope.deferred = order.envelope.deferred.saturating_add(1);
                self.release(&order, Outcome::Deferred, NEWER_DELAY).await
            }
            Ran::TooLong(reason) => {
                tracing::info!(job = %order.job(), reason, "left to another worker");
                order.envelope.deferred = order.envelope.deferred.saturating_add(1);
                Ended { too_long: true, ..self.release(&order, Outcome::Deferred, Duration::ZERO).await }
            }
            Ran::Lost if self.made_way(&order) => self.defer(order).await,
            Ran::Lost => self.lost(&order),
        }
    }

    /// Whether a write was refused although the lease surely holds, so that no other owner of this message can have been
    /// there: the job has another message, and that one's owner was. It was sent twice, as happens when the answer to a
    /// send is lost.
    fn made_way(&self, order: &Order) -> bool {
        let surely_ours = self.lease.surely_until().is_some_and(|until| Instant::now() < until);
        order.tenure.revoked.is_cancelled() && surely_ours
    }

    /// Puts one of two messages of a job back until the other is probably done. Then it begins a new account, in a new
    /// generation: the job's deliveries were not all of this message, and its fence must not stay under the other's.
    async fn defer(self, mut order: Order) -> Ended {
        let ran = get(&order.tenure.began).map(|began| began.elapsed()).unwrap_or_default();
        let envelope = &mut order.envelope;
        let delay = twin_delay(envelope.generation, ran);
        tracing::warn!(job = %envelope.job, ?delay, "the job has another message, which is being worked on; this one is put back");
        envelope.generation = envelope.generation.saturating_add(1);
        envelope.deferred = envelope.deferred.saturating_add(1);
        envelope.interrupted = 0;
        self.release(&order, Outcome::Deferred, delay).await
    }

    async fn complete(self, order: &Order, checkpoints: &Checkpoints) -> Ended {
        let (shared, hurry) = (Arc::clone(&self.shared), self.deadline().is_some());
        let settled = self.settle(Settlement::Complete).await;
        let ended = Ended::new(order.kind.name, Outcome::Completed, &settled);
        if matches!(settled, Settled::Done) {
            tracing::debug!(job = %order.job(), kind = order.kind.name, "completed");
            clean_up(&shared.store, order, checkpoints, if hurry { DRAIN_TRY } else { TRY }).await;
        }
        ended
    }

    async fn fail(self, mut order: Order, error: &JobError) -> Ended {
        if !error.is_retry() {
            return self.bury(&order, error.to_string()).await;
        }
        if order.attempts().exhausted_by_one_more_failure() {
            return self.bury(&order, format!("failed too often, at last with: {error}")).await;
        }
        order.envelope.failed = order.envelope.failed.saturating_add(1);
        let failed = order.envelope.failed;
        let delay = error.delay().unwrap_or_else(|| retry_delay(failed)).min(LEASE_MAX);
        tracing::warn!(job = %order.job(), kind = order.kind.name, %error, failed, ?delay, "a job failed; it is tried again");
        self.release(&order, Outcome::Retried, delay).await
    }

    async fn bury(self, order: &Order, reason: String) -> Ended {
        let (kind, letter) = (order.kind.name, DeadLetter::because(reason));
        tracing::error!(job = %order.job(), kind, reason = letter.reason, "a job can't go on; its message goes to the poison queue");
        let settled = self.settle(Settlement::DeadLetter(letter)).await;
        Ended::new(kind, Outcome::DeadLettered, &settled)
    }

    /// Releases a job that has not yielded by the soft mark on its last checkpoint.
    pub(super) async fn cut(self, order: Order, task: JoinHandle<Ran>) -> Ended {
        // First, so that nothing is written after the message is somebody else's.
        order.tenure.revoked.cancel();
        Ended { task: Some(task), ..self.give_back(order, Outcome::Cut).await }
    }

    /// Gives back a job that was interrupted, and counts that as what it was.
    pub(super) async fn give_back(self, mut order: Order, outcome: Outcome) -> Ended {
        let counter = match outcome {
            Outcome::Unstarted => &mut order.envelope.deferred,
            _ => &mut order.envelope.interrupted,
        };
        *counter = counter.saturating_add(1);
        let lost = get(&order.tenure.last_saved).elapsed();
        let work_lost = if outcome == Outcome::Cut { lost } else { Duration::ZERO };
        Ended { work_lost, ..self.release(&order, outcome, Duration::ZERO).await }
    }

    async fn release(self, order: &Order, outcome: Outcome, delay: Duration) -> Ended {
        let release = Release { body: Some(order.envelope.to_body()), delay };
        let settled = self.settle(Settlement::Release(release)).await;
        Ended::new(order.kind.name, outcome, &settled)
    }

    pub(super) fn lost(&self, order: &Order) -> Ended {
        self.shared.telemetry.leases_lost.inc();
        tracing::warn!(job = %order.job(), "the job's lease was lost; it is cancelled and nothing is settled");
        Ended::new(order.kind.name, Outcome::LeaseLost, &Settled::LeaseLost)
    }

    pub(super) async fn settle(self, how: Settlement) -> Settled {
        let began = Instant::now();
        let Self { shared, lease, drain, .. } = self;
        let (ends, surely_until) = (lease.ends(), lease.surely_until());
        let terms = terms(&shared, ends, *drain.borrow());
        // At most so many at once: what is held was measured by that.
        let drains = drain.borrow().is_some();
        let _turn = if drains { shared.releases.acquire().await.ok() } else { None };
        // Boxed, so that a guardian is not as large as all of its ends together from its first moment on.
        let hurry = hurry(&shared, ends, drain.clone());
        let settled = Box::pin(settle(lease.delivery, &how, surely_until, terms, hurry)).await;
        match &settled {
            Settled::Done => shared.settlements.note(began.elapsed()),
            Settled::LeaseLost => {
                shared.telemetry.leases_lost.inc();
                tracing::warn!("a lease was lost before its message could be settled");
            }
            Settled::GaveUp(error) => {
                tracing::error!(%error, "could not settle a message; it comes back when its lease ends");
            }
        }
        settled
    }
}

/// How long the second message of a job waits: at least twice as long as it ran before the other one was noticed, and ever
/// longer, so that the other gets further than a step however long the steps are.
fn twin_delay(generation: u32, ran: Duration) -> Duration {
    let base = TWIN_DELAY.saturating_mul(2_u32.saturating_pow(generation));
    base.max(ran.saturating_mul(2)).min(LEASE_MAX)
}

/// How to settle a message whose lease ends at `ends`, at ease or in a drain. Never after the lease's end, when it may be
/// somebody else's.
fn terms(shared: &Shared, ends: Instant, drain: Option<Deadline>) -> Terms {
    match drain {
        Some(deadline) => Terms {
            queue: Arc::clone(&shared.drain_store.queue),
            patience: Patience::hurried(DRAIN_TRY, deadline.report_by().min(ends)),
        },
        None => Terms { queue: Arc::clone(&shared.store.queue), patience: Patience::calm(TRY, ends) },
    }
}

/// Gives the terms of a drain when one begins; never for what began in one.
async fn hurry(shared: &Shared, ends: Instant, mut drain: watch::Receiver<Option<Deadline>>) -> Terms {
    let deadline = if drain.borrow().is_some() {
        None
    } else {
        drain.wait_for(Option::is_some).await.ok().and_then(|d| *d)
    };
    match deadline {
        Some(deadline) => terms(shared, ends, Some(deadline)),
        None => std::future::pending().await,
    }
}

/// Removes what a finished job no longer needs. What can't be removed harms nobody, so it is only said.
async fn clean_up(store: &Store, order: &Order, checkpoints: &Checkpoints, each: Duration) {
    let work = async {
        checkpoints.clear().await?;
        if order.args_in_blob {
            store.blobs.delete(&args_blob(order.job())?).await?;
        }
        Ok::<_, crate::Error>(())
    };
    let job = order.job();
    match timeout(each, work).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%job, %error, "could not remove a finished job's checkpoint"),
        Err(_) => tracing::warn!(%job, "no answer in time when removing a finished job's checkpoint"),
    }
}
