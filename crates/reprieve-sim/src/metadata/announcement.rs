//! An event to be announced by the mock.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;

/// An event to come. Fields that are not given here have the values that Azure gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// What will happen.
    pub event_type: EventType,
    /// To which VMs. They need not be the mock's own: a real VM is told of its neighbours' events too.
    pub resources: Vec<String>,
    /// How long before it starts; `None` for one that is first seen when it has started, as after a hardware failure.
    pub notice: Option<Duration>,
    /// `Platform` or `User`.
    pub source: String,
    /// Words for people.
    pub description: String,
    /// How long it will interrupt the VM, which is only told; `None` for unknown, which is written -1.
    pub duration: Option<Duration>,
    /// How long it is still told after it started; `None` for what the mock does.
    pub started_for: Option<Duration>,
    /// Whether others on the host have a say in when it begins.
    pub other_tenants: OtherTenants,
    /// Whether the VMs it names are gone when it begins.
    pub gone: bool,
    /// Its id; `None` for a new one.
    pub event_id: Option<String>,
    /// What its `NotBefore` says; `None` for when it begins.
    pub not_before: Option<String>,
}

/// What the other tenants of the host do about an event. An approval is one of all that Azure waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OtherTenants {
    /// There are none: with one approval of its set the event begins.
    #[default]
    None,
    /// They never approve: it begins at its `NotBefore`, approved or not.
    Silent,
    /// They have approved so long after it was announced.
    ApproveAfter(Duration),
}

impl Announcement {
    /// The platform takes back the Spot VM called `vm`. Like every real one seen, it has no description and no duration.
    #[must_use]
    pub fn preempt(vm: &str, notice: Duration) -> Self {
        Self::new(EventType::Preempt, [vm], Some(notice))
    }

    /// The platform will do this to these VMs.
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
