//! The state that all parts of one worker share, and in it the jobs that run now.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::books::Books;
use super::cancels::Cancels;
use super::elsewhere::Elsewhere;
use super::escalation::Escalation;
use super::isolation::Isolation;
use super::kind::Kind;
use super::losses::KnownLosses;
use super::measure::Recent;
use super::pressure::Pressure;
use super::settings::Settings;
use super::spans::OpenSpans;
use super::states::States;
use crate::checkpoint::IntervalReport;
use crate::context::JobRun;
use crate::dependency::{Count, DependencyHandle};
use crate::ids::{JobId, WorkerId};
use crate::interruption::Throttle;
use crate::mutex::get;
use crate::ports::{DeferredMessage, InFlight, Store};
use crate::process::in_process;
use crate::run_clock::RunClock;
use crate::telemetry::Telemetry;
use crate::turns::Turns;
use crate::watch;

/// For how long the times of letters count.
const LETTERS_AGE_MAX: Duration = Duration::from_mins(10);

/// The dead letters of one part of the queue.
#[derive(Debug)]
pub(super) struct Letters {
    /// One permit for each that may be under way at once in a drain. Letters wait for other letters only: while 64 slow
    /// ones were sent, no message was released.
    pub(super) turns: Semaphore,
    /// One permit for the letter that finds out whether the only known time was out of line.
    pub(super) probe: Semaphore,
    /// How long the latest took.
    pub(super) took: Recent,
}

impl Letters {
    pub(super) fn new(at_once: usize) -> Self {
        Self { turns: Semaphore::new(at_once), probe: Semaphore::new(1), took: Recent::new(LETTERS_AGE_MAX) }
    }

    /// How long one takes, as far as is known. One that was out of line does not count where there are others.
    pub(super) fn take(&self) -> Duration {
        self.took.p95_or_second().unwrap_or_default()
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) worker: WorkerId,
    /// The time for which this worker's process runs.
    pub(super) clock: RunClock,
    /// The id of this machine's present boot; empty when unknown.
    pub(super) boot: String,
    pub(super) settings: Settings,
    pub(super) store: Arc<Store>,
    /// The store for drains, through clients that give up sooner.
    pub(super) drain_store: Arc<Store>,
    /// Where jobs go that this worker's machines do not last long enough for.
    pub(super) escalation: Option<Escalation>,
    pub(super) telemetry: Arc<Telemetry>,
    /// Knows the spans that jobs open in their steps.
    pub(super) spans: Option<Arc<dyn OpenSpans>>,
    /// The runtime for jobs.
    pub(super) jobs: Handle,
    /// One permit for each job that may run at once. A job's task holds it until the task really
    /// ends.
    pub(super) slots: Arc<Semaphore>,
    /// Slots that replace stuck ones, beside those of the settings.
    pub(super) replaced: AtomicUsize,
    /// Guardians with a job in a slot. Any further slot in use belongs to a task that was given up
    /// and still runs.
    pub(super) guarded: AtomicUsize,
    /// Guardians that wait for a slot.
    pub(super) waiting: Count,
    /// How many slots have passed to a guardian that waited.
    pub(super) slots_passed_on: AtomicUsize,
    /// For each part of the queue, one permit for each release that may be under way at once in a
    /// drain. A part that does not answer does not delay the others.
    pub(super) releases: Vec<Arc<Semaphore>>,
    /// For each part of the queue, its dead letters.
    pub(super) letters: Vec<Arc<Letters>>,
    /// Lets a job run alone.
    pub(super) isolation: Arc<Isolation>,
    /// The number of deliveries that were numbered.
    pub(super) numbers: AtomicU64,
    /// Messages that this worker could not use.
    pub(super) deferred: Deferred,
    /// The times of single calls that settled a message, and of those that received some.
    pub(super) settlements: Recent,
    pub(super) receives: Recent,
    /// The run times of jobs that began where they finished.
    pub(super) runs: Recent,
    /// The jobs that run now.
    pub(super) running: RunningJobs,
    /// The kinds of job that the worker knows.
    pub(super) kinds: Vec<Arc<Kind>>,
    /// The jobs that were cancelled.
    pub(super) cancels: Cancels,
    /// What the jobs share.
    pub(super) states: States,
    /// What the jobs depend on besides the store.
    pub(super) dependencies: Arc<[DependencyHandle]>,
    /// One permit for each closure of a job that may compute at once: the number of cores.
    pub(super) computing: Arc<Turns>,
    /// What others could begin.
    pub(super) elsewhere: Elsewhere,
    /// The machine's state.
    pub(super) pressure: Pressure,
    /// How often machines lose work.
    pub(super) losses: KnownLosses,
    /// Where the worker's parts hand in what goes into the ledger.
    pub(super) books: Arc<Books>,
    /// The current rules for running jobs and held leases.
    pub(super) rules: watch::Sender<Rules>,
    /// How many guardians have a job that failed, and wait for a look at what it needs.
    pub(super) judged: watch::Sender<usize>,
}

