//! An event to be announced by the mock.

use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;

/// An event to come. Fields that are not given here have the values that Azure gives them.
#[derive(Debug, Clone)]
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
    /// How long it will interrupt the VM; `None` for unknown, which is written -1.
    pub duration: Option<Duration>,
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
        }
    }
}
