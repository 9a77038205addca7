//! What every part of one worker sees.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::capacity::Capacity;
use super::measure::Recent;
use super::registry::Registry;
use super::settings::Settings;
use crate::ports::Store;
use crate::telemetry::Telemetry;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) store: Store,
    /// The store as a drain uses it: impatient.
    pub(super) drain_store: Store,
    pub(super) registry: Registry,
    pub(super) telemetry: Arc<Telemetry>,
    /// Where jobs run.
    pub(super) jobs: Handle,
    /// One permit for each job that may run at once.
    pub(super) slots: Arc<Semaphore>,
    /// How long settlements took.
    pub(super) settlements: Recent,
    /// How long jobs ran, in deliveries that finished them.
    pub(super) runs: Recent,
}

impl Shared {
    pub(super) fn capacity(&self) -> Capacity {
        Capacity {
            concurrency: self.settings.concurrency,
            budget: self.settings.budget,
            release: self.settlements.p95(),
            run: self.runs.mean(),
        }
    }
}
