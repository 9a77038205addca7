//! Reads the JSON log of a worker process.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

/// The log of a process, which may still be writing it.
#[derive(Debug, Clone)]
pub struct Log(PathBuf);

/// A line of a log.
#[derive(Debug, Clone, Deserialize)]
pub struct Line {
    timestamp: jiff::Timestamp,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl Log {
    /// Opens the log in `file`.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self(file.into())
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the text so far.
    #[must_use]
    pub fn text(&self) -> String {
        fs::read(&self.0).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Returns the lines with this message so far. A line that a kill cut off is left out.
    #[must_use]
    pub fn lines(&self, message: &str) -> Vec<Line> {
        let lines = self.text();
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        lines.filter(|line| line.text("message") == message).collect()
    }
}

impl Line {
    /// Returns the time of the line, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn at_unix_ms(&self) -> i64 {
        self.timestamp.as_millisecond()
    }

    /// Returns a text field; empty when there is none of that name.
    #[must_use]
    pub fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a text field of the line's span; empty when there is none of that name.
    #[must_use]
    pub fn span(&self, field: &str) -> &str {
        self.fields.get("span").and_then(|span| span.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a number field.
    ///
    /// # Panics
    /// When there is none of that name.
    #[must_use]
    pub fn number(&self, field: &str) -> u64 {
        let number = self.fields.get(field).and_then(Value::as_u64);
        number.unwrap_or_else(|| panic!("no number {field} in {self:?}"))
    }
}
