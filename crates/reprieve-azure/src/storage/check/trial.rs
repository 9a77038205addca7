//! The operations of a trial and their outcomes.

use reprieve_core::{Error, ErrorKind, Result};

/// An operation of a worker or a producer on a queue or a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOperation {
    /// Creates a queue or a container.
    Create,
    /// Sends a message.
    Send,
    /// Receives messages.
    Receive,
    /// Renews a lease.
    Renew,
    /// Releases a message.
    Release,
    /// Deletes a leased message, or a blob.
    Delete,
    /// Peeks at messages without receiving them.
    Peek,
    /// Counts the messages.
    Count,
    /// Writes a blob that does not exist yet.
    Write,
    /// Replaces the blob that was read.
    Replace,
    /// Reads a blob.
    Read,
    /// Lists blobs.
    List,
    /// Deletes a queue or a container.
    Remove,
}

impl StoreOperation {
    /// The operation in a word, such as `renew`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Delete => "delete",
            Self::Peek => "peek",
            Self::Count => "count",
            Self::Write => "write",
            Self::Replace => "replace",
            Self::Read => "read",
            Self::List => "list",
            Self::Remove => "remove",
        }
    }
}

/// The outcome of an operation.
#[derive(Debug)]
pub enum Outcome {
    /// It is permitted and succeeded.
    Done,
    /// It failed.
    Failed(Error),
    /// It was not tried, for this reason.
    NotTried(&'static str),
}

/// An operation and its outcome.
#[derive(Debug)]
pub struct Attempt {
    /// The operation.
    pub operation: StoreOperation,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The queue or container of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialTarget {
    /// A scratch queue or container with this name.
    Scratch(String),
    /// The queue or container that jobs use.
    Own(String),
}

/// The outcomes so far.
#[derive(Debug, Default)]
pub(super) struct Attempts(pub(super) Vec<Attempt>);

impl Attempts {
    /// Notes the outcome of an operation. Returns its value if it succeeded.
    pub(super) fn note<T>(&mut self, operation: StoreOperation, done: Result<T>) -> Option<T> {
        let (outcome, gave) = match done {
            Ok(gave) => (Outcome::Done, Some(gave)),
            Err(error) => (Outcome::Failed(error), None),
        };
        self.0.push(Attempt { operation, outcome });
        gave
    }

    pub(super) fn not_tried(&mut self, operation: StoreOperation, why: &'static str) {
        self.0.push(Attempt { operation, outcome: Outcome::NotTried(why) });
    }

    /// Whether the operation was tried and denied.
    pub(super) fn denied(&self, operation: StoreOperation) -> bool {
        self.0.iter().any(|attempt| attempt.operation == operation && is(&attempt.outcome, ErrorKind::Denied))
    }

    /// Adds the operations that the time did not allow.
    pub(super) fn complete(mut self, all: &[StoreOperation], why: &'static str) -> Vec<Attempt> {
        for operation in all {
            if !self.0.iter().any(|attempt| attempt.operation == *operation) {
                self.not_tried(*operation, why);
            }
        }
        self.0
    }
}

fn is(outcome: &Outcome, kind: ErrorKind) -> bool {
    matches!(outcome, Outcome::Failed(error) if error.kind() == kind)
}
