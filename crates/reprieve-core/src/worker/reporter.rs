//! Reports the worker's state: to the roster, to health endpoints and metrics, and as stored reports
//! of its drains. None of it makes the worker wait.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::books::Books;
use super::shared::Shared;
use crate::checkpoint::IntervalReport;
use crate::clock::unix_millis;
use crate::dependency::DependencyReport;
use crate::healing::HealingAction;
use crate::ids::{JobId, WorkerId};
use crate::interruption::Stage;
use crate::ledger::{Entry, How, Interruption, Ledger};
use crate::mutex::{get, replace, set};
use crate::names::drain_blob;
use crate::ports::{ActiveNotice, BlobStore, DeferredMessage, InFlight, LimitedKind, Roster, WorkerReport};
use crate::pressure::MachineReport;
use crate::process::in_process;
use crate::report::DrainReport;
use crate::telemetry::{ByStage, Telemetry};
use crate::watch;

/// How often an unchanged report is repeated, so that a reader can tell an idle worker from a dead
/// one. Less often where reports are billed.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Returns how often the workers of `roster` repeat an unchanged report.
#[must_use]
pub fn report_every(roster: &dyn Roster) -> Duration {
    REPORT_EVERY.max(roster.pace())
}

/// How soon a report with news is repeated that the store did not take. Other workers decide by it.
const NEWS_AGAIN: Duration = Duration::from_secs(2);

/// The longest time for one report. Only people read it, and the next one replaces it.
const TRY: Duration = Duration::from_secs(5);

/// The same when the process is about to end.
const LAST_TRY: Duration = Duration::from_secs(1);

/// The same when a second stop was requested, and whoever did that waits for nothing else.
const HURRIED_TRY: Duration = Duration::from_millis(750);

/// The state that a worker reports.
#[derive(Debug)]
pub(super) struct Showing<'a> {
    pub(super) stage: Stage,
    pub(super) completed: u64,
    pub(super) in_flight: Vec<InFlight>,
    /// This machine's name; empty while it is not known.
    pub(super) machine: &'a str,
    pub(super) notices: Vec<ActiveNotice>,
    pub(super) deferred: Vec<DeferredMessage>,
    pub(super) limits: Vec<LimitedKind>,
    pub(super) dependencies: Vec<DependencyReport>,
    pub(super) intervals: IntervalReport,
    pub(super) machine_state: Option<MachineReport>,
}

/// Reports the worker's state: to the roster, and to its [`Monitor`].
#[derive(Debug)]
pub(super) struct Reporter {
    roster: Arc<dyn Roster>,
    monitor: Monitor,
    /// The last report that was published.
    published: WorkerReport,
    published_at: Option<Instant>,
    /// Whether the store takes it.
    publishing: Option<JoinHandle<bool>>,
    /// The news of the last one that the store took.
    taken: Option<News>,
    /// Drain reports that are being stored.
    storing: JoinSet<()>,
    /// How many drains there were.
    drains: u64,
}

/// What of a report is to be known soon: its stage, the notices and the fault.
type News = (String, Vec<ActiveNotice>, Option<String>);

fn news(report: &WorkerReport) -> News {
    (report.stage.clone(), report.notices.clone(), report.fault.clone())
}

impl Reporter {
    /// Creates the reporter of the worker that `worker` describes.
    pub(super) fn new(roster: Arc<dyn Roster>, worker: WorkerReport, monitor: Monitor) -> Self {
        let (published_at, publishing, taken, storing, drains) = (None, None, None, JoinSet::new(), 0);
        Self { roster, monitor, published: worker, published_at, publishing, taken, storing, drains }
    }

    /// Returns the name of the worker's queue.
    pub(super) fn queue(&self) -> &str {
        &self.published.queue
    }

    /// Notes that the dispatcher runs, and whether all slots are stuck. Returns for how long it did
    /// not run.
    pub(super) fn beat(&self, is_stuck: bool) -> Duration {
        if self.monitor.is_stuck.swap(is_stuck, Relaxed) != is_stuck {
            if is_stuck {
                tracing::error!(
                    "every slot is occupied by a job that was given up and does not end; this worker can run \
                     nothing until it is restarted"
                );
            } else {
                tracing::info!("a job that was given up has ended; this worker can run jobs again");
            }
        }
        let now = Instant::now();
        now.saturating_duration_since(replace(&self.monitor.beat, now))
    }

