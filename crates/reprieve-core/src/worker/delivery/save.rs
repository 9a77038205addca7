//! Saves the progress of one run: decides when a save is due, and writes the encoded state through
//! the job's record.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::checkpoint::{SHORTEST, careful_gap};
use crate::codec::{self, Digest, Encoded, Fingerprint};
use crate::context::JobRun;
use crate::error::{Error, ErrorKind, Result};
use crate::mutex::{get, set};
use crate::names::result_blob;
use crate::record::{Company, Saving, Written};
use crate::retry::{LogThrottle, bounded};
use crate::telemetry::ByKind;
use crate::worker::isolation::Presence;
use crate::worker::kind::Kind;
use crate::worker::shared::Shared;

/// The longest time for one try of a read or write that the job waits for, and for a save of a
/// state that is not longer by its length. It is generous, because a large checkpoint on a slow
/// link is not an error.
pub(super) const TRY: Duration = Duration::from_secs(30);

/// The longest time for one write in a drain, where two tries must fit before the soft mark.
pub(super) const DRAIN_TRY: Duration = Duration::from_secs(1);

/// A slow store: 25 MB a second, like the smallest managed disks. A try is given at least the time
/// that a state takes at this speed.
const SLOW_BYTES_PER_MS: u64 = 25_000;

/// The wait between two tries to save in a drain.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);

/// The saves of one run.
#[derive(Debug)]
pub(super) struct Saver {
    shared: Arc<Shared>,
    kind: Arc<Kind>,
    run: Arc<JobRun>,
    /// Whether the job runs alone or beside others.
    presence: Arc<Mutex<Presence>>,
    /// When the job last saved, or tried to.
    tried: Instant,
    /// The state that was loaded; `None` before anything was loaded, and once the job has moved.
    loaded: Option<Loaded>,
    /// The job went back to an older state, so what it does now may have been done before.
    went_back: bool,
    /// The fingerprint of the state that this run saved last.
    saved: Option<Fingerprint>,
    /// Until when the job waits at its own request, in milliseconds since the Unix epoch.
    waits_until: Option<i64>,
    /// Until when steps are saved more often, because the job vanished before.
    careful_until: Option<Instant>,
    /// The job has moved in this run: it is past the step in which it vanished.
    has_moved_on: bool,
    /// After how many more steps the job saves each time, because it failed there.
    careful_steps: u32,
    /// The value of the rules' save counter at the last try.
    asked_to_save: u64,
    failures: LogThrottle,
}

/// The identity of a loaded state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loaded {
    fingerprint: Fingerprint,
    /// The identity in any order of its elements: that of a map with hashing is another one each time.
    digest: Digest,
}

impl Loaded {
    /// The identity of `at`.
    ///
    /// # Errors
    /// Why the state can't be encoded.
    pub(super) fn new<C: Serialize>(at: &C) -> std::result::Result<Self, String> {
        let digest = codec::digest(at).map_err(|error| error.to_string())?;
        Ok(Self { fingerprint: codec::fingerprint(at)?, digest })
    }

    /// Whether `state` is the same, perhaps in another order.
    fn is(&self, state: &Encoded) -> bool {
        let other = state.fingerprint();
        self.fingerprint == other
            || self.fingerprint.length() == other.length() && state.has_digest(self.digest)
    }
}

/// The end of a save.
#[derive(Debug)]
pub(super) enum Saved {
    /// The state is the job's newest checkpoint.
    Yes,
    /// It is not, or not known to be. Contains the reason.
    No(String),
    /// Another owner wrote the record, which decides what this delivery does.
    Refused,
    /// Another owner has the job.
    Lost,
}

