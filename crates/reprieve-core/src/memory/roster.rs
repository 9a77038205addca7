//! An in-memory roster.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::lock;
use crate::error::Result;
use crate::ids::WorkerId;
use crate::ports::{Roster, WorkerReport};

/// An in-memory roster. A report's age counts from its publication, on the clock that tests can
/// pause.
#[derive(Debug, Default)]
pub struct MemoryRoster {
    reports: Mutex<BTreeMap<WorkerId, (Instant, WorkerReport)>>,
}

impl MemoryRoster {
    /// Creates an empty roster.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Roster for MemoryRoster {
    async fn publish(&self, report: &WorkerReport) -> Result<()> {
        lock(&self.reports).insert(report.worker.clone(), (Instant::now(), report.clone()));
        Ok(())
    }

    async fn withdraw(&self, worker: &WorkerId) -> Result<()> {
        lock(&self.reports).remove(worker);
        Ok(())
    }

    async fn reports(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        let reports = lock(&self.reports);
        let recent = reports.values().filter(|(published, _)| published.elapsed() <= max_age);
        Ok(recent.map(|(_, report)| report.clone()).collect())
    }
}
