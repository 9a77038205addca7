//! The errors of calls to a cache.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Codes of errors that the `redis` crate has no kind for: this connection may do nothing, or nothing any more.
const REFUSED: [&str; 2] = ["NOAUTH", "WRONGPASS"];

/// Codes of errors with which a server refuses a call because of its own state or its settings, and not because of
/// the call: it is full, its disk is, it has too few replicas, a script keeps it busy, or its users may not. Those of
/// [failures](is_failure) are others.
const REFUSALS: [&str; 5] = ["OOM", "MISCONF", "NOREPLICAS", "BUSY", "NOPERM"];

/// Whether a server that serves refused a call: see [`REFUSALS`]. That a user may not do something may be the
/// call's own fault, too.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    let errors = error.clone().into_server_errors();
    errors.is_some_and(|errors| errors.iter().any(|(_, error)| REFUSALS.contains(&error.code())))
}

/// Whether an error of a call is the cache's, and not the call's own: the connection, a time-out, a node that is
/// no primary or not ready. For [`DependencyHandle::call`](reprieve_core::dependency::DependencyHandle::call).
#[must_use]
pub fn is_failure(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::AuthenticationFailed | ErrorKind::ClusterConnectionNotFound => true,
        // A pipeline's or a transaction's own kind is that of its first error, or that it was given up.
        ErrorKind::Server(_) | ErrorKind::Extension => {
            error.clone().into_server_errors().is_some_and(|errors| {
                errors.iter().any(|(_, error)| match error.kind() {
                    Some(kind) => is_of_the_node(kind),
                    None => REFUSED.contains(&error.code()),
                })
            })
        }
        _ => error.is_timeout() || error.is_connection_dropped() || error.is_unrecoverable_error(),
    }
}

fn is_of_the_node(kind: ServerErrorKind) -> bool {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    // The node of a cluster, which is not supported, has some of the keys and no others.
    matches!(kind, Ask | BusyLoading | ClusterDown | MasterDown | Moved | ReadOnly | TryAgain)
}

/// Describes an error without what the server or the URL says of users and keys.
#[must_use]
pub fn describe(error: &RedisError) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    match (error.code(), of_system(error)) {
        (Some(code), _) => code.to_owned(),
        // The kind is "connection refused", and the text has a number besides.
        (None, Some(io)) if io.raw_os_error().is_some() => io.kind().to_string(),
        // A name that is not known, or a certificate.
        (None, Some(io)) => io.to_string(),
        (None, None) if error.is_connection_dropped() => "the connection ended".to_owned(),
        (None, None) => error.category().to_owned(),
    }
}

/// The error of the system behind it. Its source is the pointer to that.
fn of_system(error: &RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    match source.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        Some(pointer) => pointer.downcast_ref(),
        None => source.downcast_ref(),
    }
}
