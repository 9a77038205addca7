//! The Scheduled Events document as the service writes it, read with as much tolerance as leaves its meaning.
//!
//! Fields may be in any order, unknown, missing (later api-versions added some), there twice (the last one counts) or of
//! another JSON type; types and statuses may be unknown. Only what is no document at all is refused: an error page must never be taken for "no
//! events", because that would withdraw every notice that stands.

mod lenient;
mod words;

use std::time::Duration;

use reprieve_core::{Error, ErrorKind, NoticeId, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::words::{EventStatus, EventType};
use super::ApiVersion;
use lenient::{integer, text, text_into, texts};

/// What some writers of UTF-8 begin with.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// More than any VM is ever interrupted, and so little that no sum of it and a time is too large.
const DURATION_MAX: Duration = Duration::from_hours(365 * 24);

/// One answer of the service: every event that is scheduled or under way for this VM and the others of its set.
///
/// Field by field: <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-properties>.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Document {
    /// Changes when the events do.
    #[serde(default)]
    pub document_incarnation: Incarnation,
    /// Empty when nothing is planned. Without this field it is not a document.
    pub events: Vec<Event>,
}

impl Document {
    /// Reads the body of an answer.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) for an empty body, which the service has been seen to send: that is no
    /// answer, not "no events". [`Corrupt`](ErrorKind::Corrupt) for anything else that is not a document.
    pub fn read(body: &[u8]) -> Result<Self> {
        const OPERATION: &str = "read the scheduled events";
        // Neither a byte order mark nor a description in another encoding is worth a notice.
        let text = String::from_utf8_lossy(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body));
        if text.trim().is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, OPERATION, "the answer was empty"));
        }
        // By way of a map, because serde would take a list of two things for a document, too, and none with a key twice.
        let document = serde_json::from_str::<Map<String, Value>>(&text);
        document.and_then(|document| serde_json::from_value(document.into())).map_err(|error| {
            let message = format!("the answer is not a Scheduled Events document: {error}");
            Error::new(ErrorKind::Corrupt, OPERATION, message).with_source(error)
        })
    }

    /// Reads the body of an answer in this api-version, and takes from the names in `Resources` the `_` that the first
    /// version puts before them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_as(version: ApiVersion, body: &[u8]) -> Result<Self> {
        let mut document = Self::read(body)?;
        if version.underscores() {
            for resource in document.events.iter_mut().flat_map(|event| &mut event.resources) {
                if let Some(name) = resource.strip_prefix('_').filter(|name| !name.is_empty()) {
                    *resource = name.to_owned();
                }
            }
        }
        Ok(document)
    }
}

/// Tells one state of the events from another, by equality only.
///
/// It is documented as a rising integer, but it starts again when the service does, and Microsoft's own sample compares
/// it with a string. So nothing here skips a document because of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(Value);

impl Incarnation {
    /// Whether this is a lower number than `earlier`, which it becomes when the service starts again.
    #[must_use]
    pub fn is_reset_from(&self, earlier: &Self) -> bool {
        matches!((self.0.as_u64(), earlier.0.as_u64()), (Some(now), Some(before)) if now < before)
    }
}

impl From<u64> for Incarnation {
    fn from(number: u64) -> Self {
        Self(number.into())
    }
}

impl std::fmt::Display for Incarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One event. Whatever the service left out is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Event {
    /// A GUID, the same through the event's life; upper case in real answers, lower case in the documentation.
    #[serde(deserialize_with = "text")]
    pub event_id: String,
    /// How far it has got.
    #[serde(deserialize_with = "text_into")]
    pub event_status: EventStatus,
    /// What will happen.
    #[serde(deserialize_with = "text_into")]
    pub event_type: EventType,
    /// Always `VirtualMachine`.
    #[serde(deserialize_with = "text")]
    pub resource_type: String,
    /// The names of the VMs it will happen to. Every VM of a set is told of the events of all.
    #[serde(deserialize_with = "texts")]
    pub resources: Vec<String>,
    /// When it may begin, as written; [`NotBefore::read`](super::NotBefore::read) reads it. Blank once it has begun.
    #[serde(deserialize_with = "text")]
    pub not_before: String,
    /// Words for people, since 2019-04-01; blank for every `Preempt` seen.
    #[serde(deserialize_with = "text")]
    pub description: String,
    /// `Platform` or `User`, since 2019-08-01.
    #[serde(deserialize_with = "text")]
    pub event_source: String,
    /// How long the VM will be interrupted, since 2020-07-01; -1 for unknown.
    #[serde(deserialize_with = "integer", skip_serializing_if = "Option::is_none")]
    pub duration_in_seconds: Option<i64>,
}

impl Event {
    /// The event's name as a notice. An event without an id is named by its type: it is better told without a name
    /// than not told.
    #[must_use]
    pub fn notice_id(&self) -> NoticeId {
        if self.event_id.is_empty() {
            NoticeId::new(&format!("{}-without-id", self.event_type.as_str()))
        } else {
            NoticeId::new(&self.event_id)
        }
    }

    /// How long the VM will be interrupted, a year at most: zero for not at all, `None` when that is unknown.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        let seconds = self.duration_in_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map(|seconds| Duration::from_secs(seconds).min(DURATION_MAX))
    }

    /// Whether it will happen to the VM called `name`, which is an Azure name and so has no case.
    ///
    /// An event that names nobody concerns everybody: draining needlessly costs seconds, being evicted unawares work.
    #[must_use]
    pub fn concerns(&self, name: &str) -> bool {
        self.resources.is_empty() || self.resources.iter().any(|resource| resource.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests;