    /// Shows the worker's stage.
    pub(super) fn enter(&self, stage: Stage) {
        self.monitor.enter(stage);
    }

    /// Completes when another drain report is stored or given up. Cancel-safe; waits without limit
    /// when none is under way.
    pub(super) async fn stored(&mut self) {
        if self.storing.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Reports whether every drain report is stored or given up.
    pub(super) fn has_stored_all(&self) -> bool {
        self.storing.is_empty()
    }

    /// Publishes a changed report, or repeats an unchanged one when that is due. Does nothing while
    /// the previous report is under way.
    pub(super) fn publish(&mut self, showing: Showing<'_>) {
        if let Some(publishing) = &mut self.publishing {
            let Some(is_taken) = publishing.now_or_never() else { return };
            self.publishing = None;
            if is_taken.unwrap_or(false) {
                self.taken = Some(news(&self.published));
            }
        }
        let Showing {
            stage,
            completed,
            mut in_flight,
            machine,
            notices,
            deferred,
            limits,
            dependencies,
            intervals,
            ..
        } = showing;
        let state = showing.machine_state;
        in_flight.sort_by(|a, b| a.job.cmp(&b.job));
        if self.published.vm.is_empty() {
            machine.clone_into(&mut self.published.vm);
        }
        let mut report = WorkerReport {
            stage: stage.as_str().to_owned(),
            completed,
            in_flight,
            notices,
            deferred,
            limits,
            dependencies,
            intervals: Some(intervals),
            machine: state.clone(),
            last_drain: self.monitor.last_drain(),
            fault: self.monitor.fault(),
            written: self.monitor.written(),
            at_unix_ms: self.published.at_unix_ms,
            ..self.published.clone()
        };
        // What is only shown of the machine changes each second, and is no news.
        let pressure = |it: &Option<MachineReport>| it.as_ref().map(|it| it.pressure.clone());
        if pressure(&report.machine) == pressure(&self.published.machine) {
            report.machine.clone_from(&self.published.machine);
        }
        let silent = self.published_at.map_or(Duration::MAX, |at| at.elapsed());
        let news_of_report = news(&report);
        let is_known = self.taken.as_ref() == Some(&news_of_report);
        let early = if is_known {
            silent < self.roster.pace()
        } else {
            silent < NEWS_AGAIN && news_of_report == news(&self.published)
        };
        if early || (is_known && report == self.published && silent < report_every(&*self.roster)) {
            return;
        }
        report.machine = state;
        report.at_unix_ms = unix_millis();
        self.published = report.clone();
        self.published_at = Some(Instant::now());
        let (roster, monitor) = (Arc::clone(&self.roster), self.monitor.clone());
        self.publishing = Some(tokio::spawn(in_process(async move {
            let published = timeout(TRY, roster.publish(&report)).await;
            let is_taken = matches!(published, Ok(Ok(())));
            monitor.published(is_taken, report_every(&*roster));
            match published {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "failed to publish the worker's report"),
                Err(_) => tracing::debug!("timed out publishing the worker's report"),
            }
            is_taken
        })));
    }

    /// Shows the report of a drain that began with these jobs, and writes it into the ledger. If anything was held, stores it also as
    /// `drains/<time>-<worker>.json`, because the machine will disappear with its log.
    pub(super) fn drained(&mut self, shared: &Arc<Shared>, report: DrainReport, jobs: Vec<JobId>) {
        if report.held > 0 {
            self.store(&shared.drain_store.blobs, &report);
        }
        self.enter_into_ledger(shared, &report, jobs);
        self.monitor.drained(report);
    }

    /// Nothing is held any more, so this delays no release. It may take what is left of the budget, and at least as
    /// long as the end of the process waits for it.
    fn enter_into_ledger(&mut self, shared: &Arc<Shared>, report: &DrainReport, jobs: Vec<JobId>) {
        let within = Duration::from_millis(report.budget_left_ms).clamp(LAST_TRY, TRY);
        self.drains += 1;
        let drain = self.drains;
        let mut machine = shared.books.machine();
        if machine.vm.is_empty() {
            self.published.vm.clone_into(&mut machine.vm);
        }
        let entry = Entry::Interruption(Box::new(Interruption {
            worker: self.published.worker.clone(),
            boot: shared.life().to_owned(),
            machine,
            queue: self.published.queue.clone(),
            at_unix_ms: report.at_unix_ms,
            jobs,
            how: How::Drained(report.clone()),
        }));
        let shared = Arc::clone(shared);
        shared.books.begun();
        self.storing.spawn(in_process(async move {
            let ledger = Ledger::new(Arc::clone(&shared.drain_store.records));
            shared.books.write(&ledger, entry, drain, within).await;
            shared.books.ended();
        }));
    }

