//! Guards one delivery from its receipt to its settlement: keeps the lease, waits for the job, and in a drain gives the
//! message back, by tiers. It lives on the control thread and is the delivery's only owner.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::lease::Lease;
use super::order::{Card, Order};
use super::outcome::{Ended, Outcome, retry_delay};
use super::runner::{Cursor, Ran, Run};
use super::shared::Shared;
use crate::checkpoint::Checkpoints;
use crate::context::get;
use crate::job::JobError;
use crate::notice::Deadline;
use crate::ports::{DeadLetter, Delivery, Release, Store};
use crate::producer::args_blob;
use crate::retry::Patience;
use crate::settle::{Settled, Settlement, settle};

/// The longest one settling try may take while nothing hurries.
const TRY: Duration = Duration::from_secs(10);

/// The same in a drain, so that a try that gets no answer leaves time for others.
const DRAIN_TRY: Duration = Duration::from_secs(1);

/// How long a job that is for a newer binary is put back for. A rolling update takes minutes.
const NEWER_DELAY: Duration = Duration::from_mins(1);

/// The guardian of one delivery.
#[derive(Debug)]
pub(super) struct Guardian {
    shared: Arc<Shared>,
    lease: Lease,
    drain: watch::Receiver<Option<Deadline>>,
}

/// Why a wait ended.
enum Held<T> {
    /// What was waited for is there.
    Done(T),
    /// The time is up.
    Time,
    /// A drain began, or its deadline moved.
    Drain,
    /// The lease is lost, or so near its end that the job must not run on.
    Lost,
}

impl Guardian {
    /// Takes charge of `delivery`, which was asked for at `since`, and reads it.
    pub(super) fn take(
        shared: Arc<Shared>,
        delivery: Delivery,
        since: Instant,
        mut drain: watch::Receiver<Option<Deadline>>,
    ) -> (Self, Result<Order, String>) {
        let lease = Lease::new(delivery, shared.settings.lease, since);
        let order = Order::read(&shared, &lease.delivery, lease.ends_shared());
        if drain.borrow().is_some() {
            // Received while a drain was under way: it is to be given back at once.
            drain.mark_changed();
        }
        (Self { shared, lease, drain }, order)
    }

    /// Sees the delivery through.
    pub(super) async fn guard(self, order: Result<Order, String>) -> Ended {
        match order {
            Ok(order) => self.tend(order).await,
            Err(reason) => {
                tracing::warn!(message = %self.lease.delivery.id, reason, "a message can't be read; it goes to the poison queue");
                let settled = self.settle(Settlement::DeadLetter(DeadLetter { reason })).await;
                Ended::new("", Outcome::DeadLettered, &settled)
            }
        }
    }

    /// A slot, then the job, then the settlement.
    async fn tend(mut self, order: Order) -> Ended {
        let mut slot = std::pin::pin!(Arc::clone(&self.shared.slots).acquire_owned());
        let slot = match self.hold(&mut slot, None).await {
            Held::Done(Ok(slot)) => slot,
            Held::Lost => return self.lost(&order),
            // The semaphore is never closed.
            Held::Done(Err(_)) | Held::Time | Held::Drain => {
                return self.give_back(order, Outcome::Unstarted).await;
            }
        };
        let mut order = order;
        // However this ends, even by being dropped, the job has no business any more.
        let _nothing_is_written_afterwards = order.tenure.revoked.clone().drop_guard();
        let began = Instant::now();
        let mut task = self.start(&mut order, slot);
        match self.watch(&order, &mut task).await {
            Held::Done(ran) => {
                let ran = flatten(ran);
                if matches!(ran, Ran::Done(_)) {
                    self.shared.runs.note(began.elapsed());
                }
                self.finish(order, ran).await
            }
            Held::Time | Held::Drain => self.cut(order, task).await,
            Held::Lost => self.lost(&order),
        }
    }

