//! The errors of calls to a cache.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerError};

/// Codes of errors of the node: it is no primary, has other keys, or is not ready; or this connection may do nothing,
/// or nothing any more. The node of a cluster, which is not supported, has some of the keys and no others.
const FAILURES: [&str; 9] =
    ["READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOAUTH", "WRONGPASS"];

/// Codes of errors with which a server refuses a call because of its own state or its settings, and not because of
/// the call: it is full, its disk is, it has too few replicas, a script keeps it busy, or its users may not. Those of
/// [failures](is_failure) are others.
const REFUSALS: [&str; 5] = ["OOM", "MISCONF", "NOREPLICAS", "BUSY", "NOPERM"];

/// Before Redis 7, the error of a command in a script has the code `ERR`, or none if the script returns what
/// `redis.pcall` found. Its own code stands in the text, behind the line of the script:
/// `ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -READONLY You can't write …`.
const IN_SCRIPT: &str = "@user_script: ";

/// The same of a command, a key or a channel that is not the user's, which has no code even there; in Redis 7 it is the
/// whole text: `ERR The user executing the script can't access at least one of the keys …`.
const NOT_PERMITTED: &str = "The user executing the script can't ";

/// Whether a server that serves refused a call: see [`REFUSALS`]. That a user may not do something may be the
/// call's own fault, too.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    code_among(error, &REFUSALS).is_some()
}

/// Whether an error of a call is the cache's, and not the call's own: the connection, a time-out, a node that is
/// no primary or not ready. For [`DependencyHandle::call`](reprieve_core::dependency::DependencyHandle::call).
#[must_use]
pub fn is_failure(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::AuthenticationFailed | ErrorKind::ClusterConnectionNotFound => true,
        // A pipeline's or a transaction's own kind is that of its first error, or that it was given up.
        ErrorKind::Server(_) | ErrorKind::Extension => code_among(error, &FAILURES).is_some(),
        _ => error.is_timeout() || error.is_connection_dropped() || error.is_unrecoverable_error(),
    }
}

/// Returns which of these codes an error of the server has, or one of those of a pipeline or a transaction.
fn code_among(error: &RedisError, codes: &[&'static str]) -> Option<&'static str> {
    let errors = error.clone().into_server_errors()?;
    let known = |code: &str| codes.iter().find(|known| **known == code).copied();
    errors.iter().find_map(|(_, error)| known(code_of(error)))
}

/// Returns the code of an error, wherever it stands.
fn code_of(error: &ServerError) -> &str {
    let details = error.details().unwrap_or_default();
    if error.code() == "ERR" && details.starts_with(NOT_PERMITTED) {
        return "NOPERM";
    }
    let place = match error.code() {
        "ERR" => details.split_once(IN_SCRIPT).map(|(_, place)| place),
        // It is its first word.
        code => (code == IN_SCRIPT.trim_end()).then_some(details),
    };
    let in_script = place.and_then(|place| place.split_once(": ")).and_then(|(_, text)| {
        let code = text.strip_prefix('-').and_then(|text| text.split(' ').next());
        code.or_else(|| text.starts_with(NOT_PERMITTED).then_some("NOPERM"))
    });
    in_script.unwrap_or_else(|| error.code())
}

/// Describes an error without what the server or the URL says of users and keys.
#[must_use]
pub fn describe(error: &RedisError) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let known = code_among(error, &FAILURES).or_else(|| code_among(error, &REFUSALS));
    match (known.or_else(|| error.code()), of_system(error)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of this answer of a server.
    fn error(answer: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    /// As Redis 4 to 6.2 answer.
    fn error_in_script(text: &str) -> [RedisError; 2] {
        let called =
            format!("ERR Error running script (call to f_9d0c): @user_script:1: @user_script: 12: {text}");
        [error(&called), error(&format!("@user_script: 12: {text}"))]
    }

    #[test]
    fn an_error_is_the_caches_by_its_code() {
        for (answer, fails, refuses) in [
            ("READONLY You can't write against a read only replica.", true, false),
            (
                "READONLY You can't write against a read only replica. script: 9d0c, on @user_script:1.",
                true,
                false,
            ),
            ("LOADING Redis is loading the dataset in memory", true, false),
            ("MASTERDOWN Link with MASTER is down", true, false),
            ("NOAUTH Authentication required.", true, false),
            ("MOVED 3999 127.0.0.1:6381", true, false),
            ("OOM command not allowed when used memory > 'maxmemory'.", false, true),
            ("NOPERM this user has no permissions to run the 'set' command", false, true),
            ("BUSY Redis is busy running a script.", false, true),
            (
                "ERR The user executing the script can't run this command or subcommand script: 9d0c, on @user_script:1.",
                false,
                true,
            ),
            (
                "ERR The user executing the script can't access at least one of the keys mentioned in the command \
                 arguments script: 9d0c, on @user_script:1.",
                false,
                true,
            ),
            ("ERR why The user executing the script can't run this command", false, false),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", false, false),
            ("ERR unknown command", false, false),
        ] {
            let error = error(answer);
            assert_eq!((is_failure(&error), is_refusal(&error)), (fails, refuses), "{answer}");
        }
    }

    #[test]
    fn an_error_in_a_script_of_an_older_server_is_told_by_the_code_in_its_text() {
        for (text, fails, refuses, code) in [
            ("-READONLY You can't write against a read only replica.", true, false, "READONLY"),
            ("-OOM command not allowed when used memory > 'maxmemory'.", false, true, "OOM"),
            ("-NOREPLICAS Not enough good replicas to write.", false, true, "NOREPLICAS"),
            ("-MISCONF Redis is configured to save RDB snapshots", false, true, "MISCONF"),
            ("The user executing the script can't run this command or subcommand", false, true, "NOPERM"),
        ] {
            for error in error_in_script(text) {
                assert_eq!((is_failure(&error), is_refusal(&error)), (fails, refuses), "{error}");
                assert_eq!(describe(&error), code);
            }
        }
    }

    #[test]
    fn what_a_script_says_itself_is_its_own_fault() {
        let called = "ERR Error running script (call to f_9d0c): @user_script:1:";
        for answer in [
            format!("{called} user_script:1: a -READONLY b"),
            format!("{called} WRONGTYPE Operation against a key holding the wrong kind of value"),
            format!("{called} @user_script: 1: Wrong number of args calling Redis command From Lua script"),
            "my -READONLY thing".to_owned(),
        ] {
            let error = error(&answer);
            assert!(!is_failure(&error) && !is_refusal(&error), "{answer}");
        }
    }
}
