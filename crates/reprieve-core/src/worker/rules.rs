//! How running jobs and held leases are to be treated now, as the control loop tells their owners.

use tokio::time::Instant;

use super::settings::Settings;
use crate::policy::Conduct;
use crate::watch;

/// What holds until the next change. The counts go up each time the thing is to be done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rules {
    pub(crate) conduct: Conduct,
    /// Save progress now.
    pub(crate) saves: u64,
    /// Verify every lease now, by renewing it.
    pub(crate) checks: u64,
}

impl Rules {
    /// How long a lease is to be when it is taken or renewed now: renewed at a third, it always outlasts what it has to.
    pub(super) fn lease(&self, settings: &Settings) -> std::time::Duration {
        let outlast = self.conduct.outlast.unwrap_or_default().saturating_mul(2);
        settings.lease.max(outlast)
    }

    /// Whether a lease that ends at `ends` is too short.
    pub(super) fn is_too_short(&self, ends: Instant) -> bool {
        self.conduct.outlast.is_some_and(|outlast| ends < Instant::now() + outlast)
    }
}

/// Completes when jobs are no longer to rest. Cancel-safe.
pub(crate) async fn resumed(rules: &mut watch::Receiver<Rules>) {
    rules.wait_for(|rules| !rules.conduct.paused).await;
}
