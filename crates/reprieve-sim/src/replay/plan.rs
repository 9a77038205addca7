//! What a replay does to its fleet, and which jobs it has.

use std::time::Duration;

use super::jobs::{Habit, March};
use super::trace::Trace;

/// A replay: a recorded fleet, with every fault once. Times are minutes since the beginning of the record, and fit
/// the machines of their slots: each lives long enough for its fault.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The fleet.
    pub trace: Trace,
    /// The jobs.
    pub jobs: Vec<March>,
    /// When the store is away for an hour. Machines are evicted and boot meanwhile.
    pub(super) outage: u64,
    /// When, and in which slot, a worker's control loop dies.
    pub(super) hang: (u64, usize),
    /// A worker reaches no store for four minutes, and is silent.
    pub(super) silence: (u64, usize),
    /// No metadata service of this slot's machines answers for a quarter of an hour, in which the old machine is
    /// evicted and the next one boots.
    pub(super) deafness: (u64, usize),
    /// A disk takes no writes any more.
    pub(super) read_only: (u64, usize),
    /// Memory runs out for ten minutes, and elsewhere a disk.
    pub(super) low_memory: (u64, usize),
    pub(super) full_disk: (u64, usize),
}

/// How long the store is away.
pub(super) const OUTAGE: Duration = Duration::from_hours(1);

/// How long a worker is silent: its leases end.
pub(super) const SILENCE: Duration = Duration::from_mins(4);

/// How long the metadata service is away.
pub(super) const DEAFNESS: Duration = Duration::from_mins(15);

/// How long memory or disk are short.
pub(super) const PRESSURE: Duration = Duration::from_mins(10);

/// The notices of the evictions, in turn, in seconds; `None` for none.
const NOTICES: [Option<u64>; 7] = [Some(30), Some(30), None, Some(12), Some(30), None, Some(5)];

impl Plan {
    /// The replay of this fleet.
    #[must_use]
    pub fn of(trace: Trace) -> Self {
        let jobs = jobs();
        match trace {
            Trace::G4dn => Self {
                trace,
                jobs,
                outage: 290,
                hang: (225, 2),
                silence: (240, 3),
                deafness: (255, 4),
                read_only: (400, 4),
                low_memory: (380, 0),
                full_disk: (385, 1),
            },
            Trace::P3 => Self {
                trace,
                jobs,
                outage: 360,
                hang: (150, 3),
                silence: (170, 2),
                deafness: (230, 4),
                // The store is away then, so that nothing may be done about it for ten minutes.
                read_only: (410, 0),
                low_memory: (300, 2),
                full_disk: (310, 1),
            },
        }
    }

    /// When the store is away.
    pub(super) fn outage(&self) -> (Duration, Duration) {
        let from = Duration::from_mins(self.outage);
        (from, from + OUTAGE)
    }

    /// How long ahead the eviction with this number is announced.
    pub(super) fn notice(eviction: usize) -> Option<Duration> {
        NOTICES[eviction % NOTICES.len()].map(Duration::from_secs)
    }
}

/// Jobs of two to four hours, about as many as the fleet has time for, and the special ones among them.
fn jobs() -> Vec<March> {
    let march = |number: usize| {
        let kind = usize::from(number % 4 == 3);
        let habit = match number {
            3 | 7 => Habit::Hangs(20),
            10 => Habit::Fails { at: 30, times: 3 },
            11 => Habit::Fails { at: 45, times: 1 },
            13 => Habit::Panics(12),
            number if number % 3 == 2 => Habit::Plods,
            _ => Habit::Yields,
        };
        let steps = 120 + u32::try_from(number * 37 % 100).unwrap_or_default();
        March { number, kind, steps, step_s: 40 + number as u64 * 7 % 40, habit }
    };
    (0..56).map(march).collect()
}
