//! Asking a worker to stop: once to drain, twice to end at once.

use crate::watch;

/// Asks; see [`stopping`].
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<u32>);

/// Hears it; see [`stopping`].
#[derive(Debug)]
pub struct Stopping {
    asked: watch::Receiver<u32>,
    heard: u32,
}

/// A pair of which one end asks a worker to stop and the other is given to [`Worker::run`](super::Worker::run).
#[must_use]
pub fn stopping() -> (Stopper, Stopping) {
    let sender = watch::Sender::default();
    let asked = sender.subscribe();
    (Stopper(sender), Stopping { asked, heard: 0 })
}

impl Stopper {
    /// Asks once more. The first time the worker drains and ends; the second time it ends at once and leaves what it
    /// holds to its leases.
    pub fn stop(&self) {
        self.0.modify(|asked| *asked = asked.saturating_add(1));
    }
}

impl Stopping {
    /// Completes once for each time that was asked; never when the asker is gone. Cancel-safe.
    pub(crate) async fn requested(&mut self) {
        let heard = self.heard;
        self.asked.wait_for(|asked| asked > heard).await;
        self.heard += 1;
    }
}
