//! Resume's preparations.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::shared::Shared;
use crate::retry::{Patience, may_pass, persist};

/// The longest one try may take.
const TRY: Duration = Duration::from_secs(30);

/// How long it is tried before that is said, and said again.
const ROUND: Duration = Duration::from_secs(10);

/// The store must answer, and what dead workers held is given back, before anything is received. Goes on for as long as
/// that takes, and says why.
pub(super) async fn prepare(shared: Arc<Shared>) {
    loop {
        let round = Instant::now() + ROUND;
        let patience = Patience::calm(TRY, round);
        match persist("recover", patience, may_pass, || shared.store.queue.recover()).await {
            Ok(0) => return,
            Ok(given_back) => return tracing::info!(given_back, "gave back what dead workers held"),
            Err(error) => {
                tracing::error!(%error, "the store is not usable; no job is taken until it is");
                // What fails at once and for good is not asked without a pause either.
                sleep_until(round).await;
            }
        }
    }
}
