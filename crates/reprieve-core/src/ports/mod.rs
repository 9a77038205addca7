//! The ports: what the worker needs of the outside, and nothing else. Each is object-safe and has a conformance
//! suite in [`crate::conformance`] that every backend runs.

mod blobs;
mod checkpoints;
mod interruption;
mod queue;
mod roster;

use std::sync::Arc;

pub use blobs::BlobStore;
pub use checkpoints::{CheckpointStore, Stored, Version};
pub use interruption::{Change, Ending, InterruptionSource};
pub use queue::{DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release};
pub use roster::{InFlight, Progress, Roster, StandingNotice, WorkerReport};

/// One queue with everything that belongs to it: what a backend hands to a worker, a producer or an operator's tool.
#[derive(Debug, Clone)]
pub struct Store {
    /// The messages, and the poison queue beside them.
    pub queue: Arc<dyn Queue>,
    /// The jobs' progress.
    pub checkpoints: Arc<dyn CheckpointStore>,
    /// The jobs' inputs and outputs.
    pub blobs: Arc<dyn BlobStore>,
    /// Which workers there are and what they do.
    pub roster: Arc<dyn Roster>,
}
