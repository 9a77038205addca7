//! What the mock says of itself, and how its events are named to it; the same in the library and over HTTP.

use std::num::NonZeroU32;

use reprieve_azure::scheduled_events::document::Document;
use serde::{Deserialize, Serialize};

/// An eviction that was announced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// Its id.
    pub event_id: String,
    /// The VM, as it is spelled.
    pub vm: String,
    /// When it will start, as written in the event.
    pub not_before: String,
}

/// Which events are meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// Those of the VM of this name.
    Vm(String),
    /// The one with this id.
    EventId(String),
}

/// All there is to know of a mock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What every VM is told that asks in the newest version.
    pub document: Document,
    /// The VMs; the first is the one that is meant without a prefix.
    pub vms: Vec<VmState>,
    /// The events that stand, in the document's order, and after them the last hundred that are over.
    pub events: Vec<EventState>,
    /// What happened, oldest first: the last 500 entries.
    pub timeline: Vec<Entry>,
    /// The scenarios under way.
    pub running: Vec<Running>,
    /// The faults that stand.
    pub faults: Vec<FaultState>,
    /// How many times faster than in life everything goes that is announced now.
    pub speed: NonZeroU32,
}

/// One VM of a mock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmState {
    /// Its name, as in `Resources`.
    pub name: String,
    /// Its id, which no other VM ever has.
    pub vm_id: String,
    /// What to put after the mock's address to ask as this VM.
    pub path: String,
    /// The base URL to ask as this VM.
    pub url: String,
    /// How often it has asked for events.
    pub polls: u64,
    /// When it last did.
    pub last_poll_unix_ms: Option<i64>,
}

/// One event, as the mock knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventState {
    /// Its id.
    pub event_id: String,
    /// What it is, as in the document.
    pub event_type: String,
    /// How far it has got.
    pub status: Status,
    /// The VMs it names.
    pub vms: Vec<String>,
    /// `Platform` or `User`.
    pub source: String,
    /// Words for people.
    pub description: String,
    /// When it was announced.
    pub announced_at_unix_ms: i64,
    /// When it will begin as things are now, or began; `None` for an advice, which never does, and for one withdrawn.
    pub starts_at_unix_ms: Option<i64>,
    /// When it will be told no more, or was the last time; `None` while it is still to begin.
    pub ends_at_unix_ms: Option<i64>,
    /// Who has approved it, in order. A VM that does so again is not counted twice.
    pub approvals: Vec<Approval>,
}

/// How far an event has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is told, and is to begin.
    Scheduled,
    /// It is told, and has begun.
    Started,
    /// It began and is over.
    Completed,
    /// It is over without having begun.
    Withdrawn,
}

/// An approval of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The VM whose address was used. The event need not name it.
    pub vm: String,
    /// When.
    pub at_unix_ms: i64,
}

/// A line of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at_unix_ms: i64,
    /// What.
    pub what: What,
    /// The event, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// What that is, as in the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The VMs: those the event names, the one that approved it, the one that came or went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<String>,
    /// What more there is to say: the scenario, the fault, or why a step failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What a line of the timeline is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// An event was announced.
    Announced,
    /// A VM approved it.
    Approved,
    /// It began.
    Started,
    /// It began and is over.
    Completed,
    /// It is over without having begun.
    Withdrawn,
    /// A VM came.
    VmAdded,
    /// A VM went.
    VmGone,
    /// A scenario began.
    ScenarioBegan,
    /// A step of a scenario could not be done.
    StepFailed,
    /// Requests will go wrong.
    FaultAdded,
    /// The incarnation began again at 1.
    Restarted,
}

/// A scenario under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Which.
    pub scenario: String,
    /// The VM it is about.
    pub target: String,
    /// How many of its steps are still to come.
    pub steps_left: usize,
    /// When the next is.
    pub next_step_unix_ms: i64,
}

/// A fault that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultState {
    /// Its number.
    pub id: u64,
    /// What requests it befalls.
    pub endpoint: super::Endpoint,
    /// What happens to them, as in a rule.
    pub kind: String,
    /// Whose; `None` for everybody's.
    pub vm: Option<String>,
    /// How many more; `None` for all.
    pub requests_left: Option<u64>,
    /// Until when; `None` for as long as it lasts otherwise.
    pub until_unix_ms: Option<i64>,
    /// How many it has befallen.
    pub befell: u64,
}

/// A scenario that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioState {
    /// Its name.
    pub name: String,
    /// What happens in it.
    pub description: String,
}
