//! What is tried, and how it went.

use reprieve_core::{Error, ErrorKind, Result};

/// Something that a worker or a producer does to a queue or a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Makes a queue, or a container.
    Create,
    /// Sends a message.
    Send,
    /// Receives messages.
    Receive,
    /// Renews a lease.
    Renew,
    /// Gives a message back.
    Release,
    /// Deletes a message that was held, or a blob.
    Delete,
    /// Looks at messages without receiving them.
    Peek,
    /// Asks how many messages there are.
    Count,
    /// Writes a blob that is not there yet.
    Write,
    /// Writes a blob in place of the one that was read.
    Replace,
    /// Reads a blob.
    Read,
    /// Lists blobs.
    List,
    /// Removes a queue, or a container.
    Remove,
}

impl Deed {
    /// It in a word, such as `renew`.
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

/// How a deed went.
#[derive(Debug)]
pub enum Outcome {
    /// It may be done.
    Done,
    /// It failed.
    Failed(Error),
    /// It was not tried, for this reason.
    NotTried(&'static str),
}

/// A deed and how it went.
#[derive(Debug)]
pub struct Tried {
    /// What was tried.
    pub deed: Deed,
    /// How it went.
    pub outcome: Outcome,
}

/// Where it was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    /// In a queue or container of the check's own, of this name.
    Scratch(String),
    /// In the one that jobs use.
    Own(String),
}

/// All deeds so far.
#[derive(Debug, Default)]
pub(super) struct Deeds(pub(super) Vec<Tried>);

impl Deeds {
    /// Notes how a deed went, and returns what it gave.
    pub(super) fn note<T>(&mut self, deed: Deed, done: Result<T>) -> Option<T> {
        let (outcome, gave) = match done {
            Ok(gave) => (Outcome::Done, Some(gave)),
            Err(error) => (Outcome::Failed(error), None),
        };
        self.0.push(Tried { deed, outcome });
        gave
    }

    pub(super) fn not_tried(&mut self, deed: Deed, why: &'static str) {
        self.0.push(Tried { deed, outcome: Outcome::NotTried(why) });
    }

    /// Whether it was tried and denied.
    pub(super) fn denied(&self, deed: Deed) -> bool {
        self.0.iter().any(|tried| tried.deed == deed && is(&tried.outcome, ErrorKind::Denied))
    }

    /// Adds those that there was no time for.
    pub(super) fn complete(mut self, all: &[Deed], why: &'static str) -> Vec<Tried> {
        for deed in all {
            if !self.0.iter().any(|tried| tried.deed == *deed) {
                self.not_tried(*deed, why);
            }
        }
        self.0
    }
}

fn is(outcome: &Outcome, kind: ErrorKind) -> bool {
    matches!(outcome, Outcome::Failed(error) if error.kind() == kind)
}
