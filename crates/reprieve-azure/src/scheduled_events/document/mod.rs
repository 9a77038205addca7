//! The Scheduled Events document in the service's own format, parsed leniently.
//!
//! Fields may be in any order, unknown, missing (later api-versions added some), duplicated (the
//! last one counts) or of another JSON type. Types and statuses may be unknown. Only text that is
//! no document at all is refused: an error page must never count as "no events", because that would
//! withdraw every active notice.

mod event_type;
mod not_before;
mod version;

use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use reprieve_core::clock::wall_now;
use reprieve_core::{Error, ErrorKind, NoticeId, Result};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

pub use self::event_type::{EventStatus, EventType};
pub use self::not_before::NotBefore;
pub use self::version::ApiVersion;

/// Some writers of UTF-8 begin a text with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Longer than any interruption of a VM, and small enough that adding it to a time can't overflow.
const DURATION_MAX: Duration = Duration::from_hours(365 * 24);

/// One answer of the service: every event that is scheduled or under way for this VM and the others
/// of its set.
///
/// Field by field:
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-properties>.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Document {
    /// Changes whenever the events change.
    #[serde(default)]
    pub document_incarnation: Incarnation,
    /// Empty when nothing is planned. Text without this field is not a document.
    pub events: Vec<Event>,
}

impl Document {
    /// Parses the body of an answer.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) for an empty body, which the service has been seen
    /// to send: it is no answer and does not mean "no events". [`Corrupt`](ErrorKind::Corrupt) for
    /// anything else that is not a document.
    pub fn read(body: &[u8]) -> Result<Self> {
        const OPERATION: &str = "read the scheduled events";
        // Neither a byte order mark nor a description in another encoding may cost a notice.
        let text = String::from_utf8_lossy(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body));
        if text.trim().is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, OPERATION, "the answer was empty"));
        }
        // Parsed as a map first: serde would also accept a list of two values as a document, and
        // would refuse a duplicate key.
        let document = serde_json::from_str::<Map<String, Value>>(&text);
        document.and_then(|document| serde_json::from_value(document.into())).map_err(|error| {
            let message = format!("the answer is not a Scheduled Events document: {error}");
            Error::new(ErrorKind::Corrupt, OPERATION, message).with_source(error)
        })
    }

    /// Parses the body of an answer in this api-version. The first version puts a `_` before the
    /// names in `Resources`, which this removes.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
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

/// A document, with the data that is needed to interpret it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The parsed document.
    pub document: Document,
    /// The api-version of the request.
    pub version: ApiVersion,
    /// The time of the request, on the timers' clock.
    pub sent: Instant,
    /// The time of receipt, on the timers' clock.
    pub at: Instant,
    /// The time of receipt, on the wall clock.
    pub wall: SystemTime,
    /// How far the service's clock is ahead of this machine's; `None` where the answer does not show
    /// it. To half a second, because the `Date` header has whole ones.
    pub ahead: Option<SignedDuration>,
}

impl Answer {
    /// Creates an answer that was requested and received now.
    #[must_use]
    pub fn now(document: Document, version: ApiVersion) -> Self {
        let at = Instant::now();
        Self { document, version, sent: at, at, wall: wall_now(), ahead: None }
    }

    /// The time from `at` until the receipt.
    pub(crate) fn age_of(&self, at: Instant) -> Duration {
        self.at.saturating_duration_since(at)
    }
}

/// A time on the service's clock and on the timers' clock, to convert one into the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceClock {
    /// The time on the timers' clock.
    pub at: Instant,
    /// The same time on the service's clock.
    pub wall: SystemTime,
}

impl ServiceClock {
    /// The clock at the receipt of `answer`, if the service's clock is `ahead` of this machine's.
    #[must_use]
    pub fn of(answer: &Answer, ahead: SignedDuration) -> Self {
        let by = ahead.unsigned_abs();
        let wall =
            if ahead.is_negative() { answer.wall.checked_sub(by) } else { answer.wall.checked_add(by) };
        Self { at: answer.at, wall: wall.unwrap_or(answer.wall) }
    }

    /// Converts a time of the service, at most a century ahead; the present for one in the past.
    #[must_use]
    pub fn instant(&self, wall: SystemTime) -> Instant {
        let left = wall.duration_since(self.wall).unwrap_or_default();
        self.at + left.min(DURATION_MAX * 100)
    }
}

/// Distinguishes two states of the events, by equality only.
///
/// It is documented as a rising integer, but it restarts when the service does, and Microsoft's own
/// sample compares it with a string. So no code skips a document because of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(Value);

impl Incarnation {
    /// Whether this number is lower than `earlier`, which happens when the service restarts.
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

/// One event. Fields that the service left out are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Event {
    /// A GUID, constant for the event's life; upper case in real answers, lower case in the
    /// documentation.
    #[serde(deserialize_with = "text")]
    pub event_id: String,
    /// Scheduled or started.
    #[serde(deserialize_with = "text_into")]
    pub event_status: EventStatus,
    /// The kind of interruption.
    #[serde(deserialize_with = "text_into")]
    pub event_type: EventType,
    /// Always `VirtualMachine`.
    #[serde(deserialize_with = "text")]
    pub resource_type: String,
    /// The names of the VMs that the event concerns. Every VM of a set sees the events of all.
    #[serde(deserialize_with = "texts")]
    pub resources: Vec<String>,
    /// The earliest time at which the event may begin, as text;
    /// [`NotBefore::read`](NotBefore::read) parses it. Blank once the event has begun.
    #[serde(deserialize_with = "text")]
    pub not_before: String,
    /// A description for people, since 2019-04-01; blank in every `Preempt` seen so far.
    #[serde(deserialize_with = "text")]
    pub description: String,
    /// `Platform` or `User`, since 2019-08-01.
    #[serde(deserialize_with = "text")]
    pub event_source: String,
    /// The length of the interruption in seconds, since 2020-07-01; -1 if unknown.
    #[serde(deserialize_with = "integer", skip_serializing_if = "Option::is_none")]
    pub duration_in_seconds: Option<i64>,
}

impl Event {
    /// The event's id as a notice id. An event without an id uses its type, so that it is still
    /// reported.
    #[must_use]
    pub fn notice_id(&self) -> NoticeId {
        if self.event_id.is_empty() {
            NoticeId::new(&format!("{}-without-id", self.event_type.as_str()))
        } else {
            NoticeId::new(&self.event_id)
        }
    }

    /// The length of the interruption, at most a year. Zero means no interruption; `None` means
    /// unknown.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        let seconds = self.duration_in_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map(|seconds| Duration::from_secs(seconds).min(DURATION_MAX))
    }

    /// Whether the event concerns the VM called `name`. Azure names are case-insensitive.
    ///
    /// An event without `Resources` concerns every VM: a needless drain costs seconds, an unnoticed
    /// eviction costs work.
    #[must_use]
    pub fn concerns(&self, name: &str) -> bool {
        self.resources.is_empty() || self.resources.iter().any(|resource| resource.eq_ignore_ascii_case(name))
    }
}

/// A string as it is, an empty string for null, and the JSON text of anything else, so that it
/// shows in a log.
fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Value::deserialize(deserializer).map(as_text)
}

fn text_into<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<T, D::Error> {
    text(deserializer).map(T::from)
}

/// Drops blank strings, which name no VM.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let values = match Value::deserialize(deserializer)? {
        Value::Array(values) => values,
        one => vec![one],
    };
    Ok(values.into_iter().map(as_text).filter(|text| !text.trim().is_empty()).collect())
}

fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
