//! The state that all requests share, and their waits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::blob::Containers;
use super::config::Config;
use super::counts::Counts;
use super::faults::Faults;
use super::latency::{Latency, TravelTime};
use super::queue::Queues;
use crate::connection::Reset;

/// The state that all requests share.
#[derive(Debug)]
pub(super) struct App {
    queues: Mutex<Queues>,
    containers: Mutex<Containers>,
    faults: Mutex<Faults>,
    counts: Mutex<Counts>,
    travel_time: Mutex<TravelTime>,
    /// Cancelled when the double stops.
    pub(super) stop: CancellationToken,
}

impl App {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            queues: Mutex::default(),
            containers: Mutex::new(Containers::new(config.keeps_copies, config.has_directories)),
            faults: Mutex::default(),
            counts: Mutex::default(),
            travel_time: Mutex::new(TravelTime::new(config.latency)),
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    pub(super) fn containers(&self) -> MutexGuard<'_, Containers> {
        lock(&self.containers)
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        lock(&self.counts)
    }

    pub(super) fn reset_counts(&self) {
        *self.counts() = Counts::default();
    }

    pub(super) fn travel_time(&self) -> MutexGuard<'_, TravelTime> {
        lock(&self.travel_time)
    }

    pub(super) fn set_latency(&self, latency: Latency) {
        *self.travel_time() = TravelTime::new(latency);
    }

    /// Waits, but no longer than the double runs.
    pub(super) async fn pause(&self, long: Duration) -> Result<(), Reset> {
        if long.is_zero() {
            return Ok(());
        }
        tokio::select! {
            () = sleep(long) => Ok(()),
            () = self.stop.cancelled() => Err(Reset),
        }
    }

    /// Waits until the double stops.
    pub(super) async fn hang(&self) -> Reset {
        self.stop.cancelled().await;
        Reset
    }
}

/// A panic while one of these locks is held is a bug; the data behind it is still consistent for
/// the next request.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
