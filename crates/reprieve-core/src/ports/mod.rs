//! The ports: the worker's only interfaces to the outside. Each is object-safe and has a
//! conformance suite in `conformance` that every backend runs.

mod blobs;
mod interruption;
mod queue;
mod records;
mod roster;

use std::sync::Arc;

pub use blobs::BlobStore;
pub use interruption::{Change, Ending, InterruptionSource};
pub use queue::{
    DeadLetter, DeadLettered, Delivery, Depth, LEASE_MAX, LEASE_MIN, NewMessage, Queue, Receipt, Release,
    Unreadable,
};
pub use records::{Payload, RECORD_BYTES_MAX, RecordStore, RecordWrite, Stored, Version};
pub use roster::{ActiveNotice, DeferredMessage, InFlight, Progress, Roster, WorkerReport};

/// One queue with everything that belongs to it: what a backend provides to workers, producers and
/// tools.
#[derive(Debug, Clone)]
pub struct Store {
    /// The messages, and the poison queue.
    pub queue: Arc<dyn Queue>,
    /// The jobs' records and payloads: their progress and history.
    pub records: Arc<dyn RecordStore>,
    /// The jobs' inputs and outputs.
    pub blobs: Arc<dyn BlobStore>,
    /// The workers' reports.
    pub roster: Arc<dyn Roster>,
}
