//! What the mock says of itself, and how its events are named to it; the same in the library and over HTTP.

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
    /// What every VM is told.
    pub document: Document,
    /// The VMs; the first is the one that is meant without a prefix.
    pub vms: Vec<VmState>,
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
    /// How often it has asked for events.
    pub polls: u64,
}
