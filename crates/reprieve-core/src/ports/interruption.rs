//! The interruption port: notices that concern the worker's machine.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::notice::{Notice, NoticeId};

/// How an event ended on a machine that still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The event disappeared before it had started.
    Withdrawn,
    /// The event had started, and has ended.
    Completed,
}

/// A change that an interruption source reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The platform's name of this machine is known. Comes before any notice for the machine.
    Named(String),
    /// The source has its first answer, and has returned every notice that was active then before
    /// this. The worker receives no messages earlier.
    Answered,
    /// A notice for this machine, new or changed (Scheduled → Started, an earlier NotBefore).
    Noticed(Notice),
    /// A notice is no longer active.
    Over(NoticeId, Ending),
}

/// Reports interruptions: the watcher of Scheduled Events, or a test source.
///
/// A source counts and logs its own errors and continues. It never ends.
#[async_trait]
pub trait InterruptionSource: fmt::Debug + Send + Sync + 'static {
    /// Waits for the next change and returns it.
    ///
    /// # Cancel safety
    /// A change is never lost by dropping the future: the next call returns it.
    async fn next(&self) -> Change;

    /// Approves events: tells the platform that they may begin without waiting for their
    /// `NotBefore`, in one request where possible. An approval covers every machine that the event
    /// names. Idempotent; an event that has ended needs no approval. Retries for no longer than
    /// `within`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for an event that can't be approved, such as a
    /// recommendation or another machine's event; then none is approved. Otherwise an error when
    /// the request did not succeed in time.
    async fn approve(&self, notices: &[NoticeId], within: Duration) -> Result<()>;
}
