//! Tells the roster what the worker does and keeps what its drains did, without ever making the worker wait for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::clock::unix_millis;
use crate::ids::BlobName;
use crate::lifecycle::Stage;
use crate::ports::{BlobStore, DeferredMessage, InFlight, Roster, StandingNotice, WorkerReport};
use crate::process::in_process;
use crate::worker::DrainReport;

/// How often an unchanged report is said again, so that a reader can tell an idle worker from a dead one; where reports are
/// billed, less often.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// How often the workers of `roster` say an unchanged report again.
#[must_use]
pub fn report_every(roster: &dyn Roster) -> Duration {
    REPORT_EVERY.max(roster.pace())
}

/// The longest one report may take. It is only for people; the next one says more.
const TRY: Duration = Duration::from_secs(5);

/// The same when the process is about to end.
const LAST_TRY: Duration = Duration::from_secs(1);

/// Where drains' reports are kept: the prefix of their blobs' names, which sort by time.
pub const DRAINS: &str = "drains/";

/// What a worker shows of itself.
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
    /// Speaks for the worker that `who` describes.
    pub(super) fn new(roster: Arc<dyn Roster>, who: WorkerReport) -> Self {
        Self { roster, said: who, said_at: None, saying: None, keeping: JoinSet::new() }
    }

    /// The queue it takes jobs from.
    pub(super) fn queue(&self) -> &str {
        &self.said.queue
    }

    /// The machine it runs on, where that was not known before.
    pub(super) fn machine(&mut self, name: &str) {
        if self.said.vm.is_empty() {
            name.clone_into(&mut self.said.vm);
        }
    }

    /// Completes when another report of a drain is kept, or given up. Cancel-safe; for ever when none is under way.
    pub(super) async fn kept(&mut self) {
        if self.keeping.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the report of every drain is kept, or given up.
    pub(super) fn has_kept(&self) -> bool {
        self.keeping.is_empty()
    }

    /// Says what is new, or says the same again when that is due. Skipped while the report before is still under way.
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

    /// Keeps what a drain did, as `drains/<time>-<worker>.json`: the machine it was on is about to go, and with it its log.
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

    /// Takes the worker off the roster: it ended well.
    pub(super) async fn withdraw(&mut self) {
        if let Some(saying) = self.saying.take() {
            saying.abort();
            // Only so that the report does not come after the withdrawal; aborting it is no failure.
            let _aborted = saying.await;
        }
        let kept = async { while self.keeping.join_next().await.is_some() {} };
        let withdrawn = self.roster.withdraw(&self.said.worker);
        // At once: a store that does not answer costs the end of the process one such wait, not two.
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
