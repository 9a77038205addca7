//! A change of one event, as subscribers receive it.

use std::time::SystemTime;

use jiff::Timestamp;
use reprieve_core::clock::instant_at;
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{Initiator, Notice, NoticeId, Phase};
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::document::{ApiVersion, Event};

/// One event that was announced, has changed or has gone.
///
/// Serializes as an object of `what`, `whose`, `event` (in the service's own format), `not_before`
/// and `at` (RFC 3339, or null) and `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventChange {
    /// The kind of change.
    pub what: What,
    /// Which VMs the event concerns.
    pub whose: Whose,
    /// The event as last documented, also after it has ended. Fields that the api-version in use
    /// leaves out keep the values of an earlier answer. `NotBefore` is blank once the event has
    /// begun.
    pub event: Event,
    /// The earliest time at which the event may begin. `None` when it has begun or ended, and when
    /// the service gave no readable time, which must be treated as "at once".
    #[serde(serialize_with = "optional_time")]
    pub not_before: Option<SystemTime>,
    /// The api-version of the document that contained the change.
    pub version: ApiVersion,
    /// When that document was received.
    #[serde(serialize_with = "time")]
    pub at: SystemTime,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The event is new, and has not begun.
    Noticed,
    /// A field has changed: its `NotBefore`, its duration, its resources.
    Changed,
    /// The event has begun. It may never have been [`Noticed`](Self::Noticed).
    Started,
    /// The event has gone without having begun.
    Withdrawn,
    /// The event had begun, and has ended.
    Completed,
}

impl What {
    /// The kind as it appears in logs and JSON.
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

    /// Whether the event has ended or was withdrawn.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Withdrawn | Self::Completed)
    }

    /// The ending of an event that was last in this phase and has gone.
    pub(super) const fn ending(phase: Phase) -> Self {
        match phase {
            Phase::Scheduled => Self::Withdrawn,
            Phase::Started => Self::Completed,
        }
    }
}

/// Which VMs an event concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// This VM, perhaps with others; `Resources` lists them all.
    This,
    /// Other VMs only, of the same scale set or availability set.
    Rest,
}

impl EventChange {
    /// The event's id as a notice id.
    #[must_use]
    pub fn id(&self) -> NoticeId {
        self.event.notice_id()
    }

    /// Converts the change for the worker of the VM called `name`, received at `received`; `None`
    /// for an event of other VMs.
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

/// Serializes a time; null for one outside jiff's range.
fn time<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    Timestamp::try_from(*at).ok().serialize(serializer)
}