    fn start(&self, order: &mut Order, slot: OwnedSemaphorePermit) -> JoinHandle<Ran> {
        let (kind, tenure) = (Arc::clone(&order.kind), Arc::clone(&order.tenure));
        let store = Arc::clone(&self.shared.store.checkpoints);
        let run = Run {
            checkpoints: Checkpoints::new(store, tenure.writer.clone(), kind.name, kind.schema),
            data: order.take_data(),
            attempts: order.attempts(),
            drain_store: Arc::clone(&self.shared.drain_store.checkpoints),
            every: self.shared.settings.checkpoint_every,
            tried: Instant::now(),
            cursor: Cursor::default(),
            kind: Arc::clone(&kind),
            tenure,
        };
        self.shared.jobs.spawn(async move {
            let ran = kind.runnable.run(run).await;
            // The slot is the task's, not the guardian's: a task that never ends keeps its slot.
            drop(slot);
            ran
        })
    }

    /// Waits for the job. In a drain: asks it to yield, and waits no longer than the soft mark.
    async fn watch(&mut self, order: &Order, task: &mut JoinHandle<Ran>) -> Held<Result<Ran, JoinError>> {
        loop {
            let soft = self.deadline().map(|deadline| {
                order.tenure.interrupt(deadline);
                deadline.soft(order.kind.saves.p95().unwrap_or_default())
            });
            match self.hold(task, soft).await {
                Held::Drain => {}
                ended => return ended,
            }
        }
    }

    /// Waits for `work` and keeps the lease meanwhile. Work goes on elsewhere while a renewal is awaited.
    async fn hold<F: Future + Unpin>(&mut self, work: &mut F, until: Option<Instant>) -> Held<F::Output> {
        loop {
            // All four are cancel-safe: a job's handle, a watch channel and two timers.
            tokio::select! {
                biased;
                done = &mut *work => return Held::Done(done),
                Ok(()) = self.drain.changed() => return Held::Drain,
                () = sleep_until(until.unwrap_or(self.lease.renew_at)), if until.is_some() => return Held::Time,
                () = sleep_until(self.lease.renew_at) => {
                    let queue = Arc::clone(&self.store().queue);
                    if !self.lease.renew(&self.shared, &*queue, self.drain.clone()).await {
                        return Held::Lost;
                    }
                }
            }
        }
    }

    /// Settles by how the run ended.
    async fn finish(self, mut order: Order, ran: Ran) -> Ended {
        match ran {
            Ran::Done(checkpoints) => self.complete(&order, &checkpoints).await,
            Ran::Yielded if order.steps() == 0 => self.give_back(order, Outcome::Unstarted).await,
            Ran::Yielded => self.give_back(order, Outcome::Saved).await,
            Ran::Unsaved(error) => {
                tracing::warn!(job = %order.job(), %error, "could not save at an interruption");
                self.give_back(order, Outcome::Cut).await
            }
            Ran::Failed(error) => self.fail(order, &error).await,
            Ran::Refused(reason) => self.bury(&order, reason).await,
            Ran::Newer(reason) => {
                tracing::info!(job = %order.job(), reason, "left to a worker with a newer binary");
                order.envelope.deferred += 1;
                self.release(&order, Outcome::Deferred, NEWER_DELAY).await
            }
            Ran::Lost => self.lost(&order),
        }
    }

    async fn complete(self, order: &Order, checkpoints: &Checkpoints) -> Ended {
        let (shared, hurry) = (Arc::clone(&self.shared), self.deadline().is_some());
        let settled = self.settle(Settlement::Complete).await;
        if matches!(settled, Settled::Done) {
            clean_up(&shared.store, order, checkpoints, if hurry { DRAIN_TRY } else { TRY }).await;
        }
        Ended::new(order.kind.name, Outcome::Completed, &settled)
    }

    async fn fail(self, mut order: Order, error: &JobError) -> Ended {
        if !error.is_retry() {
            return self.bury(&order, error.to_string()).await;
        }
        if order.attempts().exhausted_by_one_more_failure() {
            return self.bury(&order, format!("failed too often, at last with: {error}")).await;
        }
        order.envelope.failed += 1;
        let failed = order.envelope.failed;
        let delay = error.delay().unwrap_or_else(|| retry_delay(failed));
        tracing::warn!(job = %order.job(), kind = order.kind.name, %error, failed, ?delay, "a job failed; it is tried again");
        self.release(&order, Outcome::Retried, delay).await
    }

