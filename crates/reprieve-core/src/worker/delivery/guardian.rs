//! Guards one delivery from its receipt to its settlement: keeps the lease, waits for the job, and
//! releases the message by tiers in a drain. It runs on the control thread and is the delivery's
//! only owner.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument;

use super::assignment::{Assignment, Registry, Unusable};
use super::executor::{Execution, RunOutcome};
use super::lease::{Lease, TRY};
use super::outcome::{DeliveryReport, GivenUp, NOTEWORTHY, NoSlot, Outcome, Slots, log_end};
use crate::clock::unix_millis;
use crate::deadline::{Deadline, SOFT_MARK};
use crate::envelope::{Envelope, Misfit};
use crate::error::{Error, ErrorKind};
use crate::job::JobError;
use crate::mutex::{get, set};
use crate::notice::{Notice, NoticeKind};
use crate::panics;
use crate::ports::{Delivery, Store};
use crate::process::in_process;
use crate::record::Status;
use crate::retry::{bounded, may_pass};
use crate::time_limit::TimedOut;
use crate::watch;
use crate::worker::fleet_slots::{FleetSlot, FleetSlots, SlotWatch};
use crate::worker::settings::Expiring;
use crate::worker::shared::{Entry, Rules, RunningJob, Shared};
use crate::worker::threads::on_any_thread;

/// How often a patient drain checks whether a job will finish in time: its pace may change.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The budget of a job that is cancelled, has stalled, or loses its slot of the fleet: it has 60 % of it, three
/// seconds, to yield before it is cut off.
const CANCEL_BUDGET: Duration = Duration::from_secs(5);

/// How long a message that has no slot waits for the end of a look for a slot of the fleet.
const LOOKED_WITHIN: Duration = Duration::from_secs(5);

/// The pause between two tries to replace a message that expires.
const REPLACE_PAUSE: Duration = Duration::from_millis(500);

/// The guardian of one delivery.
#[derive(Debug)]
pub(in crate::worker) struct Guardian {
    pub(super) shared: Arc<Shared>,
    registry: Arc<Registry>,
    batch: Batch,
    pub(super) lease: Lease,
    pub(super) drain: watch::Receiver<Option<Deadline>>,
    rules: watch::Receiver<Rules>,
    /// The value of the rules' check counter that this guardian has seen last.
    checked: u64,
}

/// What is the same for all messages of one receive.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Batch {
    /// When the call began.
    pub(in crate::worker) since: Instant,
    /// The length of the leases.
    pub(in crate::worker) lease: Duration,
    /// How many messages may wait for a slot, if more were asked for than that, because most were expected to be
    /// over a limit; else `None`.
    pub(in crate::worker) ahead: Option<usize>,
    /// How long a message waits for a slot while none becomes free for those that wait.
    pub(in crate::worker) patience: Duration,
}

/// Why a wait ended.
enum Waited<T> {
    /// The awaited future completed.
    Done(T),
    /// The time is up.
    Time,
    /// A drain began, or its deadline moved.
    Drain,
    /// The lease is lost, or so near its end that the job must stop.
    Lost,
}

/// Counts a guardian with a job in a slot, until dropped.
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

/// The envelope of a message with a job.
fn envelope(read: &Result<Box<Assignment>, Unusable>) -> Option<&Envelope> {
    match read {
        Ok(assignment) => Some(&assignment.envelope),
        Err(Unusable::Misfit { envelope, .. }) => envelope.as_ref().as_ref(),
        Err(Unusable::Bad(_)) => None,
    }
}

impl Guardian {
    /// Creates the guardian of `delivery`, which was received in `batch`. Boxed, because each of its ends moves
    /// it.
    pub(in crate::worker) fn new(
        shared: Arc<Shared>,
        registry: Arc<Registry>,
        delivery: Delivery,
        batch: Batch,
        mut drain: watch::Receiver<Option<Deadline>>,
    ) -> Box<Self> {
        let lease = Lease::new(delivery, batch.lease, batch.since);
        let mut rules = shared.rules.subscribe();
        let checked = rules.get().checks;
        if rules.get().is_too_short(lease.ends()) {
            // It was received before leases had to be longer.
            rules.mark_changed();
        }
        if drain.get().is_some() {
            // It was received while a drain was under way, so it is released at once.
            drain.mark_changed();
        }
        Box::new(Self { shared, registry, batch, lease, drain, rules, checked })
    }

