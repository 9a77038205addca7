//! Resume's preparations.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::shared::Shared;
use crate::retry::{Patience, may_pass, persist};

/// The longest one try may take.
const TRY: Duration = Duration::from_secs(30);

/// How long an error that no short wait mends, such as a missing role, is left before the next try.
const PAUSE: Duration = Duration::from_secs(10);

/// The store must answer, and what dead workers held is given back, before anything is received. Goes on for as long as
/// that takes.
pub(super) async fn prepare(shared: Arc<Shared>) {
    let far = Instant::now() + Duration::from_hours(365 * 24);
    loop {
        let recovered =
            persist("recover", Patience::calm(TRY, far), may_pass, || shared.store.queue.recover()).await;
        match recovered {
            Ok(0) => return,
            Ok(given_back) => return tracing::info!(given_back, "gave back what dead workers held"),
            Err(error) => {
                tracing::error!(%error, "the store is not usable; trying again in ten seconds");
                sleep(PAUSE).await;
            }
        }
    }
}
