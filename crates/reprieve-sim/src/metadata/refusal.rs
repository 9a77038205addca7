//! The reason for which the mock refused a request.

use reprieve_core::{Error, ErrorKind};

/// A refusal, with its reason in one sentence.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn during(self, operation: &'static str) -> Error {
        Error::new(self.kind, operation, self.message)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { kind: error.kind(), message: error.message().to_owned() }
    }
}

pub(super) fn refuse<T>(kind: ErrorKind, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { kind, message: message.into() })
}
