//! How every binary ends: one sentence on stderr and a matching exit code.

use std::error::Error as StdError;
use std::io::Write;
use std::process::ExitCode;

use reprieve_core::{Error, ErrorKind, Result};

/// Exit code of a command that failed.
pub(crate) const FAILED: u8 = 1;

/// Exit code for a wrong command line or wrong settings; trying again won't help.
pub(crate) const USAGE: u8 = 2;

/// Exit code of a worker that released everything it could and should be started again, because half of its slots
/// are stuck, or stuck ones hold the places of a kind with a limit.
pub(crate) const RESTART: u8 = 3;

/// Prints the error on stderr and returns the exit code for it: 2 when the request itself was wrong
/// (an [`Invalid`](ErrorKind::Invalid) error anywhere in the chain), else 1.
///
/// # Example: a small command
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     match reprieve::block_on(greet()) {
///         Ok(()) => ExitCode::SUCCESS,
///         Err(error) => reprieve::fail(&error),
///     }
/// }
///
/// async fn greet() -> reprieve::Result<()> {
///     Ok(())
/// }
/// ```
///
/// Pass an `anyhow::Error` as `&*error`.
pub fn fail(error: &(dyn StdError + 'static)) -> ExitCode {
    let mut stderr = std::io::stderr().lock();
    // Without a stderr the exit code is the only report.
    let _closed = writeln!(stderr, "error: {}", sentence(error));
    ExitCode::from(code(error))
}

/// Runs a future on a single-threaded runtime of its own, on the calling thread.
///
/// # Errors
/// The future's, or [`Internal`](ErrorKind::Internal) when the runtime can't be started.
pub fn block_on<T, E: From<Error>>(main: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Internal, "start the runtime", error.to_string()).with_source(error)
    })?;
    runtime.block_on(main)
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn code(error: &(dyn StdError + 'static)) -> u8 {
    let wrong = |error: &(dyn StdError + 'static)| {
        error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::Invalid)
    };
    if chain(error).any(wrong) { USAGE } else { FAILED }
}

/// The error and its causes in one line. A cause that the error above it already contains is left
/// out.
fn sentence(error: &(dyn StdError + 'static)) -> String {
    let mut sentence = String::new();
    for error in chain(error) {
        let mut part = one_line(&error.to_string());
        if error.is::<Error>() {
            part.insert_str(0, "failed to ");
        }
        if sentence.is_empty() {
            sentence = part;
        } else if !sentence.contains(cause(error).trim()) {
            sentence = format!("{sentence}: {part}");
        }
    }
    sentence
}

/// The part of an error's text that describes the cause. The operation of one of our errors is left
/// out: it adds nothing when the rest was already printed.
fn cause(error: &(dyn StdError + 'static)) -> String {
    one_line(
        &error.downcast_ref::<Error>().map_or_else(|| error.to_string(), |error| error.message().to_owned()),
    )
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &Error, expected: &str, exits: u8) {
        assert_eq!((sentence(error).as_str(), code(error)), (expected, exits));
    }

    #[test]
    fn an_error_is_one_sentence_with_each_cause_once() {
        let denied = || std::io::Error::other("permission denied");
        let open = |message: &str| Error::new(ErrorKind::Denied, "open the store", message);
        check(&open("it is\nlocked"), "failed to open the store: it is locked", FAILED);
        check(
            &open("x.db: permission denied").with_source(denied()),
            "failed to open the store: x.db: permission denied",
            FAILED,
        );
        check(
            &open("x.db").with_source(denied()),
            "failed to open the store: x.db: permission denied",
            FAILED,
        );
        let inner = Error::new(ErrorKind::Denied, "read the file", "it is\nlocked");
        check(&open("it is\nlocked").with_source(inner), "failed to open the store: it is locked", FAILED);
    }

    #[test]
    fn a_wrong_request_exits_with_2_wherever_in_the_chain_it_is() {
        let wrong = || Error::new(ErrorKind::Invalid, "read the settings", "queue is missing");
        check(&wrong(), "failed to read the settings: queue is missing", USAGE);
        let outer = std::io::Error::other(wrong());
        assert_eq!(code(&outer), FAILED, "an io::Error passes its cause's source on, not the cause");
        let outer = Error::new(ErrorKind::Internal, "begin", "see below").with_source(wrong());
        assert_eq!(code(&outer), USAGE);
    }
}
