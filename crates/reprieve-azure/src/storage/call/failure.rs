//! Converts the SDK's errors: what failed, for which queue or blob, and the remedy.
//!
//! The SDK's error is not kept as a source: it contains URLs, headers and raw answers. The
//! service's own text about authentication is not repeated either, since it quotes the signature.
//! <https://learn.microsoft.com/rest/api/storageservices/queue-service-error-codes>
//! <https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes>

mod refusal;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use azure_core::error::ErrorKind as SdkKind;
use reprieve_core::{Error, ErrorKind, Result};

use self::refusal::{Answer, Refusal};
use super::transport::{Malformed, Obstacle, Unanswered};
use crate::identity::NoIdentity;

/// The subject of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// A queue, or a message in it.
    Queue(&'a str),
    /// A container.
    Container(&'a str),
    /// A blob.
    Blob(&'a str),
    /// The account, or signing in to it.
    Account,
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue {name:?}"),
            Self::Container(name) => write!(f, "container {name:?}"),
            Self::Blob(name) => write!(f, "blob {name:?}"),
            Self::Account => f.write_str("the storage account"),
        }
    }
}

/// Makes one call of the SDK within `limit`, including the wait for a token, a connection and an
/// answer.
///
/// # Errors
/// [`TimedOut`](ErrorKind::TimedOut) after `limit`; then the call may or may not have been applied.
/// Otherwise the SDK's error, converted by [`failure`].
pub(crate) async fn bounded<T>(
    operation: &'static str,
    target: Target<'_>,
    limit: Duration,
    call: impl Future<Output = azure_core::Result<T>>,
) -> Result<T> {
    // Boxed: an SDK call is twenty kilobytes of state, which every caller's future would contain.
    match tokio::time::timeout(limit, Box::pin(call)).await {
        Ok(answer) => answer.map_err(|error| failure(operation, target, error)),
        Err(_) => Err(Error::new(
            ErrorKind::TimedOut,
            operation,
            format!("{target} gave no answer within {limit:?}"),
        )),
    }
}

/// Converts the SDK's error into one sentence. Neither it nor its sources contain a URL, signature,
/// key, token or header.
#[expect(clippy::needless_pass_by_value, reason = "the SDK's error ends here, so that it can't be shown")]
pub(crate) fn failure(operation: &'static str, target: Target<'_>, error: azure_core::Error) -> Error {
    if let SdkKind::HttpResponse { status, error_code, raw_response } = error.kind() {
        let code = error_code.as_deref().unwrap_or_default();
        let refusal = Refusal::read(u16::from(*status), code, raw_response.as_deref());
        let (kind, message) = refusal.explain(target);
        return Error::new(kind, operation, message).with_source(refusal.answer);
    }
    let (kind, message) = unanswered(target, &error);
    Error::new(kind, operation, message)
}

/// The kind and message for a missing or unintelligible answer.
fn unanswered(target: Target<'_>, error: &azure_core::Error) -> (ErrorKind, String) {
    if let Some(unanswered) = error.downcast_ref::<Unanswered>() {
        return match unanswered.obstacle {
            // It may be a temporary failure of the name service.
            Obstacle::Name => {
                (ErrorKind::Unavailable, format!("{unanswered}; is the storage account's name right?"))
            }
            Obstacle::Connection => (ErrorKind::Unavailable, unanswered.to_string()),
            Obstacle::BrokenOff | Obstacle::Stranger => (ErrorKind::TimedOut, unanswered.to_string()),
        };
    }
    if let Some(identity) = error.downcast_ref::<NoIdentity>() {
        let kind = if identity.may_pass() { ErrorKind::Unavailable } else { ErrorKind::Denied };
        return (kind, identity.to_string());
    }
    if let Some(malformed) = error.downcast_ref::<Malformed>() {
        return (ErrorKind::Invalid, format!("{target}: {malformed}"));
    }
    match error.kind() {
        SdkKind::Connection => (ErrorKind::Unavailable, format!("{target} can't be reached")),
        SdkKind::Io => (ErrorKind::TimedOut, format!("{target}: the connection broke off")),
        SdkKind::Credential => (ErrorKind::Denied, format!("{target}: no token could be fetched")),
        SdkKind::DataConversion => {
            let message = "the answer can't be parsed by this version";
            (ErrorKind::Internal, format!("{target}: {message}"))
        }
        _ => (ErrorKind::Internal, format!("{target}: the request could not be made")),
    }
}

/// Whether the queue or the container itself is missing, not a message or blob in it.
pub(crate) fn is_parent(error: &Error) -> bool {
    let code = answer(error).map(|answer| answer.code.as_str());
    matches!(code, Some("QueueNotFound" | "ContainerNotFound"))
}

/// Whether the service failed without an error code, as it does for a receive when a message has a
/// character that XML forbids.
pub(crate) fn is_speechless(error: &Error) -> bool {
    answer(error).is_some_and(|answer| answer.status == 500 && answer.code.is_empty())
}

/// Whether a block list names a block that is not there.
pub(crate) fn is_about_blocks(error: &Error) -> bool {
    answer(error).is_some_and(|answer| answer.code == "InvalidBlockList")
}

/// Whether a range begins at or beyond the blob's end.
pub(crate) fn is_beyond_the_end(error: &Error) -> bool {
    answer(error).is_some_and(|answer| answer.status == 416)
}

/// Whether the failed call may have been applied.
pub(crate) fn may_be_applied(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Internal)
}

/// Treats a missing queue or container as deleted.
pub(crate) fn absent_is_gone(deleted: Result<()>) -> Result<()> {
    deleted.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn answer(error: &Error) -> Option<&Answer> {
    std::error::Error::source(error)?.downcast_ref()
}

#[cfg(test)]
mod tests;
