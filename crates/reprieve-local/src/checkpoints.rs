//! The checkpoint port: small values are rows, large ones files that a row points to.

use std::fs;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use reprieve_core::ports::{CheckpointStore, Stored, Version};
use reprieve_core::{ErrorKind, Result};

use crate::failure::{Failure, Fault, Outcome};
use crate::files;
use crate::store::{Ports, Shared, blocking};
use crate::writer::Tx;

/// The largest value that is kept in the database. Beyond it a file is faster to write, and the database's log, which
/// every renewal goes through as well, stays short.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// How often a load looks again when the file it was pointed to has been replaced meanwhile.
const LOOKS_MAX: usize = 100;

#[async_trait]
impl CheckpointStore for Ports {
    async fn load(&self, key: &str) -> Result<Option<Stored>> {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        blocking(move || load(&shared, &key)).await.map_err(|failure| failure.during("load a checkpoint"))
    }

    async fn save(&self, key: &str, expected: Option<&Version>, bytes: Vec<u8>) -> Result<Version> {
        let (key, expected) = (key.to_owned(), Expected::read(expected));
        let saved = if bytes.len() <= INLINE_BYTES_MAX {
            self.save_row(key, expected, bytes).await
        } else {
            let shared = Arc::clone(&self.shared);
            blocking(move || save_file(&shared, key, expected, &bytes)).await
        };
        saved.map_err(|failure| failure.during("save a checkpoint"))
    }

    async fn clear(&self, key: &str) -> Result<()> {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        let apply = move |tx: &Tx<'_>| {
            const DELETE: &str = "DELETE FROM checkpoint WHERE key = ?1 RETURNING file";
            Ok(tx.row(DELETE, [&key], |row| row.get(0))?.flatten())
        };
        let publish = move |replaced| {
            remove_replaced(&shared, replaced);
            Ok(())
        };
        let cleared = self.shared.writer.call(0, apply, publish).await;
        cleared.map_err(|failure| failure.during("clear a checkpoint"))
    }
}

impl Ports {
    async fn save_row(&self, key: String, expected: Expected, bytes: Vec<u8>) -> Outcome<Version> {
        let shared = Arc::clone(&self.shared);
        let weight = bytes.len();
        let apply = move |tx: &Tx<'_>| replace(tx, &key, expected, Value::Inline(&bytes));
        let publish = move |(version, replaced)| {
            remove_replaced(&shared, replaced);
            Ok(version)
        };
        self.shared.writer.call(weight, apply, publish).await
    }
}

/// The version a save expects to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Nothing,
    Version(i64),
    /// A version that this store never gave out.
    Foreign,
}

impl Expected {
    fn read(version: Option<&Version>) -> Self {
        match version.map(|version| version.as_str().parse()) {
            None => Self::Nothing,
            Some(Ok(version)) => Self::Version(version),
            Some(Err(_)) => Self::Foreign,
        }
    }

