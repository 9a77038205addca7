//! A worker's state while it runs: for health endpoints, metrics and tests.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::ids::WorkerId;
use crate::interruption::Stage;
use crate::report::DrainReport;
use crate::telemetry::{ByStage, Telemetry};
use crate::watch;

/// A view of a running worker. Clones show the same worker, and outlive it.
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

    /// Returns when the control loop last ran. It runs at least once a second, so a worker with an
    /// old beat is stuck.
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
