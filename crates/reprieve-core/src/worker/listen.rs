//! Listens to the interruption sources, and continues when one of them fails.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::ports::{Change, InterruptionSource};
use crate::process::in_process;

/// How long after a failure the worker listens to a source again.
const PAUSE: Duration = Duration::from_secs(1);

/// Forwards the changes of `source` until the worker ends. Listens again to a source that panics.
pub(super) async fn listen(
    number: usize,
    source: Arc<dyn InterruptionSource>,
    tell: mpsc::UnboundedSender<(usize, Change)>,
) {
    loop {
        let next = Arc::clone(&source);
        match AbortOnDropHandle::new(tokio::spawn(in_process(async move { next.next().await }))).await {
            Ok(change) => {
                if tell.send((number, change)).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::error!(%error, ?source, "an interruption source failed; listening to it again");
                sleep(PAUSE).await;
            }
        }
    }
}
