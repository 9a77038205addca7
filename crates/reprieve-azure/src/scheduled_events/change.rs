//! A change of one event, as it is told to whoever watches.

use std::time::SystemTime;

use jiff::Timestamp;
use reprieve_core::clock::instant_at;
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{Initiator, Notice, NoticeId, Phase};
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::ApiVersion;
use super::document::Event;

/// One event has come, changed or gone.
///
/// Serialized it is an object of `what`, `whose`, `event` (in the service's own words), `not_before` and `at` (RFC
/// 3339, or null) and `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventChange {
    /// What has become of it.
    pub what: What,
    /// Whom it concerns.
    pub whose: Whose,
    /// The event as last documented, also when it is over. What the api-version in use leaves out is as an earlier
    /// answer gave it. A begun event's `NotBefore` is blank.
    pub event: Event,
    /// When it may begin; `None` when it has begun or is over, and when the service gave no time that can be read,
    /// which must be taken for "at once".
    #[serde(serialize_with = "optional_time")]
    pub not_before: Option<SystemTime>,
    /// The api-version of the document that told.
    pub version: ApiVersion,
    /// When that document was received.
    #[serde(serialize_with = "time")]
    pub at: SystemTime,
}

/// What has become of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It is new, and has not begun.
    Noticed,
    /// Something of it is different: its `NotBefore`, its duration, its resources.
    Changed,
    /// It has begun. It may never have been [`Noticed`](Self::Noticed).
    Started,
    /// It is gone without having begun.
    Withdrawn,
    /// It had begun, and is over.
    Completed,
}

impl What {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Changed => "changed",
            Self::Started => "started",
            Self::Withdrawn => "withdrawn",
            Self::Completed => "completed",
        }
    }

    /// Whether the event is over.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Withdrawn | Self::Completed)
    }

    /// How an event that was last in this phase has ended, now that it is gone.
    pub(super) const fn ending(phase: Phase) -> Self {
        match phase {
            Phase::Scheduled => Self::Withdrawn,
            Phase::Started => Self::Completed,
        }
    }
}

/// Whom an event concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// This VM, perhaps with others; `Resources` names them all.
    This,
    /// Other VMs only, of the same scale set or availability set.
    Rest,
}

impl EventChange {
    /// The event's name.
    #[must_use]
    pub fn id(&self) -> NoticeId {
        self.event.notice_id()
    }

    /// The same in a worker's words, for the VM called `name`, told at `received`; `None` for an event that is not its own.
    #[must_use]
    pub fn for_worker(&self, name: &str, received: Instant) -> Option<Change> {
        if self.whose == Whose::Rest {
            return None;
        }
        Some(match self.what {
            What::Withdrawn => Change::Over(self.id(), Ending::Withdrawn),
            What::Completed => Change::Over(self.id(), Ending::Completed),
            What::Noticed | What::Changed | What::Started => Change::Noticed(self.notice(name, received)),
        })
    }

    fn notice(&self, name: &str, received: Instant) -> Notice {
        let event = &self.event;
        Notice {
            id: self.id(),
            kind: event.event_type.kind(),
            phase: event.event_status.phase(),
            received,
            not_before: self.not_before.map(instant_at),
            duration: event.duration(),
            initiator: match event.event_source.as_str() {
                "Platform" => Initiator::Platform,
                "User" => Initiator::User,
                _ => Initiator::Unknown,
            },
            resources: event.resources.clone(),
            machine: event
                .resources
                .iter()
                .find(|it| it.eq_ignore_ascii_case(name))
                .cloned()
                .unwrap_or_default(),
        }
    }
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn optional_time<S: Serializer>(at: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => time(at, serializer),
        None => serializer.serialize_none(),
    }
}

/// A time outside jiff's years is no time that could be told.
fn time<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    Timestamp::try_from(*at).ok().serialize(serializer)
}
