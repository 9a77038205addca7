//! Reports the worker's state to the roster and stores the reports of its drains, without making
//! the worker wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::clock::unix_millis;
use crate::ids::BlobName;
use crate::interruption::Stage;
use crate::ports::{BlobStore, DeferredMessage, InFlight, Roster, StandingNotice, WorkerReport};
use crate::process::in_process;
use crate::report::DrainReport;

/// How often an unchanged report is repeated, so that a reader can tell an idle worker from a dead
/// one. Less often where reports are billed.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Returns how often the workers of `roster` repeat an unchanged report.
#[must_use]
pub fn report_every(roster: &dyn Roster) -> Duration {
    REPORT_EVERY.max(roster.pace())
}

/// The longest time for one report. Only people read it, and the next one replaces it.
const TRY: Duration = Duration::from_secs(5);

/// The same when the process is about to end.
const LAST_TRY: Duration = Duration::from_secs(1);

/// The prefix of the blobs that contain drain reports. Their names sort by time.
pub const DRAINS: &str = "drains/";

/// The state that a worker reports.
#[derive(Debug)]
pub(super) struct Showing {
    pub(super) stage: Stage,
    pub(super) completed: u64,
    pub(super) in_flight: Vec<InFlight>,
    pub(super) notices: Vec<StandingNotice>,
    pub(super) deferred: Vec<DeferredMessage>,
    pub(super) last_drain: Option<DrainReport>,
}

#[derive(Debug)]
pub(super) struct Publisher {
    roster: Arc<dyn Roster>,
    said: WorkerReport,
    said_at: Option<Instant>,
    saying: Option<JoinHandle<()>>,
    keeping: JoinSet<()>,
}

impl Publisher {
    /// Creates the publisher of the worker that `who` describes.
    pub(super) fn new(roster: Arc<dyn Roster>, who: WorkerReport) -> Self {
        Self { roster, said: who, said_at: None, saying: None, keeping: JoinSet::new() }
    }

    /// Returns the name of the worker's queue.
    pub(super) fn queue(&self) -> &str {
        &self.said.queue
    }

    /// Sets the name of the worker's machine, unless it was known before.
    pub(super) fn machine(&mut self, name: &str) {
        if self.said.vm.is_empty() {
            name.clone_into(&mut self.said.vm);
        }
    }

    /// Completes when another drain report is stored or given up. Cancel-safe; waits without limit
    /// when none is under way.
    pub(super) async fn kept(&mut self) {
        if self.keeping.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Reports whether every drain report is stored or given up.
    pub(super) fn has_kept(&self) -> bool {
        self.keeping.is_empty()
    }

    /// Publishes a changed report, or repeats an unchanged one when that is due. Does nothing while
    /// the previous report is under way.
    pub(super) fn publish(&mut self, showing: Showing) {
        if self.saying.as_ref().is_some_and(|saying| !saying.is_finished()) {
            return;
        }
        let Showing { stage, completed, mut in_flight, notices, deferred, last_drain } = showing;
        in_flight.sort_by(|a, b| a.job.cmp(&b.job));
        let mut report = WorkerReport {
            stage: stage.as_str().to_owned(),
            completed,
            in_flight,
            notices,
            deferred,
            last_drain,
            at_unix_ms: self.said.at_unix_ms,
            ..self.said.clone()
        };
        let silent = self.said_at.map_or(Duration::MAX, |at| at.elapsed());
        let same = report.stage == self.said.stage && report.notices == self.said.notices;
        let early = silent < self.roster.pace() && same;
        if early || (report == self.said && silent < report_every(&*self.roster)) {
            return;
        }
        report.at_unix_ms = unix_millis();
        self.said = report.clone();
        self.said_at = Some(Instant::now());
        let roster = Arc::clone(&self.roster);
        self.saying = Some(tokio::spawn(in_process(async move {
            match timeout(TRY, roster.publish(&report)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "could not say what this worker does"),
                Err(_) => tracing::debug!("no answer in time when saying what this worker does"),
            }
        })));
    }

    /// Stores a drain's report as `drains/<time>-<worker>.json`, because the machine will disappear
    /// with its log.
    pub(super) fn keep(&mut self, blobs: &Arc<dyn BlobStore>, report: &DrainReport) {
        let name = format!("{DRAINS}{:013}-{}.json", report.at_unix_ms, self.said.worker);
        let (Ok(name), Ok(json)) = (BlobName::parse(name), serde_json::to_vec(report)) else { return };
        let blobs = Arc::clone(blobs);
        self.keeping.spawn(in_process(async move {
            match timeout(TRY, blobs.put(&name, json, None)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "could not keep a drain's report; it is in the log only");
                }
                Err(_) => {
                    tracing::warn!("no answer in time when keeping a drain's report; it is in the log only");
                }
            }
        }));
    }

    /// Removes the worker from the roster: it ended normally.
    pub(super) async fn withdraw(&mut self) {
        if let Some(saying) = self.saying.take() {
            saying.abort();
            // Awaited so that the report does not arrive after the withdrawal; an aborted task is
            // not a failure.
            let _aborted = saying.await;
        }
        let kept = async { while self.keeping.join_next().await.is_some() {} };
        let withdrawn = self.roster.withdraw(&self.said.worker);
        // Both at once: a store that does not answer delays the end of the process by one wait, not
        // two.
        let (kept, withdrawn) = tokio::join!(timeout(LAST_TRY, kept), timeout(LAST_TRY, withdrawn));
        if kept.is_err() {
            tracing::warn!("no answer in time when keeping a drain's report; it is in the log only");
        }
        match withdrawn {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "could not leave the roster"),
            Err(_) => tracing::debug!("no answer in time when leaving the roster"),
        }
    }
}
