//! Guards one delivery from its receipt to its settlement: keeps the lease, waits for the job, and in a drain gives the
//! message back, by tiers. It lives on the control thread and is the delivery's only owner.

mod ends;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until};

use super::lease::Lease;
use super::order::{Card, Order};
use super::outcome::{Ended, Outcome};
use super::rules::Rules;
use super::runner::{Cursor, Ran, Run, Trouble};
use super::shared::{Place, Shared};
use crate::checkpoint::Checkpoints;
use crate::context::set;
use crate::deadline::Deadline;
use crate::job::JobError;
use crate::ports::{DeadLetter, Delivery, Store};
use crate::settle::Settlement;

/// How often a job that may finish in a patient drain is looked at: its pace may change.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The guardian of one delivery.
#[derive(Debug)]
pub(super) struct Guardian {
    shared: Arc<Shared>,
    lease: Lease,
    drain: watch::Receiver<Option<Deadline>>,
    rules: watch::Receiver<Rules>,
    /// Which of the rules' checks was the last.
    checked: u64,
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
    /// Takes charge of `delivery`, which was asked for at `since`, for a lease of `length`.
    pub(super) fn new(
        shared: Arc<Shared>,
        delivery: Delivery,
        since: Instant,
        length: Duration,
        mut drain: watch::Receiver<Option<Deadline>>,
    ) -> Self {
        let lease = Lease::new(delivery, length, since);
        let mut rules = shared.rules.subscribe();
        let checked = rules.borrow().checks;
        if rules.borrow().is_too_short(lease.ends()) {
            // It was asked for before leases were to be longer.
            rules.mark_changed();
        }
        if drain.borrow().is_some() {
            // Received while a drain was under way: it is to be given back at once.
            drain.mark_changed();
        }
        Self { shared, lease, drain, rules, checked }
    }

    /// Sees the delivery through.
    pub(super) async fn guard(self) -> Ended {
        match Order::read(&self.shared, &self.lease.delivery, self.lease.ends_shared()) {
            Ok(order) => {
                let _place = Place::take(&self.shared, Card::of(&order));
                self.tend(order).await
            }
            Err(reason) => {
                tracing::warn!(message_id = %self.lease.delivery.id, reason, "a message can't be used; it goes to the poison queue");
                let settled = self.settle(Settlement::DeadLetter(DeadLetter::because(reason))).await;
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
                // The rest of a job that was begun elsewhere says nothing about how long jobs take.
                if matches!(ran, Ran::Done(_)) && order.tenure.delivery == 1 {
                    self.shared.runs.note(began.elapsed());
                    order.kind.runs.note(began.elapsed());
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
            rules: self.shared.rules.subscribe(),
            asked_to_save: self.shared.rules.borrow().saves,
            cursor: Cursor::default(),
            trouble: Trouble::default(),
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

    /// Waits for the job. In a drain: asks it to yield, and waits no longer than the soft mark; in a patient one only when
    /// it will not be done in time.
    async fn watch(&mut self, order: &Order, task: &mut JoinHandle<Ran>) -> Held<Result<Ran, JoinError>> {
        let mut asked = None;
        loop {
            if let Some(deadline) = self.deadline()
                && let Some(own) = self.own_deadline(deadline, asked, order)
            {
                order.tenure.interrupt(own);
                asked = Some(own);
            }
            let until = match asked {
                Some(own) => Some(own.soft(order.kind.saves.p95().unwrap_or_default())),
                None => self.deadline().map(|_| Instant::now() + LOOK_AGAIN),
            };
            match self.hold(task, until).await {
                Held::Drain => {}
                Held::Time if asked.is_none() => {}
                ended => return ended,
            }
        }
    }

    /// The deadline of this job in a drain under `deadline`, when it was asked to yield under `asked` before; `None` while
    /// it may go on.
    fn own_deadline(&self, deadline: Deadline, asked: Option<Deadline>, order: &Order) -> Option<Deadline> {
        match (deadline.patient_until(), asked) {
            (None, None) => Some(deadline),
            (_, Some(asked)) => Some(asked.min(deadline)),
            (Some(until), None) => {
                // What should have been done by now is late, whatever was expected of it.
                let in_time = Instant::now() < until && order.expected_end().is_some_and(|end| end <= until);
                (!in_time).then(|| deadline.at_once(Instant::now(), self.shared.settings.budget))
            }
        }
    }

    /// Waits for `work` and keeps the lease meanwhile. Work goes on elsewhere while a renewal is awaited.
    async fn hold<F: Future + Unpin>(&mut self, work: &mut F, until: Option<Instant>) -> Held<F::Output> {
        loop {
            // A drain that ends before the lease does needs no renewal, and every renewal puts the receipt in doubt.
            let outlasts = self.deadline().is_some_and(|deadline| self.lease.ends() > deadline.hard());
            // All five are cancel-safe: two watch channels, a job's handle or a semaphore, and two timers. The drain comes
            // first, so that nothing is begun in one.
            tokio::select! {
                biased;
                Ok(()) = self.drain.changed() => return Held::Drain,
                Ok(()) = self.rules.changed() => self.look_at_rules(),
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

    /// Renews the lease at once when that is asked for, or when it would not last as long as it is to.
    fn look_at_rules(&mut self) {
        let rules = *self.rules.borrow();
        if std::mem::replace(&mut self.checked, rules.checks) != rules.checks
            || rules.is_too_short(self.lease.ends())
        {
            self.lease.renew_at = Instant::now();
        }
    }

    fn deadline(&self) -> Option<Deadline> {
        *self.drain.borrow()
    }

    fn store(&self) -> &Store {
        if self.deadline().is_some() { &self.shared.drain_store } else { &self.shared.store }
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
