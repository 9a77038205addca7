//! The mock's state and the selection of its events; the same in the library and over HTTP.

use std::num::NonZeroU32;

use reprieve_azure::scheduled_events::document::Document;
use serde::{Deserialize, Serialize};

use super::faults::FaultState;

/// An announced eviction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// The event's id.
    pub event_id: String,
    /// The VM, as its name is spelled in the set.
    pub vm: String,
    /// Its start time, as written in the event.
    pub not_before: String,
}

/// Selects events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// All events of the VM of this name.
    Vm(String),
    /// The event with this id.
    EventId(String),
}

/// The mock's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The document in the newest version, the same for every VM.
    pub document: Document,
    /// The VMs; the first answers requests without a prefix.
    pub vms: Vec<VmState>,
    /// The active events in the document's order, followed by the last hundred events that have
    /// ended.
    pub events: Vec<EventState>,
    /// The log, oldest first: the last 500 entries.
    pub timeline: Vec<Entry>,
    /// The running scenarios.
    pub running: Vec<Running>,
    /// The active faults.
    pub faults: Vec<FaultState>,
    /// The factor over real time for everything that is announced now.
    pub speed: NonZeroU32,
}

/// One VM of a mock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmState {
    /// Its name, as in `Resources`.
    pub name: String,
    /// Its id, unique and never reused.
    pub vm_id: String,
    /// The path after the mock's address for requests of this VM.
    pub path: String,
    /// The base URL for requests of this VM.
    pub url: String,
    /// The number of its requests for events.
    pub polls: u64,
    /// The time of the last one.
    pub last_poll_unix_ms: Option<i64>,
}

/// One event of the mock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventState {
    /// Its id.
    pub event_id: String,
    /// Its type, as in the document.
    pub event_type: String,
    /// Its status.
    pub status: Status,
    /// The affected VMs.
    pub vms: Vec<String>,
    /// `Platform` or `User`.
    pub source: String,
    /// A description for people.
    pub description: String,
    /// The time of its announcement.
    pub announced_at_unix_ms: i64,
    /// When it will begin as scheduled now, or when it began; `None` for a recommendation, which
    /// never begins, and for a withdrawn event.
    pub starts_at_unix_ms: Option<i64>,
    /// When it will leave the document, or left it; `None` before it has begun.
    pub ends_at_unix_ms: Option<i64>,
    /// Its approvals, in order. A second approval of the same VM is not counted.
    pub approvals: Vec<Approval>,
}

/// The status of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In the document, and due to begin.
    Scheduled,
    /// In the document, and begun.
    Started,
    /// Ended after it had begun.
    Completed,
    /// Ended without having begun.
    Withdrawn,
}

/// An approval of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The VM that approved, by the address of its request. The event need not name it.
    pub vm: String,
    /// The time.
    pub at_unix_ms: i64,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time.
    pub at_unix_ms: i64,
    /// The kind of the entry.
    pub what: What,
    /// The event that the entry is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The event's type, as in the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The VMs: those of the event, the one that approved it, or the one that was added or removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<String>,
    /// Details: the scenario, the fault, or why a step failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The kind of a log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// An event was announced.
    Announced,
    /// A VM approved an event.
    Approved,
    /// An event began.
    Started,
    /// An event ended after it had begun.
    Completed,
    /// An event ended without having begun.
    Withdrawn,
    /// A VM was added.
    VmAdded,
    /// A VM was removed.
    VmGone,
    /// A scenario began.
    ScenarioBegan,
    /// A step of a scenario failed.
    StepFailed,
    /// A fault was added.
    FaultAdded,
    /// The document incarnation restarted at 1.
    Restarted,
}

/// A running scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The scenario's name.
    pub scenario: String,
    /// The VM for which it runs.
    pub target: String,
    /// The number of its remaining steps.
    pub steps_left: usize,
    /// The time of the next step.
    pub next_step_unix_ms: i64,
}

/// A scenario that the mock can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioState {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
}
