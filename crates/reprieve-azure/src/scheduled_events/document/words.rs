//! The words of an event: its status and its type. What is not known is kept as it was written.

use reprieve_core::{NoticeKind, Phase};
use serde::Serialize;

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
    /// Every type that is known.
    pub const KNOWN: [Self; 6] = [
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
