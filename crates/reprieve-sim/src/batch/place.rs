//! A place of the fleet, and the machine that has it.

use super::process::Process;

/// What pays for a machine, and which queue it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Spot,
    Regular,
    /// A regular machine for jobs that moved.
    Swap,
}

/// A place of the fleet.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) role: Role,
    /// How often it was asked for, and started.
    pub(super) requests: u32,
    pub(super) starts: u32,
    /// Whether it is deallocated, and until when Azure tries to restore it.
    pub(super) is_stopped: bool,
    pub(super) restores_until_ms: u64,
    pub(super) evicted_for_price: bool,
    /// When a machine for moved jobs was asked for that is not there yet.
    pub(super) asked_ms: Option<u64>,
    pub(super) vm: Option<Vm>,
}

/// A machine that runs, or boots.
#[derive(Debug)]
pub(super) struct Vm {
    /// The number of this start.
    pub(super) start: u32,
    pub(super) allocated_ms: u64,
    pub(super) is_announced: bool,
    pub(super) works_since_ms: Option<u64>,
    /// When it is gone; `None` without a notice.
    pub(super) gone_ms: Option<u64>,
    pub(super) process: Option<Process>,
}

impl Place {
    pub(super) const fn new(role: Role) -> Self {
        Self {
            role,
            requests: 0,
            starts: 0,
            is_stopped: false,
            restores_until_ms: 0,
            evicted_for_price: false,
            asked_ms: None,
            vm: None,
        }
    }

    /// Gives it a machine, which boots.
    pub(super) fn allocate(&mut self, now_ms: u64, is_announced: bool) {
        self.vm = Some(Vm {
            start: self.starts,
            allocated_ms: now_ms,
            is_announced,
            works_since_ms: None,
            gone_ms: None,
            process: None,
        });
        self.starts += 1;
        (self.is_stopped, self.asked_ms) = (false, None);
    }
}

impl Vm {
    /// For how long it has taken jobs.
    pub(super) fn works_for(&self, now_ms: u64) -> Option<u64> {
        self.works_since_ms.map(|since_ms| now_ms - since_ms)
    }
}
