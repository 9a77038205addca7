//! The job that a message's body asks for: its kind, among those that the worker knows, and its
//! arguments.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::executor::{Execution, RunOutcome, execute};
use crate::checkpoint::{CheckpointEvery, LONGEST};
use crate::child_ids::ChildIds;
use crate::clock::unix_millis;
use crate::context::JobRun;
use crate::envelope::{Data, Deferral, Envelope, Misfit};
use crate::ids::JobId;
use crate::job::Job;
use crate::mutex::get;
use crate::ports::Delivery;
use crate::record::{Handle, Identity};
use crate::time_limit::TimeLimit;
use crate::wait_time::WaitTime;
use crate::watch;
use crate::worker::kind::Kind;
use crate::worker::limits::Limits;
use crate::worker::settings::Settings;
use crate::worker::shared::Shared;

/// A message that asks for a job.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) envelope: Envelope,
    pub(super) kind: Arc<Kind>,
    pub(super) runnable: Arc<dyn Runnable>,
    pub(super) run: Arc<JobRun>,
    pub(super) args_in_blob: bool,
}

/// Why a message can't be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// No worker can ever use it. Contains one sentence for the poison queue.
    Bad(String),
    /// Another worker may be able to use it, or this one later.
    Misfit { envelope: Box<Option<Envelope>>, misfit: Misfit, since_unix_ms: i64, reason: String },
}

impl Assignment {
    /// Reads `delivery`; its lease ends at `lease_ends`.
    pub(super) fn read(
        shared: &Shared,
        registry: &Registry,
        delivery: &Delivery,
        lease_ends: watch::Sender<Instant>,
    ) -> Result<Box<Self>, Unusable> {
        if let Some(unreadable) = &delivery.unreadable {
            let (reason, since_unix_ms) = (unreadable.reason.clone(), unreadable.since_unix_ms);
            let envelope = Box::new(None);
            return Err(Unusable::Misfit { envelope, misfit: Misfit::Unreadable, since_unix_ms, reason });
        }
        let default_kind = shared.settings.default_kind.as_deref();
        let envelope = Envelope::read(&delivery.body, &delivery.id, default_kind).map_err(Unusable::Bad)?;
        let Some(Registered { kind, runnable }) = registry.get(&envelope.kind).cloned() else {
            let known: Vec<_> = registry.names().collect();
            let reason = format!(
                "no worker that received it knows kind {:?}; the last one knows {}",
                envelope.kind,
                known.join(", ")
            );
            let since_unix_ms = envelope.misfit_since(Misfit::Unknown);
            let envelope = Box::new(Some(envelope));
            return Err(Unusable::Misfit { envelope, misfit: Misfit::Unknown, since_unix_ms, reason });
        };
        let run = Arc::new(job_run(shared, delivery, &envelope, &kind, lease_ends));
        let args_in_blob = matches!(envelope.data, Data::Blob(_));
        Ok(Box::new(Self { envelope, kind, runnable, run, args_in_blob }))
    }

    pub(super) fn job(&self) -> &JobId {
        &self.envelope.job
    }

    /// Moves the arguments out. The envelope keeps its own copy for sending it again.
    pub(super) fn take_data(&mut self) -> Data {
        std::mem::replace(&mut self.envelope.data, Data::Inline(RawValue::NULL.to_owned()))
    }

    /// Returns when the job is expected to be done: by its own estimate, or else by the 95th
    /// percentile of the run times of its kind.
    pub(super) fn expected_end(&self) -> Option<Instant> {
        let usual = || Some(get(&self.run.began)? + self.kind.runs.p95()?);
        self.run.expected_end().or_else(usual)
    }

    /// Returns the number of steps finished in this delivery.
    pub(super) fn steps(&self) -> u64 {
        self.run.steps.load(Relaxed)
    }
}

impl Envelope {
    /// Returns since when the message is known not to fit for this reason; now, when that is new.
    pub(super) fn misfit_since(&self, misfit: Misfit) -> i64 {
        let known = self.notes.deferrals.iter().find(|deferral| deferral.misfit == misfit);
        known.map_or_else(unix_millis, |deferral| deferral.since_unix_ms)
    }

    pub(super) fn is_known_misfit(&self, misfit: Misfit) -> bool {
        self.notes.deferrals.iter().any(|deferral| deferral.misfit == misfit)
    }

    /// Notes since when the message is known not to fit for this reason.
    pub(super) fn note_misfit(&mut self, misfit: Misfit, since_unix_ms: i64) {
        if !self.is_known_misfit(misfit) {
            self.notes.deferrals.push(Deferral { misfit, since_unix_ms });
        }
    }
}

