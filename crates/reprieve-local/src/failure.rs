//! Errors below the ports, where the operation is not known yet: one failure may fail a whole group
//! of operations.

use std::io;
use std::path::Path;

use reprieve_core::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// An error without its operation. `Clone`, because one failed commit fails every operation in it.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: ErrorKind,
    /// The whole description, including the cause's: an error printed with its sources must not
    /// repeat itself.
    message: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn lease_lost() -> Self {
        Self::new(
            ErrorKind::LeaseLost,
            "the receipt no longer holds the message: its lease ended, or it was renewed, settled or released",
        )
    }

    pub(crate) fn stopped() -> Self {
        Self::new(ErrorKind::Internal, "the store's thread has stopped; restart the process")
    }

    /// Prepends the part that was done before the failure.
    pub(crate) fn after(mut self, done: &str) -> Self {
        self.message = format!("{done}, then {}", self.message);
        self
    }

    /// Adds the failed operation; `operation` completes "failed to …".
    pub(crate) fn during(self, operation: &'static str) -> Error {
        Error::new(self.kind, operation, self.message)
    }

    /// Converts SQLite's error, with a message for the person who runs the worker.
    pub(crate) fn sql(error: &rusqlite::Error, file: &Path) -> Self {
        let file = file.display();
        let (kind, message) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
                ErrorKind::Unavailable,
                format!(
                    "another program holds {file} locked; end its transaction (in a sqlite3 shell: COMMIT)"
                ),
            ),
            Some(ErrorCode::DiskFull) => (
                ErrorKind::Full,
                format!("the disk that holds {file} is full; nothing was lost; free some space to continue"),
            ),
            _ if lacks_a_table(error) => (ErrorKind::Corrupt, damaged(&file)),
            Some(ErrorCode::DatabaseCorrupt) => (ErrorKind::Corrupt, damaged(&file)),
            Some(ErrorCode::NotADatabase) => (
                ErrorKind::Invalid,
                format!("{file} is not a SQLite file; give another path (the file is unchanged)"),
            ),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => (
                ErrorKind::Denied,
                format!(
                    "{file} can't be opened or written; check that it was not moved, and the permissions of the \
                     file and its directory"
                ),
            ),
            Some(ErrorCode::TooBig) => {
                (ErrorKind::TooLarge, "a value is larger than SQLite takes in one piece".to_owned())
            }
            Some(ErrorCode::SystemIoFailure) => (
                ErrorKind::Unavailable,
                format!("the disk that holds {file} reported an error ({error}); check its space and health"),
            ),
            _ => (ErrorKind::Internal, format!("SQLite refused an operation on {file}: {error}")),
        };
        Self::new(kind, message)
    }

    /// Converts an I/O error at `path`, with a message for the person who runs the worker.
    pub(crate) fn io(error: &io::Error, path: &Path) -> Self {
        let path = path.display();
        let (kind, message) = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => (
                ErrorKind::Full,
                format!("there is no space for {path}; nothing was lost; free some space to continue"),
            ),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
                ErrorKind::Denied,
                format!("{path} can't be written ({error}); check its permissions and its owner"),
            ),
            io::ErrorKind::NotFound => {
                (ErrorKind::NotFound, format!("{path} is missing; was the store's directory removed?"))
            }
            _ => (ErrorKind::Unavailable, format!("{path} can't be used: {error}")),
        };
        Self::new(kind, message)
    }
}

fn damaged(file: &impl std::fmt::Display) -> String {
    format!("{file} is damaged; stop its workers, keep a copy, and try `sqlite3 {file} .recover`")
}

/// SQLite has no error code for a missing table. Our statements name only tables that every intact
/// store has.
fn lacks_a_table(error: &rusqlite::Error) -> bool {
    error.to_string().contains("no such table")
}

/// Why an operation inside a transaction ended early.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It was refused before it wrote anything, so the other operations of the transaction
    /// continue.
    Refused(Failure),
    /// SQLite failed midway: the transaction must be rolled back.
    Broken(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}
