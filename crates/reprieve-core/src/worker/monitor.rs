//! What a worker shows of itself while it runs: for health endpoints, metrics and tests.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::ids::WorkerId;
use crate::lifecycle::Stage;
use crate::telemetry::{ByStage, Telemetry};
use crate::watch;
use crate::worker::DrainReport;

/// A view of a running worker. Clones see the same worker, and outlive it.
#[derive(Debug, Clone)]
pub struct Monitor {
    worker: WorkerId,
    telemetry: Arc<Telemetry>,
    stage: watch::Sender<Stage>,
    last_drain: Arc<Mutex<Option<DrainReport>>>,
    beat: Arc<Mutex<Instant>>,
}

impl Monitor {
    pub(super) fn new(worker: WorkerId, telemetry: Arc<Telemetry>) -> Self {
        let monitor = Self {
            worker,
            telemetry,
            stage: watch::Sender::new(Stage::Recover),
            last_drain: Arc::default(),
            beat: Arc::new(Mutex::new(Instant::now())),
        };
        monitor.enter(Stage::Recover);
        monitor
    }

    /// The worker's id.
    #[must_use]
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// Its metrics.
    #[must_use]
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Its present stage.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Completes when it is in `stage`. Cancel-safe. Never completes for a stage that it does not enter any more.
    pub async fn reached(&self, stage: Stage) {
        self.stage.subscribe().wait_for(|now| now == stage).await;
    }

    /// What its last drain did; `None` before the first has ended.
    #[must_use]
    pub fn last_drain(&self) -> Option<DrainReport> {
        self.last_drain.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the control loop last went round. It does so at least once a second, so a worker whose last beat is long
    /// ago is stuck.
    #[must_use]
    pub fn last_beat(&self) -> Instant {
        crate::context::get(&self.beat)
    }

    pub(super) fn enter(&self, stage: Stage) {
        self.stage.set(stage);
        for one in [Stage::Recover, Stage::Resume, Stage::Start, Stage::Shutdown, Stage::Stopped] {
            let label = ByStage { stage: one.as_str() };
            self.telemetry.stage.get_or_create(&label).set(i64::from(one == stage));
        }
    }

    pub(super) fn beat(&self) {
        crate::context::set(&self.beat, Instant::now());
    }

    pub(super) fn drained(&self, report: DrainReport) {
        *self.last_drain.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }
}
