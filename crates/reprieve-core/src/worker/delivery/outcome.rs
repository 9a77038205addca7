//! The outcome of a delivery: its name for metrics and reports, its line in the log, and what the
//! dispatcher is told of it.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::executor::RunOutcome;
use super::lease::TRY;
use crate::context::JobRun;
use crate::error::{Error, ErrorKind};
use crate::ids::{JobId, PayloadName};
use crate::retry::bounded;
use crate::time_limit::TimedOut;
use crate::worker::fleet_slots::FleetSlot;
use crate::worker::kind::{Kind, Place};
use crate::worker::limits::Limits;
use crate::worker::shared::Shared;

/// What a job holds until it and its computations really end.
pub(super) struct Slots {
    slot: Option<OwnedSemaphorePermit>,
    place: Option<Place>,
    in_fleet: Option<FleetSlot>,
    /// Set when another slot has replaced the job's, because it is stuck.
    replaced: OnceLock<Arc<Shared>>,
}

impl Slots {
    pub(super) fn new(
        slot: OwnedSemaphorePermit,
        place: Option<Place>,
        in_fleet: Option<FleetSlot>,
    ) -> Arc<Self> {
        Arc::new(Self { slot: Some(slot), place, in_fleet, replaced: OnceLock::new() })
    }
}

impl Drop for Slots {
    /// A slot that was replaced is nobody's.
    fn drop(&mut self) {
        if let Some(shared) = self.replaced.get()
            && let Some(slot) = self.slot.take()
        {
            slot.forget();
            shared.replaced.fetch_sub(1, Relaxed);
        }
    }
}

/// From this time on a job is worth a line in the log when it begins and when it ends, however well.
pub(super) const NOTEWORTHY: Duration = Duration::from_secs(1);

/// Logs how a job's run ended here, for everyone to see unless it was short and ended well.
pub(super) fn log_end(kind: &Kind, run: &JobRun, ran: Duration, outcome: Outcome) {
    let (job, kind, delivery, steps) = (&run.job, kind.name, run.delivery, run.steps.load(Relaxed));
    let (seconds, ended) = (ran.as_secs_f64(), outcome.as_str());
    if ran < NOTEWORTHY && outcome.is_well() {
        tracing::debug!(%job, kind, delivery, steps, seconds, outcome = ended, "the job's run ended");
    } else {
        tracing::info!(%job, kind, delivery, steps, seconds, outcome = ended, "the job's run ended");
    }
}

/// The outcome of a delivery, for metrics and reports. Only `Retried` and `DeadLettered` are
/// failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The job is finished and its message deleted.
    Completed,
    /// A second message of a job that is settled; it is deleted.
    Duplicate,
    /// A step failed; the job is tried again.
    Retried,
    /// The message is in the poison queue.
    DeadLettered,
    /// The job was cancelled; its message is deleted.
    Cancelled,
    /// The job was moved to another queue, because interruptions kept it from moving on here.
    Escalated,
    /// Released until a time that its job chose, with its progress saved.
    Waiting,
    /// Released before any step had run.
    Unstarted,
    /// Released with its progress saved.
    Saved,
    /// Released without a save; it resumes at its last checkpoint.
    Cut,
    /// Released while a save had not been answered: the progress may be saved or not.
    Unconfirmed,
    /// Released with a delay: a newer binary must run the job, another message of the job is being
    /// worked on, or the job takes longer than this machine may last.
    Deferred,
    /// The lease was lost, and nothing was settled.
    LeaseLost,
    /// Could not be settled; the message returns when its lease ends.
    Abandoned,
}

impl Outcome {
    /// Whether the job needs nothing more, or asked for this end.
    const fn is_well(self) -> bool {
        matches!(self, Self::Completed | Self::Duplicate | Self::Cancelled | Self::Waiting)
    }

