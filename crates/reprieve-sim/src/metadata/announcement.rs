//! An event for the mock to announce.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;

/// An event to announce. The constructors fill the remaining fields with Azure's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The type.
    pub event_type: EventType,
    /// The affected VMs. They need not be the mock's own: a real VM sees its neighbours' events
    /// too.
    pub resources: Vec<String>,
    /// Time until it starts; `None` for an event that first appears when it has started, as after a
    /// hardware failure.
    pub notice: Option<Duration>,
    /// `Platform` or `User`.
    pub source: String,
    /// A description for people.
    pub description: String,
    /// The announced length of the interruption; the mock does not act on it. `None` for unknown,
    /// which is written as -1.
    pub duration: Option<Duration>,
    /// How long it stays in the document after it started; `None` for the mock's default.
    pub started_for: Option<Duration>,
    /// How other tenants of the host affect its start.
    pub other_tenants: OtherTenants,
    /// Whether its VMs are removed when it starts.
    pub gone: bool,
    /// Its id; `None` for a new one.
    pub event_id: Option<String>,
    /// The text of its `NotBefore`; `None` for its start time.
    pub not_before: Option<String>,
}

/// How the other tenants of the host react to an event. Azure waits for the approval of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OtherTenants {
    /// There are none: the event begins with one approval from its set.
    #[default]
    None,
    /// They never approve: the event begins at its `NotBefore`, approved or not.
    Silent,
    /// They approve this long after the announcement.
    ApproveAfter(Duration),
}

impl Announcement {
    /// Creates an eviction of the Spot VM called `vm`. Like every real one seen, it has no
    /// description and no duration.
    #[must_use]
    pub fn preempt(vm: &str, notice: Duration) -> Self {
        Self::new(EventType::Preempt, [vm], Some(notice))
    }

    /// Creates an event of the platform for these VMs.
    #[must_use]
    pub fn new<'a>(
        event_type: EventType,
        resources: impl IntoIterator<Item = &'a str>,
        notice: Option<Duration>,
    ) -> Self {
        Self {
            event_type,
            resources: resources.into_iter().map(str::to_owned).collect(),
            notice,
            source: "Platform".to_owned(),
            description: String::new(),
            duration: None,
            started_for: None,
            other_tenants: OtherTenants::None,
            gone: false,
            event_id: None,
            not_before: None,
        }
    }
}
