//! The mock's state at a given moment: its VMs and the active events. No network, no timers.

mod approvals;
mod events;
mod runs;
mod settle;
mod vms;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::{Document, EventType};

use super::faults::{Endpoint, Fault, FaultRule, Faults, NewFault};
use super::moment::{Moment, SPAN_MAX};
use super::plan::VmNames;
use super::refusal::Refusal;
use super::scenario::Scenario;
use super::state::{Entry, EventState, State, What};
use events::Planned;
use runs::Run;
pub(super) use vms::Vm;

/// The most ended events that are kept.
const ENDED_MAX: usize = 100;

/// The most entries of the log.
const TIMELINE_MAX: usize = 500;

/// The VMs and events of one mock.
///
/// Everything that is due has happened: callers call [`settle`](Self::settle) with the present
/// moment before they read or change anything, so events start and end on time even without
/// requests.
#[derive(Debug)]
pub(super) struct World {
    incarnation: u64,
    vms: Vec<Vm>,
    events: Vec<Planned>,
    /// The last events that have ended, oldest first.
    ended: VecDeque<EventState>,
    timeline: VecDeque<Entry>,
    scenarios: Vec<Scenario>,
    runs: Vec<Run>,
    faults: Faults,
    /// How long an event stays in the document after it started, unless it sets its own time.
    started_for: Duration,
    speed: NonZeroU32,
}

impl World {
    pub(super) fn new(started_for: Duration, speed: NonZeroU32, scenarios: Vec<Scenario>) -> Self {
        let mut world = Self {
            // As in the published sample, the first document has the incarnation 1 and no events.
            incarnation: 1,
            vms: Vec::new(),
            events: Vec::new(),
            ended: VecDeque::new(),
            timeline: VecDeque::new(),
            scenarios: Scenario::built_in(),
            runs: Vec::new(),
            faults: Faults::default(),
            started_for,
            speed,
        };
        for scenario in scenarios {
            world.add_scenario(scenario);
        }
        world
    }

    /// Returns the document for a version that contains everything.
    pub(super) fn document(&self) -> Document {
        Document {
            document_incarnation: self.incarnation.into(),
            events: self.events.iter().map(|planned| planned.event.clone()).collect(),
        }
    }

    /// Returns the whole state. The VMs have no URL yet, because the world does not know the mock's
    /// address.
    pub(super) fn state(&self, now: Moment) -> State {
        let standing = self.events.iter().map(Planned::state);
        State {
            document: self.document(),
            vms: self.vms.iter().map(Vm::state).collect(),
            events: standing.chain(self.ended.iter().cloned()).collect(),
            timeline: self.timeline.iter().cloned().collect(),
            running: self.runs.iter().filter_map(Run::state).collect(),
            faults: self.faults.list(now),
            speed: self.speed,
        }
    }

    /// Restarts the document incarnation at 1, as the service does when it is restarted. Events
    /// stay active.
    pub(super) fn restart(&mut self, now: Moment) {
        self.incarnation = 1;
        self.note(Entry::new(now, What::Restarted));
    }

    /// Sets the factor over real time for everything that is announced from now on.
    pub(super) fn set_speed(&mut self, speed: NonZeroU32) {
        self.speed = speed;
    }

    /// Adds a fault after the active ones. Returns its number.
    pub(super) fn add_fault(&mut self, rule: &FaultRule, now: Moment) -> Result<u64, Refusal> {
        let vm = rule.vm.as_ref().map(|vm| self.known(vm)).transpose()?;
        let fault = match rule.fault()? {
            Fault::Late(after) => Fault::Late(self.sped_up(after)),
            other => other,
        };
        let until = rule.lasts.map(|lasts| now.after(self.sped_up(lasts.0)));
        let (version, requests) = (rule.version()?, rule.requests);
        let what = NewFault { endpoint: rule.endpoint, fault, vm: vm.clone(), version, requests, until };
        let note = format!("{} for {}", rule.kind, rule.endpoint);
        self.note(Entry { vms: vm.into_iter().collect(), note, ..Entry::new(now, What::FaultAdded) });
        Ok(self.faults.add(what))
    }

    /// Adds a fault for all VMs without a rule; see [`add_fault`](Self::add_fault).
    pub(super) fn inject(&mut self, endpoint: Endpoint, fault: Fault, requests: u64) {
        self.faults.add(NewFault {
            endpoint,
            fault,
            vm: None,
            version: None,
            requests: Some(requests),
            until: None,
        });
    }

    pub(super) const fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Returns the length of `span` at the mock's speed.
    fn sped_up(&self, span: Duration) -> Duration {
        span.min(SPAN_MAX) / self.speed.get()
    }

    fn vm_names<'a>(&'a self, target: Option<&'a str>) -> VmNames<'a> {
        VmNames { all: self.vms.iter().map(|vm| vm.name.as_str()).collect(), target }
    }

    fn note(&mut self, entry: Entry) {
        if self.timeline.len() == TIMELINE_MAX {
            self.timeline.pop_front();
        }
        self.timeline.push_back(entry);
    }
}

/// Returns whether the event is a recommendation, which never begins and is never approved.
fn is_advice(event_type: &EventType) -> bool {
    *event_type == EventType::SpotRebalanceRecommendation
}

impl Entry {
    fn new(now: Moment, what: What) -> Self {
        Self {
            at_unix_ms: now.unix_ms(),
            what,
            event_id: None,
            event_type: None,
            vms: Vec::new(),
            note: String::new(),
        }
    }
}

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod tests;