    /// Guards the delivery until it is settled. Rare ways are boxed, so that a held delivery
    /// reserves no memory for them.
    pub(in crate::worker) async fn guard(mut self: Box<Self>) -> DeliveryReport {
        let mut read = self.read();
        if let (Some(envelope), Some(at)) = (envelope(&read), self.lease.delivery.expires_unix_ms)
            && Box::pin(self.outlive_expiry(envelope, at)).await
        {
            read = self.read();
        }
        match read {
            Ok(assignment) => {
                let running = RunningJob::new(&assignment.kind, &assignment.run);
                let _entry = Entry::add(&self.shared, running);
                self.tend(assignment).await
            }
            Err(Unusable::Bad(reason)) => {
                let body = self.lease.delivery.body.clone();
                Box::pin(self.dead_letter("", None, reason, body)).await
            }
            Err(Unusable::Misfit { envelope, misfit, since_unix_ms, reason }) => {
                Box::pin(self.defer_unusable(*envelope, misfit, since_unix_ms, reason)).await
            }
        }
    }

    fn read(&self) -> Result<Box<Assignment>, Unusable> {
        Assignment::read(&self.shared, &self.registry, &self.lease.delivery, self.lease.ends_shared())
    }

    /// Replaces the message, which the queue would delete at the time `at`, also while its job runs;
    /// returns whether it is another one now. Else the job runs under the old message.
    async fn outlive_expiry(&mut self, envelope: &Envelope, at: i64) -> bool {
        let (job, left_s) = (&envelope.job, at.saturating_sub(unix_millis()) / 1_000);
        if self.shared.settings.expiring == Expiring::Keep {
            tracing::info!(%job, left_s, "another program's message expires, also while its job runs");
            return false;
        }
        if self.drain.get().is_some() {
            return false;
        }
        let mut drain = self.drain.clone();
        let replaced = tokio::select! {
            biased;
            replaced = self.replace(envelope) => replaced,
            () = drain.changed() => return false,
        };
        match replaced {
            Ok(true) => {
                tracing::debug!(%job, left_s, "another program's message would expire; it is replaced");
                true
            }
            Ok(false) => {
                tracing::info!(%job, left_s, "a message expires and is not replaced, because another one of its job is");
                false
            }
            Err(error) => {
                tracing::warn!(%job, left_s, %error, "failed to replace a message that expires");
                false
            }
        }
    }

