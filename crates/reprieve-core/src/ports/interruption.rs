//! The interruption port: who tells the worker that its machine will go.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::notice::{Notice, NoticeId};

/// How an event ended with the machine still here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It vanished without having started.
    Withdrawn,
    /// It had started, and is over.
    Completed,
}

/// What an interruption source has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The source has answered for the first time, and every notice that stood then has been returned before this.
    /// No work is taken earlier.
    Answered,
    /// A notice for this machine, new or changed (Scheduled → Started, an earlier NotBefore).
    Noticed(Notice),
    /// A notice no longer stands.
    Over(NoticeId, Ending),
}

/// Tells of interruptions: the Scheduled Events watcher, or a hand that drives a test.
///
/// A source survives its own errors: it counts and logs them and goes on. It never ends.
#[async_trait]
pub trait InterruptionSource: fmt::Debug + Send + Sync + 'static {
    /// Returns the next change, when there is one.
    ///
    /// # Cancel safety
    /// A change is never lost by dropping the future: the next call returns it.
    async fn next(&self) -> Change;

    /// Tells the platform that these events may begin, so that it need not wait, in one request where it can. Covers
    /// every machine the events name. Idempotent; an event that is over needs no approval. Tried again for no longer
    /// than `within`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for an event that can't be approved, such as an advice or another
    /// machine's, and then none is; otherwise that it could not be said in time.
    async fn acknowledge(&self, notices: &[NoticeId], within: Duration) -> Result<()>;
}