impl Shared {
    /// Returns the number of slots occupied by tasks that were given up and have not ended.
    pub(super) fn stuck(&self) -> usize {
        let taken = self.all_slots().saturating_sub(self.slots.available_permits());
        taken.saturating_sub(self.guarded.load(Relaxed))
    }

    /// Returns the number of slots, with those that replace stuck ones.
    fn all_slots(&self) -> usize {
        self.settings.concurrency + self.replaced.load(Relaxed)
    }

    /// Returns how many jobs can run at once.
    pub(super) fn usable_slots(&self) -> usize {
        self.all_slots().saturating_sub(self.stuck()).min(self.settings.concurrency)
    }

    /// Returns how long it takes to receive messages and to return them, by what was measured lately.
    pub(super) fn pass_takes(&self) -> Duration {
        self.receives.mean().unwrap_or_default() + self.settlements.mean().unwrap_or_default()
    }

    /// Returns how many messages the worker can receive and return in a second.
    pub(super) fn passes(&self) -> f64 {
        let batch = u32::try_from(self.store.queue.batch_max()).unwrap_or(u32::MAX);
        f64::from(batch) / self.pass_takes().as_secs_f64().max(0.001)
    }

    /// Whether every slot is occupied by such a task, so that this worker can run no job.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck() >= self.all_slots()
    }

    /// Returns the id of this machine's boot, or of this process where the system has none.
    pub(super) fn life(&self) -> &str {
        if self.boot.is_empty() { self.worker.as_str() } else { &self.boot }
    }

    /// Returns a number for a delivery, unique in this worker.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Asks which jobs were cancelled in the background, if that is due, and tells those that run.
    pub(super) fn ask_for_cancels(self: &Arc<Self>) {
        if self.cancels.are_due() {
            let shared = Arc::clone(self);
            tokio::spawn(in_process(async move {
                if let Some(jobs) = shared.cancels.ask(&shared.store).await {
                    shared.running.cancel(&jobs);
                }
            }));
        }
    }

    /// Asks the roster who else works, in the background, while an event that could end this machine's work is
    /// announced. Called once a second.
    pub(super) fn ask_who_else_works(self: &Arc<Self>) {
        let throttle = self.rules.get().throttle;
        let matters = throttle.below.is_some() || throttle.ends_at.is_some();
        if matters && self.elsewhere.begin_to_ask(&*self.store.roster) {
            let shared = Arc::clone(self);
            tokio::spawn(in_process(async move {
                shared.elsewhere.ask(&*shared.store.roster, &shared.worker).await;
            }));
        }
    }

    /// Asks, before a job begins, which jobs were cancelled, unless that is known.
    pub(super) async fn know_cancels(&self) {
        if let Some(jobs) = self.cancels.know(&self.store).await {
            self.running.cancel(&jobs);
        }
    }

    /// Returns where a job is, as far as that is known: in which step, and in which of its own spans.
    pub(super) fn place_of(&self, run: &JobRun) -> String {
        let span = run.span.get().zip(self.spans.as_ref()).and_then(|(job, spans)| spans.innermost(job));
        match span {
            Some(span) => format!("{}, span {span}", run.place()),
            None => run.place(),
        }
    }

    /// Returns how often the jobs of this kind are saved when nothing else calls for a save.
    pub(super) fn save_every(&self, kind: &Kind) -> Duration {
        self.settings.checkpoint_every.interval(kind.saves.mean(), self.losses.get())
    }

    /// Returns how often jobs are saved, of kinds that were saved lately or are among `in_flight`.
    pub(super) fn intervals(&self, in_flight: &[InFlight]) -> IntervalReport {
        let shown = self.kinds.iter().filter_map(|kind| {
            let save = kind.saves.mean();
            let is_shown = save.is_some() || in_flight.iter().any(|job| job.kind == kind.name);
            is_shown.then(|| (kind.name.to_owned(), save))
        });
        IntervalReport::new(self.settings.checkpoint_every, self.losses.get(), shown)
    }

    /// Returns the length of a lease that is taken or renewed now.
    pub(super) fn lease(&self) -> Duration {
        self.rules.get().lease(&self.settings)
    }
}

