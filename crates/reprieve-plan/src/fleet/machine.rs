//! The state of a machine, and of its slots.

use crate::vm_state::VmState;

/// What pays for a machine, and which queue it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A Spot machine of the fleet.
    Spot,
    /// A regular machine of the fleet.
    Regular,
    /// A regular machine for jobs that moved.
    Swap,
}

/// What a machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It does not run.
    Away,
    Booting,
    Working,
    /// It has a notice, and takes no jobs.
    Leaving {
        gone_ms: u64,
    },
}

/// What a slot of a machine does, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    Idle { since_ms: u64 },
    Busy { since_ms: u64, restore_ms: u64, job: usize },
}

/// A machine. It keeps its place in the fleet when it is replaced.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) role: Role,
    pub(super) state: VmState,
    pub(super) phase: Phase,
    /// Counts allocations and notices, so that events of the time before are known as such.
    pub(super) epoch: u32,
    /// How often it was asked for, and started.
    pub(super) requests: u32,
    pub(super) starts: u32,
    /// Whether the eviction of its last start is announced.
    pub(super) is_announced: bool,
    pub(super) allocated_ms: u64,
    /// Since when it has disks.
    pub(super) disks_since_ms: Option<u64>,
    /// Until when Azure tries to restore it.
    pub(super) restores_until_ms: u64,
    pub(super) evicted_for_price: bool,
    /// Since when it takes jobs.
    pub(super) working_since_ms: u64,
    pub(super) asked: Asked,
    pub(super) slots: Vec<Slot>,
}

/// What became of the last request for a machine that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Not,
    /// It is scheduled; kept for machines for moved jobs.
    Scheduled,
    /// The market did not give it.
    Refused,
}

impl Machine {
    pub(super) fn new(role: Role, slots: u32) -> Self {
        Self {
            role,
            state: VmState::None,
            phase: Phase::Away,
            epoch: 0,
            requests: 0,
            starts: 0,
            is_announced: false,
            allocated_ms: 0,
            disks_since_ms: None,
            restores_until_ms: 0,
            evicted_for_price: false,
            working_since_ms: 0,
            asked: Asked::Not,
            slots: (0..slots).map(|_| Slot::Idle { since_ms: 0 }).collect(),
        }
    }

    /// Whether it can be evicted: it is a Spot machine that runs, and has no notice yet.
    pub(super) fn is_exposed(&self) -> bool {
        self.role == Role::Spot && matches!(self.phase, Phase::Booting | Phase::Working)
    }

    /// Whether it works, and has had no job since `since_ms`.
    pub(super) fn is_idle_since(&self, since_ms: u64) -> bool {
        let idle = |slot: &Slot| matches!(slot, Slot::Idle { since_ms: from_ms } if *from_ms <= since_ms);
        self.phase == Phase::Working && self.slots.iter().all(idle)
    }
}
