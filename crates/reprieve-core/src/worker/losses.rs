//! How often machines lose work, as the worker learned last.

use std::sync::Mutex;

use crate::checkpoint::{ASSUMED_LOSSES, Losses};
use crate::mutex;

/// The losses that the worker knows of.
#[derive(Debug, Default)]
pub(super) struct KnownLosses(Mutex<Losses>);

impl KnownLosses {
    pub(super) fn get(&self) -> Losses {
        mutex::get(&self.0)
    }

    pub(super) fn set(&self, losses: Losses) {
        let before = self.get();
        mutex::set(&self.0, losses);
        if before != losses {
            let between = (ASSUMED_LOSSES + losses).between();
            tracing::debug!(
                losses = losses.count,
                vm_hours = losses.vm_ms / 3_600_000,
                ?between,
                "the rate of losses has changed; checkpoints are saved accordingly"
            );
        }
    }
}