    /// Replaces the message by one of the next generation, and tries until its first renewal is due. A try
    /// without an answer may have sent a copy, which the next try makes a second message of the job.
    async fn replace(&mut self, envelope: &Envelope) -> Result<bool, Error> {
        let until = self.lease.renew_at;
        loop {
            let replaced = match self.generation_of_replacement(envelope).await {
                Ok(None) => return Ok(false),
                Ok(Some(generation)) => self.lease.replace(&self.shared, &envelope.to_copy(generation)).await,
                Err(error) => Err(error),
            };
            match replaced {
                Ok(()) => return Ok(true),
                Err(error) if may_pass(&error) && Instant::now() + REPLACE_PAUSE < until => {
                    sleep(REPLACE_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the generation of the message that replaces this one; `None` where this one is to be judged
    /// as it is: the job is settled, or another message has it.
    async fn generation_of_replacement(&self, envelope: &Envelope) -> Result<Option<u32>, Error> {
        let (records, own) = (&self.shared.store, envelope.notes.generation);
        let found = bounded("read a record", TRY, records.record(&envelope.job)).await;
        let record = match found {
            // The job begins again.
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            Err(error) if error.kind() == ErrorKind::Incompatible => return Ok(None),
            found => found?,
        };
        let generation = match record {
            None => Some(own),
            Some(record) => {
                let is_open = matches!(record.status, Status::Running | Status::Waiting { .. });
                let is_owner = record.owner.message == self.lease.delivery.id;
                (is_open && is_owner).then_some(record.generation.max(own))
            }
        };
        Ok(generation.map(|generation| generation.saturating_add(1)))
    }

    /// Waits for a slot, runs the job, and settles the message. A job over a limit of its kind is not held.
    async fn tend(mut self: Box<Self>, mut assignment: Box<Assignment>) -> DeliveryReport {
        // A cancelled job is not run: its message is deleted, whatever the limits.
        let is_cancelled = self.shared.cancels.contains(&assignment.run.job);
        let mut admitted = None;
        if !is_cancelled {
            match assignment.kind.admit(None).map_err(Clone::clone) {
                Ok(at) => admitted = Some(at),
                Err(needed) => return Box::pin(self.defer_until_served(assignment, &needed)).await,
            }
        }
        let mut place = assignment.kind.take_place();
        if place.is_none() && !is_cancelled {
            return Box::pin(self.defer_over_limit(assignment, "in this worker")).await;
        }
        let fleet = assignment.kind.fleet.clone().filter(|_| !is_cancelled);
        if fleet.as_ref().is_some_and(|slots| slots.is_closed()) {
            drop(place);
            return Box::pin(self.defer_over_limit(assignment, "in the fleet")).await;
        }
        let slot = match self.take_slot().await {
            Waited::Done(Ok(slot)) => slot,
            Waited::Done(Err(no_slot)) => {
                drop(place);
                return Box::pin(self.end_without_slot(assignment, no_slot)).await;
            }
            Waited::Lost => return self.lost(&assignment),
            Waited::Time | Waited::Drain => {
                return Box::pin(self.release_interrupted(assignment, Outcome::Unstarted)).await;
            }
        };
        let mut in_fleet = None;
        if let Some(slots) = fleet {
            // A slot of the fleet is not held in vain.
            if let Err(why) = self.shared.has_room_for(&assignment.kind) {
                drop(slot);
                return Box::pin(self.defer_for_room(assignment, &why)).await;
            }
            match Box::pin(self.take_in_fleet(&slots)).await {
                Waited::Done(Some(taken)) => in_fleet = Some(taken),
                Waited::Done(None) => {
                    drop(slot);
                    return Box::pin(self.defer_over_limit(assignment, "in the fleet")).await;
                }
                Waited::Lost => return self.lost(&assignment),
                Waited::Time | Waited::Drain => {
                    return Box::pin(self.release_interrupted(assignment, Outcome::Unstarted)).await;
                }
            }
        }
        if let Err(why) = self.shared.has_room_for(&assignment.kind)
            && !is_cancelled
        {
            drop((slot, in_fleet));
            return Box::pin(self.defer_for_room(assignment, &why)).await;
        }
        // What it depends on may have gone while it waited for its slots.
        if admitted.is_some()
            && let Err(needed) = assignment.kind.admit(admitted).map_err(Clone::clone)
        {
            drop((slot, place, in_fleet));
            return Box::pin(self.defer_until_served(assignment, &needed)).await;
        }
        if place.as_mut().is_some_and(|place| !place.begin(&assignment.run.dependencies)) {
            drop((slot, place, in_fleet));
            return Box::pin(self.defer_over_limit(assignment, "in this worker")).await;
        }
        let in_fleet_watch = in_fleet.as_ref().map(FleetSlot::watch);
        let guarded = Guarded::new(&self.shared);
        // However this ends, even by a drop, the job must not write any more.
        let _nothing_is_written_afterwards = assignment.run.revoked.clone().drop_guard();
        let began = Instant::now();
        set(&assignment.run.began, Some(began));
        // A delivery begins once.
        let _set = assignment.run.began_unix_ms.set(unix_millis());
        let (kind, run) = (Arc::clone(&assignment.kind), Arc::clone(&assignment.run));
        // After the others of this turn of the loop: the job threads wake once for many jobs that are started in a row.
        tokio::task::yield_now().await;
        let mut task = self.start(&mut assignment, is_cancelled, Slots::new(slot, place, in_fleet));
        let waited = self.watch(&assignment, &mut task, in_fleet_watch).await;
        drop(guarded);
        kind.ends.note();
        let ran = began.elapsed();
        let report = match waited {
            Waited::Done(ended) => self.ended(assignment, flatten(ended), ran).await,
            Waited::Time | Waited::Drain => Box::pin(self.cut(assignment, task)).await,
            Waited::Lost => self.lost_while_running(&assignment, task),
        };
        log_end(&kind, &run, ran, report.outcome);
        report
    }

    /// Settles the message of a job that has ended by itself, after it ran for this long.
    async fn ended(
        self: Box<Self>,
        assignment: Box<Assignment>,
        ended: RunOutcome,
        ran: Duration,
    ) -> DeliveryReport {
        let run = Arc::clone(&assignment.run);
        let has_failed =
            matches!(ended, RunOutcome::Failed(_) | RunOutcome::TimedOut(_) | RunOutcome::Refused(_));
        let unnamed = if has_failed || matches!(ended, RunOutcome::Done) {
            run.record.lock().await.unnamed()
        } else {
            Vec::new()
        };
        // The remainder of a job that began elsewhere does not show how long jobs take.
        if matches!(ended, RunOutcome::Done) && !run.has_resumed.load(Relaxed) {
            self.shared.runs.note(ran);
            assignment.kind.runs.note(ran);
        }
        let passed = match &ended {
            RunOutcome::TimedOut(what) => Some(*what),
            _ => run.hung.get().map(|hang| TimedOut::Stall(hang.still)),
        };
        let kind = Arc::clone(&assignment.kind);
        let mut report = match ended {
            RunOutcome::Done => self.complete(&assignment, run.cancelled.is_cancelled()).await,
            ended => Box::pin(self.finish(assignment, ended)).await,
        };
        // What it computes may go on.
        report.blocks = GivenUp::new(&run, &kind.limits, passed);
        report.and_remove(&run, unnamed)
    }

    /// Waits for a slot. A delivery without one by the time of its first renewal is left to another worker; at once
    /// one that must not wait, and soon one that waits while no slot becomes free.
    async fn take_slot(&mut self) -> Waited<Result<OwnedSemaphorePermit, NoSlot>> {
        let slots = Arc::clone(&self.shared.slots);
        // Nothing is begun in a drain.
        if !self.drain.has_changed()
            && !self.rules.has_changed()
            && let Ok(slot) = Arc::clone(&slots).try_acquire_owned()
        {
            return Waited::Done(Ok(slot));
        }
        let (shared, first_renewal) = (Arc::clone(&self.shared), self.lease.renew_at);
        let Some(_waits) = shared.waiting.take(self.batch.ahead.unwrap_or(usize::MAX)) else {
            return Waited::Done(Err(NoSlot::Hoped));
        };
        let mut slot = std::pin::pin!(slots.acquire_owned());
        let mut until = self.batch.since + self.batch.patience;
        loop {
            let before = shared.slots_passed_on.load(Relaxed);
            match self.wait(&mut slot, Some(until.min(first_renewal))).await {
                Waited::Done(Ok(slot)) => {
                    shared.slots_passed_on.fetch_add(1, Relaxed);
                    return Waited::Done(Ok(slot));
                }
                Waited::Time if until < first_renewal => {
                    // In this time almost all jobs would have ended, if they took what others took before.
                    let passed_on = shared.slots_passed_on.load(Relaxed) - before;
                    if passed_on < (shared.usable_slots() / 4).max(1) {
                        return Waited::Done(Err(NoSlot::Stalled));
                    }
                    until = Instant::now() + self.batch.patience;
                }
                // The semaphore is never closed.
                Waited::Time | Waited::Done(Err(_)) => return Waited::Time,
                Waited::Drain => return Waited::Drain,
                Waited::Lost => return Waited::Lost,
            }
        }
    }

    /// Returns a message that has found no slot. One that was received in a hope is over the limit of the fleet, if a
    /// look that is under way finds so: released at once, it would be received again right before the next look.
    async fn end_without_slot(
        mut self: Box<Self>,
        assignment: Box<Assignment>,
        no_slot: NoSlot,
    ) -> DeliveryReport {
        let fleet = assignment.kind.fleet.clone().filter(|_| no_slot == NoSlot::Hoped);
        if let Some(slots) = fleet
            && assignment.kind.backlog.is_recent()
        {
            let mut looked = std::pin::pin!(slots.found_none());
            match self.wait(&mut looked, Some(Instant::now() + LOOKED_WITHIN)).await {
                Waited::Done(true) => return self.defer_over_limit(assignment, "in the fleet").await,
                Waited::Done(false) | Waited::Time => {}
                Waited::Drain => return self.release_interrupted(assignment, Outcome::Unstarted).await,
                Waited::Lost => return self.lost(&assignment),
            }
        }
        let is_at_limit = no_slot == NoSlot::Hoped && assignment.kind.has_all_of_fleet();
        let no_slot = if is_at_limit { NoSlot::HopedAtLimit } else { no_slot };
        self.release_without_slot(assignment, no_slot).await
    }

    /// Takes a slot of the whole fleet.
    async fn take_in_fleet(&mut self, slots: &Arc<FleetSlots>) -> Waited<Option<FleetSlot>> {
        let mut taking = std::pin::pin!(slots.take());
        self.wait(&mut taking, None).await
    }

    /// Starts the job, which holds `slots`.
    fn start(
        &self,
        assignment: &mut Assignment,
        is_cancelled: bool,
        slots: Arc<Slots>,
    ) -> JoinHandle<RunOutcome> {
        let data = assignment.take_data();
        let mut execution = Execution::new(&self.shared, &assignment.kind, &assignment.run, data);
        execution.unreadable_before = assignment.envelope.is_known_misfit(Misfit::Unreadable);
        execution.has_own_id = assignment.envelope.own_id.is_some();
        // It counts under no limit.
        execution.has_no_place = is_cancelled;
        let runnable = Arc::clone(&assignment.runnable);
        // Whatever is logged in a step has the job's id, also where only errors are logged.
        let span = tracing::error_span!("job", id = assignment.job().as_str(), kind = assignment.kind.name);
        if let Some(id) = span.id() {
            let _is_first = assignment.run.span.set(id);
        }
        let weak: Weak<dyn Any + Send + Sync> = Arc::<Slots>::downgrade(&slots) as _;
        // A delivery starts one job.
        let _is_first = assignment.run.slots.set(weak);
        let run = async move {
            let ended = AssertUnwindSafe(runnable.run(execution)).catch_unwind().await;
            // The slots belong to the task, not to the guardian: a task that never ends keeps them.
            drop(slots);
            ended.unwrap_or_else(|panic| panicked(&*panic))
        };
        self.shared.jobs.spawn(in_process(on_any_thread(run.instrument(span), Handle::current())))
    }

    /// Waits for the job. In a drain, or if it is cancelled, has stalled for too long, or its slot of the fleet is
    /// lost, asks the job to yield and waits no longer than the soft mark. In a patient drain, only if the job will
    /// not be done in time. A step that blocks its thread past its timeout is not waited for, nor a job whose slot
    /// of the fleet another worker may have.
    async fn watch(
        &mut self,
        assignment: &Assignment,
        task: &mut JoinHandle<RunOutcome>,
        in_fleet: Option<SlotWatch>,
    ) -> Waited<Result<RunOutcome, JoinError>> {
        let (kind, delivery) = (assignment.kind.name, assignment.run.delivery);
        tracing::debug!(job = %assignment.job(), kind, delivery, "the job begins");
        let mut noteworthy = Some(Instant::now() + NOTEWORTHY);
        let (mut asked, mut must_stop) = (None, false);
        let (of_kind, waits_for) = (&assignment.kind, &assignment.run.waits_for);
        let may_hang = of_kind.limits.stall_after.is_some();
        let (cancelled, time_limit) = (&assignment.run.cancelled, &assignment.run.time_limit);
        let is_slot_lost = || in_fleet.as_ref().is_some_and(SlotWatch::is_lost);
        loop {
            let slot_ends = in_fleet.as_ref().map(SlotWatch::ends);
            if slot_ends.is_some_and(|ends| ends <= Instant::now()) {
                return Waited::Time;
            }
            let has_hung = assignment.run.hung.get().is_some();
            if !must_stop && (cancelled.is_cancelled() || is_slot_lost() || has_hung) {
                must_stop = true;
                let own = Deadline::of(&Notice::now("stop", NoticeKind::Signal), CANCEL_BUDGET);
                let own = asked.map_or(own, |asked: Deadline| asked.min(own));
                assignment.run.interrupt(own);
                asked = Some(own);
            }
            if let Some(deadline) = self.deadline()
                && let Some(own) = self.own_deadline(deadline, asked, assignment)
            {
                assignment.run.interrupt(own);
                asked = Some(own);
            }
            let soft = |own: Deadline| own.soft(needed_for_saving(assignment, own));
            let may_change = self.deadline().is_some() || time_limit.is_some() || may_hang;
            let look_again = may_change.then(|| Instant::now() + LOOK_AGAIN);
            let until = asked.map_or(look_again, |own| Some(soft(own)));
            if asked.is_none() && time_limit.is_to_be_given_up() {
                return Waited::Time;
            }
            let mut work = std::pin::pin!(async {
                tokio::select! {
                    biased;
                    ended = &mut *task => Some(ended),
                    () = cancelled.cancelled(), if !must_stop => None,
                    () = slot_lost(in_fleet.as_ref()), if !must_stop => None,
                    needed = of_kind.need_opened(), if waits_for.get().is_none() => {
                        // It is not cut off: what it has done is worth more than a call that fails.
                        let _is_first = waits_for.set(needed.clone());
                        assignment.run.interrupted.cancel();
                        None
                    }
                }
            });
            let until = until.into_iter().chain(noteworthy).chain(slot_ends).min();
            match self.wait(&mut work, until).await {
                Waited::Drain | Waited::Done(None) => {}
                Waited::Time if noteworthy.take_if(|at| *at <= Instant::now()).is_some() => {
                    tracing::info!(job = %assignment.job(), kind, delivery, "the job runs");
                }
                // A save that takes longer than was known may have begun meanwhile, or the slot was renewed.
                Waited::Time if asked.is_none_or(|own| soft(own) > Instant::now()) => {}
                Waited::Done(Some(ended)) => return Waited::Done(ended),
                Waited::Time => return Waited::Time,
                Waited::Lost => return Waited::Lost,
            }
        }
    }

    /// Returns the job's own deadline in a drain under `deadline`; `asked` is the one under which
    /// it was asked to yield before. `None` while the job may go on.
    fn own_deadline(
        &self,
        deadline: Deadline,
        asked: Option<Deadline>,
        assignment: &Assignment,
    ) -> Option<Deadline> {
        match (deadline.patient_until(), asked) {
            (None, None) => Some(deadline),
            (_, Some(asked)) => Some(asked.min(deadline)),
            (Some(until), None) => {
                // A job that should have ended by now is late, whatever its estimate.
                let in_time =
                    Instant::now() < until && assignment.expected_end().is_some_and(|end| end <= until);
                (!in_time).then(|| deadline.at_once(Instant::now(), self.shared.settings.budget))
            }
        }
    }

    /// Waits for `work` and renews the lease meanwhile. `work` runs on other threads while a
    /// renewal is awaited.
    async fn wait<F: Future + Unpin>(&mut self, work: &mut F, until: Option<Instant>) -> Waited<F::Output> {
        loop {
            // A drain that ends before the lease does needs no renewal, and every renewal puts the
            // receipt in doubt.
            let renew_at = self.lease.renew_at;
            let outlasts = self.deadline().is_some_and(|deadline| self.lease.ends() > deadline.hard());
            // All arms are cancel-safe: two watch channels, a job's handle or a semaphore, the
            // handle of a late renewal, and two timers. The drain comes first, so that nothing is
            // begun in one.
            tokio::select! {
                biased;
                () = self.drain.changed() => return Waited::Drain,
                () = self.rules.changed() => self.look_at_rules(),
                done = &mut *work => return Waited::Done(done),
                () = self.lease.late_answer() => {}
                () = sleep_until(until.unwrap_or(renew_at)), if until.is_some() => return Waited::Time,
                () = sleep_until(renew_at), if !outlasts => {
                    let queue = Arc::clone(&self.store().queue);
                    if !Box::pin(self.lease.renew(&self.shared, &queue, self.drain.clone())).await {
                        return Waited::Lost;
                    }
                }
            }
        }
    }

    /// Renews the lease at once when the rules ask for a check, or when the lease would end too
    /// early.
    fn look_at_rules(&mut self) {
        let rules = self.rules.get();
        if std::mem::replace(&mut self.checked, rules.checks) != rules.checks
            || rules.is_too_short(self.lease.ends())
        {
            self.lease.renew_at = Instant::now();
        }
    }

    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.drain.get()
    }

    fn store(&self) -> &Store {
        if self.deadline().is_some() { &self.shared.drain_store } else { &self.shared.store }
    }
}

/// Completes when the job's slot of the fleet is lost, if it has one.
async fn slot_lost(slot: Option<&SlotWatch>) {
    match slot {
        Some(slot) => slot.lost().await,
        None => std::future::pending().await,
    }
}

/// A panic is a failure of the job.
fn panicked(panic: &(dyn Any + Send)) -> RunOutcome {
    RunOutcome::Failed(JobError::retry(panics::describe("the job", panic)))
}

/// Maps a task's end to a run's outcome. An abort only follows a decision that was already made.
fn flatten(ended: Result<RunOutcome, JoinError>) -> RunOutcome {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => panicked(&*panic),
        Err(_) => RunOutcome::Lost,
    })
}

/// Returns how long after the job was asked to yield its save may end: as long as saves of its kind
/// take, or until the end of a try that began before the soft mark.
fn needed_for_saving(assignment: &Assignment, asked: Deadline) -> Duration {
    let known = assignment.kind.saves.p95().unwrap_or_default();
    let in_time = |(began, _): &(Instant, Instant)| *began < asked.asked() + SOFT_MARK;
    let trying = get(&assignment.run.saving).filter(in_time);
    trying.map_or(known, |(_, until)| known.max(until.saturating_duration_since(asked.asked())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, F: Future>(_: impl Fn(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_held_delivery_reserves_no_memory_for_rare_ends() {
        let size = size_of_future(Guardian::guard);
        assert!(size < 2 * 1024, "{size} bytes");
    }
}