impl Saver {
    pub(super) fn new(
        shared: &Arc<Shared>,
        kind: &Arc<Kind>,
        run: &Arc<JobRun>,
        presence: &Arc<Mutex<Presence>>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            kind: Arc::clone(kind),
            run: Arc::clone(run),
            presence: Arc::clone(presence),
            tried: Instant::now(),
            loaded: None,
            went_back: false,
            saved: None,
            waits_until: None,
            careful_until: None,
            has_moved_on: false,
            careful_steps: 0,
            asked_to_save: shared.rules.get().saves,
            failures: LogThrottle::default(),
        }
    }

    /// Saves every step for one interval, or as often as a tenth of that time allows, because the job vanished before.
    pub(super) fn be_careful_for_an_interval(&mut self) {
        self.careful_until = Some(Instant::now() + self.interval());
    }

    /// Saves each of the next `steps` steps, because the job failed there.
    pub(super) fn be_careful_for(&mut self, steps: u32) {
        self.careful_steps = steps;
    }

    /// Starts to count the time until the first save. `loaded` is the state that was loaded, if one
    /// was.
    pub(super) fn begin(&mut self, loaded: Option<Loaded>) {
        // It is saved, perhaps in an older shape.
        (self.loaded, self.saved) = (loaded, loaded.map(|loaded| loaded.fingerprint));
        self.note_try();
        set(&self.run.last_saved, self.tried);
    }

    /// Makes further saves note that the job waits.
    pub(super) fn wait_until(&mut self, due_unix_ms: i64) {
        self.waits_until = Some(due_unix_ms);
    }

    /// Whether this is the state that was loaded.
    pub(super) fn has_loaded(&self, state: Fingerprint) -> bool {
        self.loaded.is_some_and(|loaded| loaded.fingerprint == state)
    }

    /// Whether a state was loaded from which the job has not moved yet.
    pub(super) fn is_at_rest(&self) -> bool {
        self.loaded.is_some()
    }

    /// Notes that the loaded state has been decoded again, and how it is encoded now.
    pub(super) fn reload(&mut self, fingerprint: Fingerprint) {
        let Some(loaded) = &mut self.loaded else { return };
        if self.saved == Some(loaded.fingerprint) {
            self.saved = Some(fingerprint);
        }
        loaded.fingerprint = fingerprint;
    }

    /// Notes that the job has gone back to this state. From here on it counts as not moved until its next
    /// delivery.
    pub(super) fn go_back(&mut self, to: Loaded) {
        (self.loaded, self.saved, self.went_back) = (Some(to), None, true);
    }

    /// Reports whether to save after a step. Counts the step. A step that waits may have ended because a save was due
    /// by what it was told; it would end again at once if that were not so any more.
    pub(super) fn is_due_after_step(&mut self) -> bool {
        let careful = self.careful_steps > 0;
        self.careful_steps = self.careful_steps.saturating_sub(1);
        let every = if self.is_careful() { self.careful_gap() } else { self.interval() };
        self.is_asked() || careful || self.tried.elapsed() >= every || self.run.saves.is_due()
    }

    /// Whether the job saves more often, because it vanished before.
    fn is_careful(&self) -> bool {
        self.careful_until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns after how long a careful job saves again. It saves after every step until it has moved once, so that it
    /// comes forward also where no machine lives for long.
    fn careful_gap(&self) -> Duration {
        let mean = self.kind.saves.mean().filter(|_| self.has_moved_on);
        careful_gap(mean.unwrap_or_default()).min(self.interval())
    }

    /// Makes a save due within the present step if the rules ask for one.
    pub(super) fn look_at_rules(&self) {
        if self.is_asked() {
            self.run.saves.set_due(Instant::now());
        }
    }

    /// Whether the rules have asked for a save since the last try.
    fn is_asked(&self) -> bool {
        self.shared.rules.get().saves != self.asked_to_save
    }

    /// Returns how often progress is saved when nothing else calls for a save.
    pub(super) fn interval(&self) -> Duration {
        self.shared.save_every(&self.kind)
    }

    fn note_try(&mut self) {
        (self.tried, self.asked_to_save) = (Instant::now(), self.shared.rules.get().saves);
        self.set_due();
    }

    /// Says to steps when the next save is due, as it follows from the last try.
    fn set_due(&self) {
        // A step that saves for itself can't save after every step; it does so as often as is
        // useful.
        let interval = self.interval();
        let interval =
            if self.is_careful() { interval.min(SHORTEST.max(self.careful_gap())) } else { interval };
        self.run.saves.set_due(self.tried + interval);
    }

    /// Saves without ending the run. A failure is counted and the job goes on: it only puts more
    /// work at stake until the next save.
    pub(super) async fn save_in_passing(&mut self, state: &Encoded, company: Company) -> Saved {
        // An interruption needs the save just as much, but under the drain's patience.
        let (interrupted, drain_try) = (self.run.interrupted.clone(), self.drain_try(state, 0));
        let run = Arc::clone(&self.run);
        let saved = tokio::select! {
            biased;
            saved = self.save(state, company, TRY.max(by_length(state))) => saved,
            () = async { interrupted.cancelled().await; run.note_saving(drain_try); sleep(drain_try).await } => {
                set(&run.saving, None);
                return Saved::No("the worker was interrupted".to_owned());
            }
        };
        set(&run.saving, None);
        match saved {
            Ok(Written::Taken) => Saved::Yes,
            Ok(Written::Refused) => Saved::Refused,
            Err(error) if error.kind() == ErrorKind::Superseded => Saved::Lost,
            Err(error) => {
                self.log_failure(&error);
                Saved::No(error.to_string())
            }
        }
    }

    fn log_failure(&mut self, error: &Error) {
        let job = &self.run.job;
        if self.failures.is_news() {
            tracing::warn!(
                %job,
                %error,
                "failed to save a checkpoint; the job continues, and the next save is at the usual time"
            );
        } else {
            tracing::debug!(%job, %error, "failed to save a checkpoint");
        }
    }

    /// Saves because the job was asked to yield. Tries until the guardian revokes the job at the
    /// soft mark, or until an error that does not pass.
    pub(super) async fn save_in_drain(&mut self, state: &Encoded) -> Saved {
        let is_saved = self.saved == Some(state.fingerprint()) && get(&self.run.unconfirmed).is_none();
        let is_saved = is_saved && !self.run.time_limit.is_of_job();
        if is_saved && self.waits_until.is_none() && !self.run.record.lock().await.attachments.has_changed() {
            return Saved::Yes;
        }
        self.run.record.lock().await.use_store(Arc::clone(&self.shared.drain_store.records));
        let mut unanswered = 0;
        loop {
            let each = self.drain_try(state, unanswered);
            // Nothing but the end of the save is waited for where the job has no deadline.
            let each = if self.run.has_deadline() { each } else { each.max(TRY).max(by_length(state)) };
            self.run.note_saving(each);
            let saved = self.save(state, Company::Shared, each).await;
            set(&self.run.saving, None);
            unanswered += u32::from(saved.as_ref().is_err_and(|it| it.kind() == ErrorKind::TimedOut));
            match saved {
                Ok(Written::Taken) => return Saved::Yes,
                Ok(Written::Refused) => return Saved::Refused,
                Err(error) if error.kind() == ErrorKind::Superseded => return Saved::Lost,
                Err(error) if error.is_temporary() => sleep(DRAIN_PAUSE).await,
                Err(error) => return Saved::No(error.to_string()),
            }
        }
    }

    /// Returns how long one save may take in a drain: a second, or twice the 95th percentile of
    /// this kind's saves, or the time for its bytes, whatever is longest. More after tries that
    /// were not answered: the first save of a kind may show that all take longer.
    fn drain_try(&self, state: &Encoded, unanswered: u32) -> Duration {
        let known = self.kind.saves.p95().unwrap_or_default() * 2;
        DRAIN_TRY.max(known).max(by_length(state)) * (1 + unanswered).min(3)
    }

    /// Saves once, and bounds, measures and counts the save.
    async fn save(&mut self, state: &Encoded, company: Company, each: Duration) -> Result<Written> {
        const OPERATION: &str = "save a checkpoint";
        self.run.may_write(OPERATION).await?;
        let began = Instant::now();
        // Set before the outcome is known, so that a broken store is not asked after every step.
        self.note_try();
        let moved = self.has_moved(state).await;
        let unanswered = get(&self.run.unconfirmed);
        set(&self.run.unconfirmed, unanswered.or(Some(began)));
        let saved = bounded(OPERATION, each, self.write(OPERATION, state, company, moved)).await;
        match &saved {
            Ok(_) => set(&self.run.unconfirmed, None),
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            // An earlier unanswered save is as uncertain as before.
            Err(_) => set(&self.run.unconfirmed, unanswered),
        }
        self.count(&saved, began, state);
        if matches!(saved, Ok(Written::Taken)) {
            set(&self.run.last_saved, began);
            self.run.unsaved_steps.store(0, Relaxed);
            self.saved = Some(state.fingerprint());
            if moved {
                // The job has moved past the step that it vanished in, so that step did not kill
                // it.
                self.loaded = None;
                self.has_moved_on = true;
                // A careful job had been told that it saves at once again.
                self.set_due();
            }
        }
        saved
    }

    /// Whether the job's state or attachments differ from those that were loaded, or the job waits.
    async fn has_moved(&self, state: &Encoded) -> bool {
        if self.went_back {
            return false;
        }
        if self.waits_until.is_some() {
            return true;
        }
        self.loaded.is_none_or(|loaded| !loaded.is(state))
            || self.run.record.lock().await.attachments.has_moved()
    }

    /// Writes the state through the record. The first save of a job without a record looks for a
    /// result before: without a record, only that shows that the job is done.
    async fn write(
        &self,
        operation: &'static str,
        state: &Encoded,
        company: Company,
        moved: bool,
    ) -> Result<Written> {
        let (run, presence) = (&self.run, &self.presence);
        let is_first = run.record.lock().await.own().is_none() && !run.interrupted.is_cancelled();
        if is_first {
            if run.store.blobs.exists(&result_blob(&run.job)?).await? {
                return Ok(Written::Refused);
            }
            // The machine may have been frozen meanwhile.
            run.may_write(operation).await?;
        }
        let mut record = run.record.lock().await;
        let is_alone = !moved && Presence::lock(presence).is_alone();
        let company = if is_alone { Company::Alone } else { company };
        let (careful_steps, waits_until) = (self.careful_steps, self.waits_until);
        let children = self.run.children.to_save();
        let ran = self.run.time_limit.ran();
        let saving = Saving { moved, company, careful_steps, waits_until, children, ran };
        let saved = record.save(state, saving).await;
        if moved && matches!(saved, Ok(Written::Taken)) {
            Presence::lock(presence).join_others();
        }
        saved
    }

    fn count(&self, saved: &Result<Written>, began: Instant, state: &Encoded) {
        let telemetry = &self.run.telemetry;
        let kind = ByKind { kind: self.kind.name.to_owned() };
        match saved {
            Ok(Written::Taken) => {
                let took = began.elapsed();
                self.kind.saves.note(took);
                self.kind.packing.note(state, took);
                self.run.saves.set_packs(self.kind.packing.is_on());
                telemetry.checkpoint_seconds.get_or_create(&kind).observe(took.as_secs_f64());
                #[expect(clippy::cast_precision_loss, reason = "a histogram's bucket needs no more")]
                telemetry.checkpoint_bytes.get_or_create(&kind).observe(state.bytes().len() as f64);
            }
            Ok(Written::Refused) => {
                telemetry.stale_writes_blocked.inc();
            }
            Err(_) => {
                telemetry.checkpoint_errors.get_or_create(&kind).inc();
            }
        }
    }
}

/// Returns the time that a slow store takes for the state.
fn by_length(state: &Encoded) -> Duration {
    Duration::from_millis(state.bytes().len() as u64 / SLOW_BYTES_PER_MS)
}
