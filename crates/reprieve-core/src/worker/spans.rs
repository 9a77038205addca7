//! The port to whoever knows the spans that jobs open: a `tracing` subscriber, which the worker does not have.

use std::fmt;

use tracing::span::Id;

/// Knows which spans are open. Set with [`WorkerBuilder::spans`](super::WorkerBuilder::spans), to show where a job
/// stands that does not move.
pub trait OpenSpans: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the span that was opened last within the span `job`, in which the worker runs a job's
    /// steps, and is not closed; `None` where there is none. Called about once a second for a job that stands still.
    fn innermost(&self, job: &Id) -> Option<&'static str>;
}
