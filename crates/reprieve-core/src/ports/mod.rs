//! The ports: what the worker needs of the outside, and nothing else. Each is object-safe and has a conformance
//! suite in [`crate::conformance`] that every backend runs.

mod blobs;
mod interruption;
mod queue;
mod records;
mod roster;

use std::sync::Arc;

pub use blobs::BlobStore;
pub use interruption::{Change, Ending, InterruptionSource};
pub use queue::{DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release, Unreadable};
pub use records::{Payload, RECORD_BYTES_MAX, RecordStore, RecordWrite, Stored, Version};
pub use roster::{DeferredMessage, InFlight, Progress, Roster, StandingNotice, WorkerReport};

/// One queue with everything that belongs to it: what a backend hands to a worker, a producer or an operator's tool.
#[derive(Debug, Clone)]
pub struct Store {
    /// The messages, and the poison queue beside them.
    pub queue: Arc<dyn Queue>,
    /// The jobs' records and payloads: their progress, and what happened to them.
    pub records: Arc<dyn RecordStore>,
    /// The jobs' inputs and outputs.
    pub blobs: Arc<dyn BlobStore>,
    /// Which workers there are and what they do.
    pub roster: Arc<dyn Roster>,
}
