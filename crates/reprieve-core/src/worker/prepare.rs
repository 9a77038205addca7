//! Resume's preparations.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::shared::Shared;
use crate::retry::{Patience, may_pass, persist};

/// The longest time for one try.
const TRY: Duration = Duration::from_secs(30);

/// How often a lasting failure is logged.
const ROUND: Duration = Duration::from_secs(10);

/// Waits until the store answers, and releases the messages that dead workers held, before anything
/// is received. Tries without limit and logs why it waits.
pub(super) async fn prepare(shared: Arc<Shared>) {
    loop {
        let round = Instant::now() + ROUND;
        let patience = Patience::calm(TRY, round);
        match persist("recover", patience, may_pass, || shared.store.queue.recover()).await {
            Ok(0) => return,
            Ok(given_back) => return tracing::info!(given_back, "gave back what dead workers held"),
            Err(error) => {
                tracing::error!(%error, "the store is not usable; no job is taken until it is");
                // An error that returns at once must not be retried without a pause.
                sleep_until(round).await;
            }
        }
    }
}
