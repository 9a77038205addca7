//! The library's error type, and which errors are temporary.

use std::fmt;

/// The kind of an error, by which a caller decides what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The service reported that it is busy, or could not be reached. Nothing was applied; a retry
    /// may help.
    Unavailable,
    /// No answer arrived in time. The operation may or may not have been applied.
    TimedOut,
    /// The receipt no longer holds the message: its lease ended, or the message was settled.
    LeaseLost,
    /// The stored version is not the expected one.
    Conflict,
    /// A newer owner of the same job has written; this one must stop.
    Superseded,
    /// The named object does not exist.
    NotFound,
    /// The request is invalid: a bad name, a bad setting, a malformed message.
    Invalid,
    /// More bytes than the store accepts in one object.
    TooLarge,
    /// The identity in use lacks the permission.
    Denied,
    /// The storage is full.
    Full,
    /// The stored data is damaged.
    Corrupt,
    /// The stored data was written by another version, in a format that this one can't read.
    Incompatible,
    /// The backend has stopped, or failed in an unknown way.
    Internal,
}

impl ErrorKind {
    /// Whether the same call may succeed a little later without intervention.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::Unavailable | Self::TimedOut | Self::Full)
    }
}

/// Why an operation of a store, a queue or a worker failed.
///
/// `Display` is a lowercase fragment of one line that completes "failed to …". It never contains a
/// secret. The [`source`](std::error::Error::source) chain has the cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result with the error [`struct@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error. `operation` completes "failed to …" (`"renew a lease"`); `message` gives
    /// the reason and, if there is one, the remedy.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        Self { kind, operation, message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The reason without the operation, for callers that have already named the operation.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// A copy without the cause, which can't be cloned.
    pub(crate) fn again(&self) -> Self {
        Self::new(self.kind, self.operation, self.message.clone())
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operation, as it completes "failed to …".
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
