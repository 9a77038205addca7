//! In-memory backends: complete implementations of the ports, for tests, trials and use in a single
//! process.
//!
//! They keep every promise of the ports, but their data ends with the process. Time is
//! [`tokio::time`]'s, so under a paused clock leases and delays end exactly when a test advances
//! it. A clone of the [`Store`] acts as a second process.
//!
//! [`Faults`] wraps any store, in memory or not, and makes chosen calls fail, hang or lose their
//! answer.
//!
//! # Example: the end of a lease returns the message
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::time::Duration;
//!
//! use reprieve_core::{memory, ports::NewMessage};
//!
//! let store = memory::store();
//! store.queue.send(vec![NewMessage { body: b"hello".to_vec(), delay: Duration::ZERO }]).await?;
//!
//! let first = store.queue.receive(1, Duration::from_millis(5)).await?;
//! assert_eq!(first[0].dequeue_count, 1);
//!
//! store.queue.arrived().await;
//! let again = store.queue.receive(1, Duration::from_mins(1)).await?;
//! assert_eq!(again[0].dequeue_count, 2);
//! # Ok::<(), reprieve_core::Error>(())
//! # }).unwrap();
//! ```

mod blobs;
mod faults;
mod faulty;
mod notices;
mod queue;
mod records;
mod roster;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use blobs::MemoryBlobs;
pub use faults::{Fault, Faults, Op};
pub use notices::{ManualNotices, NoInterruptions};
pub use queue::MemoryQueue;
pub use records::MemoryRecords;
pub use roster::MemoryRoster;

use crate::ports::Store;

/// How many entries a part of a list has, so that a test with few of them sees several parts.
const PAGE: usize = 8;

/// Creates an empty store in memory. Its clones share it, as processes share a real one.
#[must_use]
pub fn store() -> Store {
    Store {
        queue: Arc::new(MemoryQueue::new()),
        records: Arc::new(MemoryRecords::new()),
        blobs: Arc::new(MemoryBlobs::new()),
        roster: Arc::new(MemoryRoster::new()),
    }
}

/// Locks, even after another thread panicked while it held the lock: no operation here leaves its
/// state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Fixture;

    async fn fixture() -> Fixture {
        crate::clock::simulate(crate::clock::wall_now());
        let store = store();
        Fixture::new(store.clone(), store)
    }

    crate::queue_conformance!(fixture, start_paused = true);
    crate::records_conformance!(fixture, start_paused = true);
    crate::damage_conformance!(fixture, start_paused = true);
    crate::blobs_conformance!(fixture, start_paused = true);
    crate::roster_conformance!(fixture, start_paused = true);
    crate::protocol_conformance!(fixture, start_paused = true);
    crate::ledger_conformance!(fixture, start_paused = true);
}
