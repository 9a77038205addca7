//! The control loop's rules for running jobs and held leases.

use tokio::time::Instant;

use super::settings::Settings;
use crate::interruption::Conduct;
use crate::watch;

/// The rules until the next change. Each counter rises by one to request its action once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rules {
    pub(crate) conduct: Conduct,
    /// Counts requests to save progress now.
    pub(crate) saves: u64,
    /// Counts requests to verify every lease now, by renewing it.
    pub(crate) checks: u64,
}

impl Rules {
    /// Returns the length of a lease that is taken or renewed now. Twice `outlast`, because a lease
    /// that is renewed at a third of its length then always outlasts it.
    pub(super) fn lease(&self, settings: &Settings) -> std::time::Duration {
        let outlast = self.conduct.outlast.unwrap_or_default().saturating_mul(2);
        settings.lease.max(outlast)
    }

    /// Reports whether a lease that ends at `ends` is too short.
    pub(super) fn is_too_short(&self, ends: Instant) -> bool {
        self.conduct.outlast.is_some_and(|outlast| ends < Instant::now() + outlast)
    }
}

/// Completes when jobs need not rest any more. Cancel-safe.
pub(crate) async fn resumed(rules: &mut watch::Receiver<Rules>) {
    rules.wait_for(|rules| !rules.conduct.paused).await;
}