/// A delivery in flight, as the worker shows it.
#[derive(Debug)]
pub(super) struct RunningJob {
    kind: Arc<Kind>,
    run: Arc<JobRun>,
}

impl RunningJob {
    pub(super) fn new(kind: &Arc<Kind>, run: &Arc<JobRun>) -> Self {
        Self { kind: Arc::clone(kind), run: Arc::clone(run) }
    }

    pub(super) fn in_flight(&self, shared: &Shared) -> InFlight {
        let stalled_since = self.run.stalled_since();
        InFlight {
            job: self.run.job.clone(),
            kind: self.kind.name.to_owned(),
            delivery: self.run.delivery,
            progress: self.run.progress(),
            steps: self.run.steps.load(Relaxed),
            since_unix_ms: self.run.since_unix_ms,
            moved_unix_ms: self.run.moved_at(),
            stalled_since_unix_ms: stalled_since,
            stalled_in: stalled_since.map(|_| shared.place_of(&self.run)),
            began_unix_ms: self.run.began_unix_ms.get().copied(),
            kept_ms: u64::try_from(self.run.work_kept().as_millis()).unwrap_or(u64::MAX),
            escalated: self.run.escalated.get().cloned(),
        }
    }

    /// Returns the job.
    pub(super) fn job(&self) -> &JobId {
        &self.run.job
    }

    pub(super) fn is_of(&self, job: &JobId) -> bool {
        self.run.job == *job
    }

    /// Returns when its lease ends.
    pub(super) fn lease_ends(&self) -> Instant {
        self.run.lease_ends.get()
    }

    /// Returns the job's kind.
    pub(super) fn kind(&self) -> &'static str {
        self.kind.name
    }

    /// Reports whether the job has been running for longer than `time`.
    pub(super) fn runs_longer_than(&self, time: Duration) -> bool {
        get(&self.run.began).is_some_and(|began| began.elapsed() > time)
    }
}

/// The deliveries in flight with readable messages, by number.
#[derive(Debug, Default)]
pub(super) struct RunningJobs(Mutex<(u64, BTreeMap<u64, RunningJob>)>);

