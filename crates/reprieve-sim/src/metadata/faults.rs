//! Bad days: what the mock does instead of answering well, for as many requests as it is told.

use std::collections::VecDeque;
use std::time::Duration;

/// One way in which a request goes wrong. Requests that break the rules are refused first, fault or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with this status and an error document.
    Status(u16),
    /// It is answered well, with what was so when it came, but only after this.
    Late(Duration),
    /// It is never answered.
    Hang,
    /// It is answered 200 with an empty body.
    Empty,
    /// It is answered 200 with these words.
    Garbage(String),
    /// Its answer breaks off in the middle.
    BreakOff,
    /// It is answered as if there were no fault: leaves room between others.
    None,
}

/// Which requests a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// Those for events, and approvals.
    ScheduledEvents,
    /// Those for the instance document.
    Instance,
}

/// The faults to come, in order, for each endpoint.
#[derive(Debug, Default)]
pub(super) struct Faults {
    scheduled_events: VecDeque<Fault>,
    instance: VecDeque<Fault>,
}

impl Faults {
    pub(super) fn add(&mut self, endpoint: Endpoint, fault: &Fault, requests: usize) {
        self.of(endpoint).extend(std::iter::repeat_n(fault, requests).cloned());
    }

    pub(super) fn take(&mut self, endpoint: Endpoint) -> Fault {
        self.of(endpoint).pop_front().unwrap_or(Fault::None)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    const fn of(&mut self, endpoint: Endpoint) -> &mut VecDeque<Fault> {
        match endpoint {
            Endpoint::ScheduledEvents => &mut self.scheduled_events,
            Endpoint::Instance => &mut self.instance,
        }
    }
}
