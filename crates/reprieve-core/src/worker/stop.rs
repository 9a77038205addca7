//! Requests to stop a worker: the first drains it, the second ends it at once.

use crate::watch;

/// A handle that requests a worker to stop; see [`stopping`].
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<u32>);

/// The worker's handle, which receives the requests; see [`stopping`].
#[derive(Debug)]
pub struct Stopping {
    asked: watch::Receiver<u32>,
    heard: u32,
}

/// Returns a pair: the first requests a stop, the second goes to
/// [`Worker::run`](super::Worker::run).
#[must_use]
pub fn stopping() -> (Stopper, Stopping) {
    let sender = watch::Sender::default();
    let asked = sender.subscribe();
    (Stopper(sender), Stopping { asked, heard: 0 })
}

impl Stopper {
    /// Requests a stop. After the first request the worker drains and ends; after the second it
    /// ends at once and leaves its messages to their leases.
    pub fn stop(&self) {
        self.0.modify(|asked| *asked = asked.saturating_add(1));
    }
}

impl Stopping {
    /// Completes once for each request; never if every [`Stopper`] is gone. Cancel-safe.
    pub(crate) async fn requested(&mut self) {
        let heard = self.heard;
        self.asked.wait_for(|asked| asked > heard).await;
        self.heard += 1;
    }
}