    fn store(&mut self, blobs: &Arc<dyn BlobStore>, report: &DrainReport) {
        let name = drain_blob(report.at_unix_ms, &self.published.worker);
        let (Ok(name), Ok(json)) = (name, serde_json::to_vec(report)) else { return };
        let blobs = Arc::clone(blobs);
        self.storing.spawn(in_process(async move {
            match timeout(TRY, blobs.put(&name, json, None)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "failed to store a drain's report; it is in the log only");
                }
                Err(_) => {
                    tracing::warn!("timed out storing a drain's report; it is in the log only");
                }
            }
        }));
    }

    /// Waits for a moment until the last drain is written down: without its entry, whoever finds the jobs that this worker
    /// leaves takes its end for a death.
    pub(super) async fn end_hurriedly(&mut self) {
        let kept = async { while self.storing.join_next().await.is_some() {} };
        if timeout(HURRIED_TRY, kept).await.is_err() {
            tracing::warn!("timed out writing down a drain; it is in the log only");
        }
    }

    /// Removes the worker from the roster: it ended normally.
    pub(super) async fn withdraw(&mut self) {
        if let Some(publishing) = self.publishing.take() {
            publishing.abort();
            // Awaited so that the report does not arrive after the withdrawal; an aborted task is
            // not a failure.
            let _aborted = publishing.await;
        }
        let kept = async { while self.storing.join_next().await.is_some() {} };
        let withdrawn = self.roster.withdraw(&self.published.worker);
        // Both at once: a store that does not answer delays the end of the process by one wait, not
        // two.
        let (kept, withdrawn) = tokio::join!(timeout(LAST_TRY, kept), timeout(LAST_TRY, withdrawn));
        if kept.is_err() {
            tracing::warn!("timed out storing a drain's report; it is in the log only");
        }
        match withdrawn {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "failed to leave the roster"),
            Err(_) => tracing::debug!("timed out leaving the roster"),
        }
    }
}

/// How many directories a report names, and the longest name of one.
const WRITTEN_MAX: usize = 8;
const WRITTEN_BYTES_MAX: usize = 512;

/// For how long the store must take each report until an outage of it is over for all that is known.
const OUTAGE_OVER: Duration = Duration::from_mins(10);

/// After how long without a report that the store took there was an outage, also if none failed: this machine may have been
/// frozen, and the others with it.
const OUTAGE_FROM: Duration = Duration::from_mins(1);

/// What is known of the store's last outage.
#[derive(Debug, Default)]
struct Outage {
    /// When the store took a report first.
    first_taken: Option<Instant>,
    /// When it took one last.
    last_taken: Option<Instant>,
    /// When it did before the outage.
    taken_before: Option<Instant>,
    /// When it did again.
    ended: Option<Instant>,
    /// After how long without a report that it took there is one.
    from: Duration,
}

/// A view of a running worker. Clones show the same worker, and outlive it.
#[derive(Debug, Clone)]
pub struct Monitor {
    worker: WorkerId,
    telemetry: Arc<Telemetry>,
    books: Arc<Books>,
    stage: watch::Sender<Stage>,
    last_drain: Arc<Mutex<Option<DrainReport>>>,
    beat: Arc<Mutex<Instant>>,
    is_stuck: Arc<AtomicBool>,
    fault: Arc<Mutex<Option<String>>>,
    written: Arc<Mutex<Vec<String>>>,
    /// Since when the store has taken each report; `None` if it did not take the last one.
    published_since: Arc<Mutex<Option<Instant>>>,
    /// What tells how long the store was away.
    outage: Arc<Mutex<Outage>>,
}