    fn check(self, current: Option<i64>) -> Outcome<()> {
        match (self, current) {
            (Self::Nothing, None) => Ok(()),
            (Self::Version(expected), Some(current)) if expected == current => Ok(()),
            _ => Err(Failure::new(
                ErrorKind::Conflict,
                "the checkpoint was saved or cleared by somebody else since it was loaded",
            )),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Inline(&'a [u8]),
    File { name: &'a str, bytes: usize },
}

/// Puts the value in the place of the expected one; also returns the file that is no longer needed.
fn replace(
    tx: &Tx<'_>,
    key: &str,
    expected: Expected,
    value: Value<'_>,
) -> Result<(Version, Option<String>), Fault> {
    let current = tx.row("SELECT version, file FROM checkpoint WHERE key = ?1", [key], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?))
    })?;
    expected.check(current.as_ref().map(|(version, _)| *version))?;
    // A new row, not an update: its id is the version.
    tx.execute("DELETE FROM checkpoint WHERE key = ?1", [key])?;
    let (bytes, data, file) = match value {
        Value::Inline(data) => (data.len(), Some(data), None),
        Value::File { name, bytes } => (bytes, None, Some(name)),
    };
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let version = tx.insert(
        "INSERT INTO checkpoint(key, bytes, data, file) VALUES(?1, ?2, ?3, ?4)",
        (key, bytes, data, file),
    )?;
    Ok((Version::new(version.to_string()), current.and_then(|(_, file)| file)))
}

fn remove_replaced(shared: &Shared, file: Option<String>) {
    if let Some(file) = file {
        files::remove_if_there(&shared.files.checkpoints().join(file));
    }
}

/// Writes the file first, so that the row never points to one that is not whole.
fn save_file(shared: &Arc<Shared>, key: String, expected: Expected, bytes: &[u8]) -> Outcome<Version> {
    // Checked again in the transaction. Here it spares a stale owner the writing of what may be gigabytes.
    let current =
        shared.reader.row("SELECT version FROM checkpoint WHERE key = ?1", [&key], |row| row.get(0))?;
    expected.check(current)?;
    let (name, size) = (shared.session()?.new_file_name(), bytes.len());
    let path = shared.files.checkpoints().join(&name);
    files::write_new(&path, bytes)?;
    let directory = shared.files.checkpoints();
    let saved =
        files::sync_directory(&directory).map_err(|error| Failure::io(&error, &directory)).and_then(|()| {
            let apply =
                move |tx: &Tx<'_>| replace(tx, &key, expected, Value::File { name: &name, bytes: size });
            shared.writer.call_blocking(apply, Ok)
        });
    // A commit that failed may yet be found to have gone through after a crash, but then its session is over, and the
    // sweep keeps what a row points to. A file that was refused is needed by nobody.
    let (version, replaced) = saved.inspect_err(|_| files::remove_if_there(&path))?;
    remove_replaced(shared, replaced);
    Ok(version)
}

fn load(shared: &Shared, key: &str) -> Outcome<Option<Stored>> {
    let mut missing = None;
    for _ in 0..LOOKS_MAX {
        let Some(row) = shared.reader.row(
            "SELECT version, bytes, data, file FROM checkpoint WHERE key = ?1",
            [key],
            |row| {
                let (version, bytes) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?);
                Ok((version, bytes, row.get::<_, Option<Vec<u8>>>(2)?, row.get::<_, Option<String>>(3)?))
            },
        )?
        else {
            return Ok(None);
        };
        let (version, size, data, file) = row;
        let bytes = match (data, file) {
            (Some(bytes), _) => bytes,
            (None, Some(file)) => match fs::read(shared.files.checkpoints().join(&file)) {
                Ok(bytes) => bytes,
                // Replaced since the row was read, unless the row is still the same.
                Err(error) if error.kind() == io::ErrorKind::NotFound && missing != Some(version) => {
                    missing = Some(version);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(damaged(key, "is missing"));
                }
                Err(error) => return Err(Failure::io(&error, &shared.files.checkpoints().join(file))),
            },
            (None, None) => return Err(damaged(key, "was never written")),
        };
        if i64::try_from(bytes.len()) != Ok(size) {
            return Err(damaged(key, "is not as long as it was"));
        }
        return Ok(Some(Stored { bytes, version: Version::new(version.to_string()) }));
    }
    Err(Failure::new(
        ErrorKind::Unavailable,
        format!("the checkpoint {key} is replaced faster than it can be read"),
    ))
}

fn damaged(key: &str, how: &str) -> Failure {
    Failure::new(
        ErrorKind::Corrupt,
        format!("the file of checkpoint {key} {how}; restore it, or clear the checkpoint to begin again"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_is_taken_only_if_it_knows_what_it_replaces() {
        for (expected, current, taken) in [
            (Expected::Nothing, None, true),
            (Expected::Nothing, Some(1), false),
            (Expected::Version(1), Some(1), true),
            (Expected::Version(1), Some(2), false),
            (Expected::Version(1), None, false),
            (Expected::read(Some(&Version::new("0x8D"))), Some(1), false),
            (Expected::read(Some(&Version::new("0x8D"))), None, false),
        ] {
            assert_eq!(expected.check(current).is_ok(), taken, "{expected:?} over {current:?}");
        }
    }
}