    /// Returns the outcome's metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Duplicate => "duplicate",
            Self::Retried => "retried",
            Self::DeadLettered => "dead_lettered",
            Self::Cancelled => "cancelled",
            Self::Escalated => "escalated",
            Self::Waiting => "waiting",
            Self::Unstarted => "unstarted",
            Self::Saved => "saved",
            Self::Cut => "cut",
            Self::Unconfirmed => "unconfirmed",
            Self::Deferred => "deferred",
            Self::LeaseLost => "lease_lost",
            Self::Abandoned => "abandoned",
        }
    }
}

/// The writes that remain when a guardian has ended.
pub(super) type Epilogue = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A limit of its kind that a job had passed when it was given up, or passes if its thread does not return.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Limit {
    pub(in crate::worker) time: Duration,
    /// In how long at most it passes it, if it was cut off before that for another reason.
    pub(in crate::worker) passes_within: Duration,
}

/// A job that was given up and may still run, on its own thread or on one that computes for it.
#[derive(Debug)]
pub(in crate::worker) struct GivenUp {
    pub(in crate::worker) run: Arc<JobRun>,
    /// How long it may run.
    pub(in crate::worker) timeout: Option<Limit>,
    /// How long it may stand still.
    pub(in crate::worker) stall: Option<Limit>,
}

impl GivenUp {
    /// Returns the job of a run that had `passed` a limit when it was given up, or passes one yet if its thread does
    /// not return; `None` if it has, or its kind has no limit.
    pub(super) fn new(run: &Arc<JobRun>, limits: &Limits, passed: Option<TimedOut>) -> Option<Self> {
        if !run.holds_slots() {
            return None;
        }
        let Limits { step_timeout, job_timeout, stall_after, .. } = *limits;
        let to_pass = |time| Limit { time, passes_within: time };
        let has_passed = |time| Limit { time, passes_within: Duration::ZERO };
        let timeout = step_timeout.into_iter().chain(job_timeout).min();
        let (timeout, stall) = match passed {
            Some(TimedOut::Step(limit) | TimedOut::Job(limit)) => {
                (Some(has_passed(limit)), stall_after.map(to_pass))
            }
            Some(TimedOut::Stall(_)) => (timeout.map(to_pass), stall_after.map(has_passed)),
            None => (timeout.map(to_pass), stall_after.map(to_pass)),
        };
        timeout.or(stall)?;
        Some(Self { run: Arc::clone(run), timeout, stall })
    }

    /// Counts it no longer among the jobs that use what it uses.
    pub(in crate::worker) fn use_nothing(&self) {
        if let Some(place) = self.slots().as_ref().and_then(|slots| slots.place.as_ref()) {
            place.use_nothing();
        }
    }

    /// Lets jobs have another slot for its own until it gives that back. Returns whether it had not done so already.
    pub(in crate::worker) fn replace_slot(&self, shared: &Arc<Shared>) -> bool {
        let Some(slots) = self.slots().filter(|slots| slots.replaced.get().is_none()) else { return false };
        shared.replaced.fetch_add(1, Relaxed);
        shared.slots.add_permits(1);
        slots.replaced.set(Arc::clone(shared)).is_ok()
    }

    /// Whether it holds a place under the limit of its kind in this worker.
    pub(in crate::worker) fn holds_place(&self) -> bool {
        self.slots().is_some_and(|slots| slots.place.is_some())
    }

    /// Whether it holds a slot of the fleet.
    pub(in crate::worker) fn holds_slot_of_fleet(&self) -> bool {
        let slots = self.slots();
        slots.and_then(|slots| slots.in_fleet.as_ref().map(FleetSlot::is_held)).unwrap_or_default()
    }

    fn slots(&self) -> Option<Arc<Slots>> {
        self.run.slots.get().and_then(Weak::upgrade)?.downcast::<Slots>().ok()
    }
}

/// A delivery that failed.
#[derive(Debug)]
pub(in crate::worker) struct FailedDelivery {
    pub(in crate::worker) job: JobId,
    pub(in crate::worker) delivery: u32,
    pub(in crate::worker) reason: String,
}

