//! Guards one delivery from its receipt to its settlement: keeps the lease, waits for the job, and in a drain gives the
//! message back, by tiers. It lives on the control thread and is the delivery's only owner.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout};

use super::lease::Lease;
use super::order::{Card, Order};
use super::outcome::{Ended, Outcome, retry_delay};
use super::runner::{Cursor, Ran, Run};
use super::settings::LEASE_MAX;
use super::shared::{Place, Shared};
use crate::checkpoint::Checkpoints;
use crate::context::{get, set};
use crate::job::JobError;
use crate::notice::Deadline;
use crate::ports::{DeadLetter, Delivery, Release, Store};
use crate::producer::args_blob;
use crate::retry::Patience;
use crate::settle::{Settled, Settlement, Terms, settle};

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

/// Counts a guardian among those whose job has a slot.
struct Guarded(Arc<Shared>);

impl Guarded {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.guarded.fetch_add(1, Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.guarded.fetch_sub(1, Relaxed);
    }
}

impl Guardian {
    /// Takes charge of `delivery`, which was asked for at `since`.
    pub(super) fn new(
        shared: Arc<Shared>,
        delivery: Delivery,
        since: Instant,
        mut drain: watch::Receiver<Option<Deadline>>,
    ) -> Self {
        let lease = Lease::new(delivery, shared.settings.lease, since);
        if drain.borrow().is_some() {
            // Received while a drain was under way: it is to be given back at once.
            drain.mark_changed();
        }
        Self { shared, lease, drain }
    }

    /// Sees the delivery through.
    pub(super) async fn guard(self) -> Ended {
        match Order::read(&self.shared, &self.lease.delivery, self.lease.ends_shared()) {
            Ok(order) => {
                let _place = Place::take(&self.shared, Card::of(&order));
                self.tend(order).await
            }
            Err(reason) => {
                tracing::warn!(message = %self.lease.delivery.id, reason, "a message can't be used; it goes to the poison queue");
                let settled = self.settle(Settlement::DeadLetter(DeadLetter { reason })).await;
                Ended::new("", Outcome::DeadLettered, &settled)
            }
        }
    }

    /// A slot, then the job, then the settlement.
    async fn tend(mut self, mut order: Order) -> Ended {
        // Whoever has no slot by the time of the first renewal gives the message to another worker.
        let first_renewal = self.lease.renew_at;
        let mut slot = std::pin::pin!(Arc::clone(&self.shared.slots).acquire_owned());
        let slot = match self.hold(&mut slot, Some(first_renewal)).await {
            Held::Done(Ok(slot)) => slot,
            Held::Lost => return self.lost(&order),
            // The semaphore is never closed.
            Held::Done(Err(_)) | Held::Time | Held::Drain => {
                return self.give_back(order, Outcome::Unstarted).await;
            }
        };
        let guarded = Guarded::new(&self.shared);
        // However this ends, even by being dropped, the job has no business any more.
        let _nothing_is_written_afterwards = order.tenure.revoked.clone().drop_guard();
        let began = Instant::now();
        set(&order.tenure.began, Some(began));
        let mut task = self.start(&mut order, slot);
        let held = self.watch(&order, &mut task).await;
        drop(guarded);
        match held {
            Held::Done(ran) => {
                let ran = flatten(ran);
                if matches!(ran, Ran::Done(_)) {
                    self.shared.runs.note(began.elapsed());
                }
                self.finish(order, ran).await
            }
            Held::Time | Held::Drain => self.cut(order, task).await,
            Held::Lost => Ended { task: Some(task), ..self.lost(&order) },
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
            // A drain that ends before the lease does needs no renewal, and every renewal puts the receipt in doubt.
            let outlasts = self.deadline().is_some_and(|deadline| self.lease.ends() > deadline.hard());
            // All four are cancel-safe: a watch channel, a job's handle or a semaphore, and two timers. The drain comes
            // first, so that nothing is begun in one.
            tokio::select! {
                biased;
                Ok(()) = self.drain.changed() => return Held::Drain,
                done = &mut *work => return Held::Done(done),
                () = sleep_until(until.unwrap_or(self.lease.renew_at)), if until.is_some() => return Held::Time,
                () = sleep_until(self.lease.renew_at), if !outlasts => {
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
            Ran::Lost => self.lost(&order),
        }
    }

    async fn complete(self, order: &Order, checkpoints: &Checkpoints) -> Ended {
        let (shared, hurry) = (Arc::clone(&self.shared), self.deadline().is_some());
        let settled = self.settle(Settlement::Complete).await;
        let ended = Ended::new(order.kind.name, Outcome::Completed, &settled);
        if matches!(settled, Settled::Done) {
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
        let kind = order.kind.name;
        tracing::error!(job = %order.job(), kind, reason, "a job can't go on; its message goes to the poison queue");
        let settled = self.settle(Settlement::DeadLetter(DeadLetter { reason })).await;
        Ended::new(kind, Outcome::DeadLettered, &settled)
    }

    /// Releases a job that has not yielded by the soft mark on its last checkpoint.
    async fn cut(self, order: Order, task: JoinHandle<Ran>) -> Ended {
        // First, so that nothing is written after the message is somebody else's.
        order.tenure.revoked.cancel();
        Ended { task: Some(task), ..self.give_back(order, Outcome::Cut).await }
    }

    /// Gives back a job that was interrupted, and counts that as what it was.
    async fn give_back(self, mut order: Order, outcome: Outcome) -> Ended {
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

    fn lost(&self, order: &Order) -> Ended {
        self.shared.telemetry.leases_lost.inc();
        tracing::warn!(job = %order.job(), "the job's lease was lost; it is cancelled and nothing is settled");
        Ended::new(order.kind.name, Outcome::LeaseLost, &Settled::LeaseLost)
    }

    async fn settle(self, how: Settlement) -> Settled {
        let began = Instant::now();
        let Self { shared, lease, drain } = self;
        let (ends, surely_until) = (lease.ends(), lease.surely_until());
        let terms = terms(&shared, ends, *drain.borrow());
        // At most so many at once: what is held was measured by that.
        let drains = drain.borrow().is_some();
        let _turn = if drains { shared.releases.acquire().await.ok() } else { None };
        let settled =
            settle(lease.delivery, &how, surely_until, terms, hurry(&shared, ends, drain.clone())).await;
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

    fn deadline(&self) -> Option<Deadline> {
        *self.drain.borrow()
    }

    fn store(&self) -> &Store {
        if self.deadline().is_some() { &self.shared.drain_store } else { &self.shared.store }
    }
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
