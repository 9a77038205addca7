//! The one error type of the library, and what it says about trying again.

use std::fmt;

/// What went wrong, in the terms a caller can act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The service answered that it is busy, or could not be reached. Nothing was applied; trying again may help.
    Unavailable,
    /// No answer came in time. The operation may or may not have been applied.
    TimedOut,
    /// The receipt no longer holds the message: its lease ran out, or it was settled.
    LeaseLost,
    /// The expected version is not the one that is stored.
    Conflict,
    /// A newer owner of the same job has written here: this one must stop.
    Superseded,
    /// The thing named does not exist.
    NotFound,
    /// The request itself is wrong: a bad name, a bad setting, a malformed message.
    Invalid,
    /// More bytes than this store takes in one piece.
    TooLarge,
    /// The identity in use may not do this.
    Denied,
    /// The storage is full.
    Full,
    /// What is stored is damaged.
    Corrupt,
    /// What is stored was written by another version, which this one can't read.
    Incompatible,
    /// The backend has stopped, or failed in a way it does not know.
    Internal,
}

impl ErrorKind {
    /// Whether the same call may succeed a little later without anybody doing anything.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::Unavailable | Self::TimedOut | Self::Full)
    }
}

/// Why an operation of a store, a queue or a worker failed.
///
/// `Display` is a lowercase fragment that completes "failed to …" in one line, and never holds a secret; the
/// [`source`](std::error::Error::source) chain has the cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result whose error is [`struct@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error: `operation` completes "failed to …" (`"renew a lease"`), `message` says why and, where
    /// somebody can do something about it, what.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        Self { kind, operation, message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Why, without what was being done: for whoever has said that already.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error without its cause, to be kept while the first one is given away.
    pub(crate) fn again(&self) -> Self {
        Self::new(self.kind, self.operation, self.message.clone())
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What was being done, as it completes "failed to …".
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Whether the same call may succeed a little later; see [`ErrorKind::is_temporary`].
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        self.kind.is_temporary()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
