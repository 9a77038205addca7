//! Columns that are read as far as they go: SQLite finds no bit that has flipped in a row. What a damaged one
//! says fits no checksum, or leads to no file, and never keeps everything else of the store.

use rusqlite::types::{FromSql, FromSqlResult, ValueRef};

/// A text. A byte that is no UTF-8 becomes a character that no name has.
pub(crate) struct Text(pub(crate) String);

/// Bytes, also where the row says that they are a text. None are empty.
pub(crate) struct Data(pub(crate) Vec<u8>);

impl FromSql for Text {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(match value {
            ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => {
                String::from(char::REPLACEMENT_CHARACTER)
            }
        }))
    }
}

impl FromSql for Data {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(match value {
            ValueRef::Text(data) | ValueRef::Blob(data) => data.to_vec(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => Vec::new(),
        }))
    }
}
