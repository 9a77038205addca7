//! The Scheduled Events document as the service writes it, read with as much tolerance as leaves its meaning.
//!
//! Fields may be in any order, unknown, missing (later api-versions added some) or of another JSON type; types and
//! statuses may be unknown. Only what is no document at all is refused: an error page must never be taken for "no
//! events", because that would withdraw every notice that stands.

use reprieve_core::{Error, ErrorKind, NoticeId, NoticeKind, Phase, Result};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

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
        if body.trim_ascii().is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, OPERATION, "the answer was empty"));
        }
        serde_json::from_slice(body).map_err(|error| {
            let message = format!("the answer is not a Scheduled Events document: {error}");
            Error::new(ErrorKind::Corrupt, OPERATION, message).with_source(error)
        })
    }
}

/// Tells one state of the events from another, by equality only.
///
/// It is documented as a rising integer, but it starts again when the service does, and Microsoft's own sample compares
/// it with a string. So nothing here skips a document because of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(Value);

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

    /// Whether it will happen to the VM called `name`, which is an Azure name and so has no case.
    ///
    /// An event that names nobody concerns everybody: draining needlessly costs seconds, being evicted unawares work.
    #[must_use]
    pub fn concerns(&self, name: &str) -> bool {
        self.resources.is_empty() || self.resources.iter().any(|resource| resource.eq_ignore_ascii_case(name))
    }
}

/// How far an event has got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum EventStatus {
    /// It will begin after its `NotBefore`, or when it is approved.
    Scheduled,
    /// It has begun.
    Started,
    /// A status this version does not know, or none.
    Other(String),
}

impl EventStatus {
    /// The phase of a notice with this status. Only `Started` says that it has begun.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Started => Phase::Started,
            Self::Scheduled | Self::Other(_) => Phase::Scheduled,
        }
    }
}

impl Default for EventStatus {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl From<String> for EventStatus {
    fn from(text: String) -> Self {
        match text.as_str() {
            "Scheduled" => Self::Scheduled,
            "Started" => Self::Started,
            _ => Self::Other(text),
        }
    }
}

impl From<EventStatus> for String {
    fn from(status: EventStatus) -> Self {
        match status {
            EventStatus::Scheduled => "Scheduled".to_owned(),
            EventStatus::Started => "Started".to_owned(),
            EventStatus::Other(text) => text,
        }
    }
}

/// What will happen to the VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum EventType {
    /// It pauses for a few seconds.
    Freeze,
    /// It restarts; its memory is lost.
    Reboot,
    /// It moves to another host; ephemeral disks are lost.
    Redeploy,
    /// It is a Spot VM, and taken back.
    Preempt,
    /// It is deleted.
    Terminate,
    /// It is a Spot VM and likelier than others to be taken back soon: only an advice, since 2024-07-09, in preview.
    SpotRebalanceRecommendation,
    /// A type this version does not know, or none.
    Other(String),
}

impl EventType {
    const KNOWN: [Self; 6] = [
        Self::Freeze,
        Self::Reboot,
        Self::Redeploy,
        Self::Preempt,
        Self::Terminate,
        Self::SpotRebalanceRecommendation,
    ];

    /// The type as it is written in the document.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Freeze => "Freeze",
            Self::Reboot => "Reboot",
            Self::Redeploy => "Redeploy",
            Self::Preempt => "Preempt",
            Self::Terminate => "Terminate",
            Self::SpotRebalanceRecommendation => "SpotRebalanceRecommendation",
            Self::Other(text) => text,
        }
    }

    /// The type in the worker's words.
    #[must_use]
    pub fn kind(&self) -> NoticeKind {
        match self {
            Self::Freeze => NoticeKind::Freeze,
            Self::Reboot => NoticeKind::Reboot,
            Self::Redeploy => NoticeKind::Redeploy,
            Self::Preempt => NoticeKind::Preempt,
            Self::Terminate => NoticeKind::Terminate,
            Self::SpotRebalanceRecommendation => NoticeKind::Rebalance,
            Self::Other(text) => NoticeKind::Other(text.clone()),
        }
    }
}

impl Default for EventType {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl From<String> for EventType {
    fn from(text: String) -> Self {
        Self::KNOWN.into_iter().find(|known| known.as_str() == text).unwrap_or(Self::Other(text))
    }
}

impl From<EventType> for String {
    fn from(event_type: EventType) -> Self {
        event_type.as_str().to_owned()
    }
}

/// A string as it is; nothing for null; anything else as its JSON, so that it is shown in a log and not lost.
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

fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(values) => values.into_iter().map(as_text).collect(),
        Value::Null => Vec::new(),
        one => vec![as_text(one)],
    })
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