impl RunningJobs {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, RunningJob>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.lock().1.len()
    }

    /// Applies `look` to each.
    pub(super) fn map<T>(&self, look: impl Fn(&RunningJob) -> T) -> Vec<T> {
        self.lock().1.values().map(look).collect()
    }

    /// Returns their kinds and runs by their numbers.
    pub(super) fn all(&self) -> BTreeMap<u64, (Arc<Kind>, Arc<JobRun>)> {
        let jobs = self.lock();
        jobs.1.iter().map(|(number, job)| (*number, (Arc::clone(&job.kind), Arc::clone(&job.run)))).collect()
    }

    /// Returns when the last of this kind began.
    pub(super) fn last_begun(&self, kind: &str) -> Option<Instant> {
        let jobs = self.lock();
        jobs.1.values().filter(|job| job.kind.name == kind).filter_map(|job| get(&job.run.began)).max()
    }

    /// Returns how many fulfil `condition`.
    pub(super) fn count(&self, condition: impl Fn(&RunningJob) -> bool) -> usize {
        self.lock().1.values().filter(|job| condition(job)).count()
    }

    /// Tells those among `jobs` that they are cancelled.
    pub(super) fn cancel(&self, jobs: &HashSet<JobId>) {
        for running in self.lock().1.values().filter(|running| jobs.contains(&running.run.job)) {
            running.run.cancelled.cancel();
        }
    }

    /// Adds a job, and returns the number under which to remove it.
    pub(super) fn add(&self, job: RunningJob) -> u64 {
        let mut jobs = self.lock();
        jobs.0 += 1;
        let number = jobs.0;
        jobs.1.insert(number, job);
        number
    }

    pub(super) fn remove(&self, number: u64) {
        self.lock().1.remove(&number);
    }
}

/// A job's entry among the running ones, removed when dropped.
#[derive(Debug)]
pub(super) struct Entry {
    shared: Arc<Shared>,
    number: u64,
}

impl Entry {
    pub(super) fn add(shared: &Arc<Shared>, job: RunningJob) -> Self {
        // If this worker can't use the message again, it is noted again.
        shared.deferred.forget(job.run.job.as_str());
        let number = shared.running.add(job);
        Self { shared: Arc::clone(shared), number }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.running.remove(self.number);
    }
}

/// The messages that this worker received recently and could not use, for the roster.
#[derive(Debug, Default)]
pub(super) struct Deferred(Mutex<BTreeMap<String, DeferredMessage>>);

/// The most deferred messages that a worker shows.
const DEFERRED_MAX: usize = 32;

impl Deferred {
    pub(super) fn note(&self, message: DeferredMessage) {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < DEFERRED_MAX || messages.contains_key(&message.job) {
            messages.insert(message.job.clone(), message);
        }
    }

    /// Removes the message of a job that is running or settled.
    pub(super) fn forget(&self, job: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
    }

    /// Returns the messages to show.
    pub(super) fn shown(&self, now_unix_ms: i64) -> Vec<DeferredMessage> {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages.retain(|_, message| !message.is_gone(now_unix_ms));
        messages.values().cloned().collect()
    }
}

/// The rules until the next change. Each counter rises by one to request its action once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rules {
    pub(crate) throttle: Throttle,
    /// Counts requests to save progress now.
    pub(crate) saves: u64,
    /// Counts requests to verify every lease now, by renewing it.
    pub(crate) checks: u64,
}

impl Rules {
    /// Returns the length of a lease that is taken or renewed now. Twice `outlast`, because a lease
    /// that is renewed at a third of its length then always outlasts it.
    pub(super) fn lease(&self, settings: &Settings) -> Duration {
        let outlast = self.throttle.outlast.unwrap_or_default().saturating_mul(2);
        settings.lease.max(outlast)
    }

    /// Reports whether a lease that ends at `ends` is too short.
    pub(super) fn is_too_short(&self, ends: Instant) -> bool {
        self.throttle.outlast.is_some_and(|outlast| ends < Instant::now() + outlast)
    }
}

/// Completes when jobs need not rest any more. Cancel-safe.
pub(crate) async fn resumed(rules: &mut watch::Receiver<Rules>) {
    rules.wait_for(|rules| !rules.throttle.paused).await;
}
