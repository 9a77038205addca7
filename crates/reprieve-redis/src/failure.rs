//! The errors of calls to a cache.

use redis::{ErrorKind, RedisError};

/// Whether an error of a call is the cache's, and not the call's own: the connection, a time-out, a node that is
/// no primary or not ready. For [`DependencyHandle::call`](reprieve_core::dependency::DependencyHandle::call).
#[must_use]
pub fn is_failure(error: &RedisError) -> bool {
    use redis::ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
    match error.kind() {
        ErrorKind::Io | ErrorKind::AuthenticationFailed | ErrorKind::ClusterConnectionNotFound => true,
        ErrorKind::Server(kind) => {
            matches!(kind, BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain)
        }
        _ => error.is_timeout() || error.is_connection_dropped() || error.is_unrecoverable_error(),
    }
}

/// Describes an error without what the server or the URL says of users and keys.
pub(crate) fn describe(error: &RedisError) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    match error.code() {
        Some(code) => code.to_owned(),
        None => error.category().to_owned(),
    }
}