    async fn bury(self, order: &Order, reason: String) -> Ended {
        let kind = order.kind.name;
        tracing::error!(job = %order.job(), kind, reason, "a job can't go on; its message goes to the poison queue");
        let settled = self.settle(Settlement::DeadLetter(DeadLetter { reason })).await;
        Ended::new(kind, Outcome::DeadLettered, &settled)
    }

    /// Releases a job that has not yielded by the soft mark on its last checkpoint, then waits for its task to the end.
    async fn cut(self, order: Order, mut task: JoinHandle<Ran>) -> Ended {
        let until = self.deadline().map_or_else(Instant::now, |deadline| deadline.report_by());
        // First, so that nothing is written after the message is somebody else's.
        order.tenure.revoked.cancel();
        let mut ended = self.give_back(order, Outcome::Cut).await;
        ended.still_running = timeout_at(until, &mut task).await.is_err();
        ended
    }

    /// Gives back a job that was interrupted, and counts that as what it was.
    async fn give_back(self, mut order: Order, outcome: Outcome) -> Ended {
        let mut work_lost = Duration::ZERO;
        match outcome {
            Outcome::Unstarted => order.envelope.deferred += 1,
            Outcome::Cut => {
                work_lost = get(&order.tenure.last_saved).elapsed();
                order.envelope.interrupted += 1;
            }
            _ => order.envelope.interrupted += 1,
        }
        Ended { work_lost, ..self.release(&order, outcome, Duration::ZERO).await }
    }

    async fn release(self, order: &Order, outcome: Outcome, delay: Duration) -> Ended {
        let release = Release { body: Some(order.envelope.to_body()), delay };
        let settled = self.settle(Settlement::Release(release)).await;
        Ended::new(order.kind.name, outcome, &settled)
    }

    fn lost(&self, order: &Order) -> Ended {
        self.shared.telemetry.leases_lost.inc();
        tracing::warn!(job = %order.job(), "the job's lease was lost; it is cancelled and nothing is settled");
        Ended::new(order.kind.name, Outcome::LeaseLost, &Settled::LeaseLost)
    }

    async fn settle(self, how: Settlement) -> Settled {
        let began = Instant::now();
        let patience = match self.deadline() {
            Some(deadline) => Patience::new(DRAIN_TRY, deadline.report_by()),
            None => Patience::new(TRY, self.lease.ends()),
        };
        let queue = Arc::clone(&self.store().queue);
        let settled = settle(&*queue, self.lease.delivery, &how, patience).await;
        match &settled {
            Settled::Done => self.shared.settlements.note(began.elapsed()),
            Settled::LeaseLost => {
                self.shared.telemetry.leases_lost.inc();
                tracing::warn!("a lease was lost before its message could be settled");
            }
            Settled::GaveUp(error) => {
                tracing::error!(%error, "could not settle a message; it comes back when its lease ends");
            }
        }
        settled
    }

    fn deadline(&self) -> Option<Deadline> {
        *self.drain.borrow()
    }

    fn store(&self) -> &Store {
        if self.deadline().is_some() { &self.shared.drain_store } else { &self.shared.store }
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

/// A task's end as a run's: a panic is a failure of the job, and an abort only follows a decision already taken.
fn flatten(ended: Result<Ran, JoinError>) -> Ran {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => {
            let said = panic.downcast_ref::<&str>().map(ToString::to_string);
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
            Ran::Failed(JobError::retry(format!(
                "it panicked: {}",
                said.as_deref().unwrap_or("(no message)")
            )))
        }
        Err(_) => Ran::Lost,
    })
}

/// What the roster is told of an order.
pub(super) fn card(order: &Result<Order, String>) -> Option<Card> {
    order.as_ref().ok().map(Card::of)
}
