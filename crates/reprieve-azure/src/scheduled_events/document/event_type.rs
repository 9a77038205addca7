//! An event's status and type. Unknown values are kept as they were written.

use reprieve_core::{NoticeKind, Phase};
use serde::Serialize;

/// The status of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum EventStatus {
    /// It will begin after its `NotBefore`, or when it is approved.
    Scheduled,
    /// It has begun.
    Started,
    /// An unknown status, or none.
    Other(String),
}

impl EventStatus {
    /// The phase of a notice with this status. Only `Started` means that the event has begun.
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

/// The interruption that an event announces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum EventType {
    /// The VM pauses for a few seconds.
    Freeze,
    /// The VM restarts; its memory is lost.
    Reboot,
    /// The VM moves to another host; ephemeral disks are lost.
    Redeploy,
    /// The VM is a Spot VM and is evicted.
    Preempt,
    /// The VM is deleted.
    Terminate,
    /// The VM is a Spot VM that is likelier than others to be evicted soon. Only a recommendation;
    /// since 2024-07-09, in preview.
    SpotRebalanceRecommendation,
    /// An unknown type, or none.
    Other(String),
}

impl EventType {
    /// Every known type.
    pub const KNOWN: [Self; 6] = [
        Self::Freeze,
        Self::Reboot,
        Self::Redeploy,
        Self::Preempt,
        Self::Terminate,
        Self::SpotRebalanceRecommendation,
    ];

    /// The type as it appears in the document.
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

    /// The notice kind for this type.
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