/// Why a message did not wait for a slot any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum NoSlot {
    /// It was only received because it could have been over a limit.
    Hoped,
    /// The same, and by now the jobs of its kind in this worker have all places in the fleet.
    HopedAtLimit,
    /// The jobs in the slots take longer than was expected when it was read ahead.
    Stalled,
    /// The machine has no room for its job now.
    NoRoom,
}

/// A guardian's report to the dispatcher when it ends.
pub(in crate::worker) struct DeliveryReport {
    pub(in crate::worker) kind: Cow<'static, str>,
    pub(in crate::worker) outcome: Outcome,
    /// When the message was settled or given up.
    pub(in crate::worker) settled_at: Instant,
    /// The job's task, when it was given up and may still run.
    pub(in crate::worker) task: Option<JoinHandle<RunOutcome>>,
    /// The job, when its thread may not return for longer than its kind allows.
    pub(in crate::worker) blocks: Option<GivenUp>,
    /// Work of this delivery that is saved.
    pub(in crate::worker) work_kept: Duration,
    /// The failure for which it was retried or dead-lettered.
    pub(in crate::worker) failure: Option<Box<FailedDelivery>>,
    /// Work that was not saved, or is not known to be saved.
    pub(in crate::worker) work_at_stake: Duration,
    /// The job takes longer than this machine may last.
    pub(in crate::worker) too_long: bool,
    /// The message went back because of a limit of its kind.
    pub(in crate::worker) over_limit: bool,
    /// Why the message went back because no slot was free, if it did; nothing was over a limit.
    pub(in crate::worker) no_slot: Option<NoSlot>,
    /// The remaining writes, which the worker does not wait for.
    pub(in crate::worker) epilogue: Option<Epilogue>,
}

impl DeliveryReport {
    /// Returns a report with `outcome` if the message was settled, else with the outcome of the
    /// failure.
    pub(super) fn new(
        kind: impl Into<Cow<'static, str>>,
        outcome: Outcome,
        settled: &Result<(), Error>,
    ) -> Self {
        match settled {
            Ok(()) => Self::ended(kind, outcome),
            Err(error) if error.kind() == ErrorKind::LeaseLost => Self::ended(kind, Outcome::LeaseLost),
            Err(_) => Self::ended(kind, Outcome::Abandoned),
        }
    }

    /// Lets the payloads be removed that the delivery stored and no record names, once it is settled.
    /// Whoever runs the job next does not know them.
    pub(super) fn and_remove(mut self, run: &Arc<JobRun>, unnamed: Vec<PayloadName>) -> Self {
        let is_settled = matches!(
            self.outcome,
            Outcome::Completed | Outcome::Retried | Outcome::DeadLettered | Outcome::Cancelled
        );
        if is_settled && self.epilogue.is_none() && !unnamed.is_empty() {
            let run = Arc::clone(run);
            self.epilogue = Some(Box::pin(async move {
                let removed = run.store.records.remove_payloads(&run.job, &unnamed);
                if let Err(error) = bounded("remove payloads", TRY, removed).await {
                    tracing::debug!(job = %run.job, %error, "failed to remove what a job attached and never saved");
                }
            }));
        }
        self
    }

    /// Adds why the delivery failed, if it was settled as a failure.
    pub(super) fn because(mut self, job: JobId, delivery: u32, reason: String) -> Self {
        if matches!(self.outcome, Outcome::Retried | Outcome::DeadLettered) {
            self.failure = Some(Box::new(FailedDelivery { job, delivery, reason }));
        }
        self
    }

    /// Returns a report with `outcome`.
    pub(super) fn ended(kind: impl Into<Cow<'static, str>>, outcome: Outcome) -> Self {
        Self {
            kind: kind.into(),
            outcome,
            settled_at: Instant::now(),
            task: None,
            blocks: None,
            work_kept: Duration::ZERO,
            failure: None,
            work_at_stake: Duration::ZERO,
            too_long: false,
            over_limit: false,
            no_slot: None,
            epilogue: None,
        }
    }
}

impl fmt::Debug for DeliveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryReport")
            .field("kind", &self.kind)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}
