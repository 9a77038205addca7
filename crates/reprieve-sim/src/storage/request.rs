//! One request, parsed as far as every operation needs it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use axum::body::Bytes;
use axum::http::HeaderMap;

use super::operation::Operation;
use super::refusal::{INVALID_HEADER, INVALID_METADATA, INVALID_QUERY, OUT_OF_RANGE_QUERY, Refusal};

/// A queue or a container of an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) account: String,
    pub(super) name: String,
}

/// A request with a known operation.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) key: Key,
    /// The message's id, or the blob's name.
    pub(super) item: Option<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns a number in the query, which must be in this range.
    pub(super) fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.query(name) else { return Ok(None) };
        let number = text.parse().map_err(|_| INVALID_QUERY)?;
        if range.contains(&number) { Ok(Some(number)) } else { Err(OUT_OF_RANGE_QUERY) }
    }

    /// Returns a header's value, if it exists and is text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the `x-ms-meta-` headers. Their names are in lower case, because they arrive so
    /// here; the service keeps the case.
    pub(super) fn metadata(&self) -> Result<BTreeMap<String, String>, Refusal> {
        let mut metadata = BTreeMap::new();
        for (name, value) in &self.headers {
            if let Some(name) = name.as_str().strip_prefix("x-ms-meta-") {
                if !is_identifier(name) {
                    return Err(INVALID_METADATA);
                }
                let value = value.to_str().map_err(|_| INVALID_HEADER)?;
                metadata.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(metadata)
    }
}

/// Returns whether it is an ASCII identifier as in C#, which metadata names must be.
fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
