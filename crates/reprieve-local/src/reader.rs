//! A connection for reading, so that counting a million messages never delays a renewal.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction};

use crate::failure::{Failure, Outcome};
use crate::files::Files;
use crate::schema;

/// Reads, one caller at a time. Every read is short: during a read SQLite can't reuse its log,
/// which grows.
#[derive(Debug)]
pub(crate) struct Reader {
    conn: Mutex<Connection>,
    file: PathBuf,
}

impl Reader {
    pub(crate) fn open(files: &Files) -> Outcome<Self> {
        Ok(Self { conn: Mutex::new(schema::open_reader(files)?), file: files.database().to_owned() })
    }

    /// Runs `read` on one snapshot of the database. Blocks.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Outcome<T> {
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let result = conn.transaction().and_then(|snapshot| read(&snapshot));
        result.map_err(|error| Failure::sql(&error, &self.file))
    }

    /// Returns the first row, if there is one. Blocks.
    pub(crate) fn row<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        row: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Outcome<Option<T>> {
        self.read(|snapshot| snapshot.prepare_cached(sql)?.query_row(params, row).optional())
    }

    /// Returns all rows. Blocks.
    pub(crate) fn rows<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Outcome<Vec<T>> {
        self.read(|snapshot| snapshot.prepare_cached(sql)?.query_map(params, row)?.collect())
    }
}