fn job_run(
    shared: &Shared,
    delivery: &Delivery,
    envelope: &Envelope,
    kind: &Kind,
    lease_ends: watch::Sender<Instant>,
) -> JobRun {
    let identity = Identity {
        job: envelope.job.clone(),
        kind: kind.name,
        schema: kind.schema,
        message: delivery.id.clone(),
        count: delivery.dequeue_count,
        generation: envelope.notes.generation,
        inserted_unix_ms: delivery.inserted_unix_ms,
        worker: shared.worker.clone(),
        number: shared.next_number(),
        abandoned_after: abandoned_after(&shared.settings),
        own_id: envelope.own_id,
        own_since_unix_ms: envelope.own_since_unix_ms,
    };
    let handle = Handle::new(Arc::clone(&shared.store.records), identity, envelope.notes.ends.clone());
    JobRun {
        job: envelope.job.clone(),
        kind: kind.name,
        delivery: delivery.dequeue_count,
        generation: AtomicU32::new(envelope.notes.generation),
        record: AsyncMutex::new(Box::new(handle)),
        store: Arc::clone(&shared.store),
        drain_store: Arc::clone(&shared.drain_store),
        control: Some(tokio::runtime::Handle::current()),
        states: shared.states.made(),
        dependencies: kind.dependencies(),
        waits_for: OnceLock::new(),
        computing: Arc::clone(&shared.computing),
        slots: OnceLock::new(),
        time_limit: TimeLimit::new(kind.limits.step_timeout, kind.limits.job_timeout, shared.clock.clone()),
        children: ChildIds::default(),
        trace: envelope.trace.clone(),
        telemetry: Arc::clone(&shared.telemetry),
        interrupted: CancellationToken::new(),
        cancelled: CancellationToken::new(),
        revoked: CancellationToken::new(),
        deadline: Mutex::new(None),
        lease_ends,
        last_saved: Mutex::new(Instant::now()),
        unconfirmed: Mutex::new(None),
        saving: Mutex::new(None),
        began: Mutex::new(None),
        began_unix_ms: OnceLock::new(),
        since_unix_ms: unix_millis(),
        stalled_unix_ms: AtomicI64::new(0),
        moved_unix_ms: AtomicI64::new(0),
        hung: OnceLock::new(),
        blocks: AtomicBool::new(false),
        is_excused: AtomicBool::new(false),
        wait_time: Arc::new(WaitTime::new(shared.clock.clone())),
        span: OnceLock::new(),
        escalated: OnceLock::new(),
        has_resumed: AtomicBool::new(false),
        steps: AtomicU64::new(0),
        steps_at_load: AtomicU64::new(0),
        unsaved_steps: AtomicU32::new(0),
        done: AtomicU64::new(0),
        total: AtomicU64::new(0),
        reports: AtomicU64::new(0),
        estimate: Mutex::default(),
        saves: Box::default(),
    }
}

/// Returns how long an owner may be silent before another message may take over its job: two leases
/// and the longest time between two checkpoints.
fn abandoned_after(settings: &Settings) -> Duration {
    let longest = match settings.checkpoint_every {
        CheckpointEvery::Auto => LONGEST,
        CheckpointEvery::Every(every) => every,
    };
    settings.lease.saturating_mul(2).saturating_add(longest)
}

/// A kind of job, and the job that runs it.
#[derive(Debug, Clone)]
pub(super) struct Registered {
    pub(super) kind: Arc<Kind>,
    pub(super) runnable: Arc<dyn Runnable>,
}

/// A job without its types.
#[async_trait]
pub(super) trait Runnable: std::fmt::Debug + Send + Sync {
    async fn run(&self, execution: Box<Execution>) -> RunOutcome;
}

struct Typed<J>(J);

impl<J: Job> std::fmt::Debug for Typed<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(J::KIND)
    }
}

#[async_trait]
impl<J: Job> Runnable for Typed<J> {
    async fn run(&self, execution: Box<Execution>) -> RunOutcome {
        execute(&self.0, execution).await
    }
}

/// The worker's kinds of job, by name.
#[derive(Debug, Default)]
pub(in crate::worker) struct Registry(BTreeMap<&'static str, Registered>);

impl Registry {
    /// Adds a kind; returns false when one of that name is already registered.
    pub(crate) fn add<J: Job>(&mut self, job: J) -> bool {
        let kind = Arc::new(Kind::new(J::KIND, J::SCHEMA, Limits::default()));
        self.0.insert(J::KIND, Registered { kind, runnable: Arc::new(Typed(job)) }).is_none()
    }

    /// Changes a kind before the worker is built; `None` if it is not registered.
    pub(in crate::worker) fn kind_mut(&mut self, name: &str) -> Option<&mut Kind> {
        Arc::get_mut(&mut self.0.get_mut(name)?.kind)
    }

    /// Returns the kinds.
    pub(in crate::worker) fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.0.values().map(|registered| &registered.kind)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Registered> {
        self.0.get(name)
    }

    /// Reports whether a kind is registered.
    pub(in crate::worker) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(in crate::worker) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}