impl Monitor {
    pub(super) fn new(worker: WorkerId, telemetry: Arc<Telemetry>, books: Arc<Books>) -> Self {
        let monitor = Self {
            worker,
            telemetry,
            books,
            stage: watch::Sender::new(Stage::Recover),
            last_drain: Arc::default(),
            beat: Arc::new(Mutex::new(Instant::now())),
            is_stuck: Arc::default(),
            fault: Arc::default(),
            written: Arc::default(),
            published_since: Arc::default(),
            outage: Arc::default(),
        };
        monitor.enter(Stage::Recover);
        monitor
    }

    /// Returns the worker's id.
    #[must_use]
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// Returns the worker's metrics.
    #[must_use]
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Returns the worker's present stage.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Completes when the worker is in `stage`. Cancel-safe. Never completes if the worker does not
    /// enter that stage again.
    pub async fn reached(&self, stage: Stage) {
        self.stage.subscribe().wait_for(|now| now == stage).await;
    }

    /// Returns the report of the last drain; `None` before the first has ended.
    #[must_use]
    pub fn last_drain(&self) -> Option<DrainReport> {
        self.last_drain.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether every slot is occupied by a job that was given up and does not end, so that the worker
    /// can run no job.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Relaxed)
    }

    /// Shows in the worker's report the fault of its machine, in words; `None` when there is none.
    pub fn show_fault(&self, fault: Option<String>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows in the worker's report the directories that took a write in this boot: the first few, without very long names.
    pub fn show_written<'a>(&self, directories: impl IntoIterator<Item = Cow<'a, str>>) {
        let short = directories.into_iter().filter(|name| name.len() <= WRITTEN_BYTES_MAX);
        let shown = short.take(WRITTEN_MAX).map(Cow::into_owned).collect();
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    fn written(&self) -> Vec<String> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns for how long the store has taken each report of the worker; `None` if it did not take the last one, or has
    /// taken none for a minute, as after a freeze of the machine.
    #[must_use]
    pub fn store_answers_for(&self) -> Option<Duration> {
        let outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = outage.last_taken.is_some_and(|at| at.elapsed() > outage.from);
        drop(outage);
        get(&self.published_since).filter(|_| !is_silent).map(|since| since.elapsed())
    }

    /// Returns how long ago the store took the last report before it took none for a minute, until ten minutes after
    /// that; `None` then.
    #[must_use]
    pub fn store_was_away_since(&self) -> Option<Duration> {
        let outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = outage.ended.is_none_or(|at| at.elapsed() >= OUTAGE_OVER);
        outage.taken_before.filter(|_| !is_over).map(|at| at.elapsed())
    }

    /// Returns how long ago the store took the worker's first report.
    #[must_use]
    pub fn first_reported(&self) -> Option<Duration> {
        let outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        outage.first_taken.map(|at| at.elapsed())
    }

    /// Notes whether the store took a report; there is one as often as `every` at least.
    fn published(&self, is_done: bool, every: Duration) {
        if !is_done {
            return set(&self.published_since, None);
        }
        let now = Instant::now();
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        outage.from = OUTAGE_FROM.max(every * 3);
        let was_away = outage.last_taken.is_some_and(|at| now.duration_since(at) > outage.from);
        if outage.ended.is_some_and(|at| now.duration_since(at) >= OUTAGE_OVER) {
            outage.taken_before = None;
        }
        if was_away {
            // One that ends and begins again is the same.
            outage.taken_before = outage.taken_before.or(outage.last_taken);
            outage.ended = Some(now);
        }
        outage.last_taken = Some(now);
        outage.first_taken = outage.first_taken.or(Some(now));
        drop(outage);
        let since = get(&self.published_since).filter(|_| !was_away);
        set(&self.published_since, since.or(Some(now)));
    }

    /// Logs and counts what is done to heal a fault, and has it written into the ledger.
    pub fn note(&self, action: &HealingAction) {
        self.books.healing(action);
    }

    /// Returns when the control loop last ran. It runs at least once a second, so a worker with an
    /// old beat is stuck.
    #[must_use]
    pub fn last_beat(&self) -> Instant {
        get(&self.beat)
    }

    fn enter(&self, stage: Stage) {
        self.stage.set(stage);
        for one in [Stage::Recover, Stage::Resume, Stage::Start, Stage::Shutdown, Stage::Stopped] {
            let label = ByStage { stage: one.as_str() };
            self.telemetry.stage.get_or_create(&label).set(i64::from(one == stage));
        }
    }

    fn drained(&self, report: DrainReport) {
        *self.last_drain.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }
}
