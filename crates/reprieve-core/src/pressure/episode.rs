//! Decides from the readings which causes of pressure hold.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{ActivePressure, Cause, Pool, Readings};
use crate::clock::unix_millis;

/// The shortest time for which a cause holds: about as long as other workers need to take over the work that
/// this one leaves.
pub const LASTS_AT_LEAST: Duration = Duration::from_secs(30);

/// How long after the last I/O error that cause ends.
pub const IO_ERRORS_QUIET: Duration = Duration::from_mins(1);

const MIB: u64 = 1 << 20;

/// When a pool is low, and when it is so no more. A share of it, but no more than so many bytes: 5 % of a
/// large machine's memory is plenty.
#[derive(Debug, Clone, Copy)]
struct Threshold {
    begin: (u64, u64),
    end: (u64, u64),
}

/// An `available` of 5 % means that the kernel has reclaimed nearly all caches, and soon begins to kill.
const MEMORY: Threshold = Threshold { begin: (5, 512 * MIB), end: (10, 1_024 * MIB) };

/// A store needs space for its log beside that for its jobs' states.
const DISK: Threshold = Threshold { begin: (5, 1_024 * MIB), end: (10, 2_048 * MIB) };

impl Threshold {
    /// Returns the pool that is low, if one is. One that is low already must have more to be so no more.
    fn low<'a>(&self, pools: &'a [Pool], is_active: bool) -> Option<&'a Pool> {
        let (percent, most) = if is_active { self.end } else { self.begin };
        let is_low = |pool: &&Pool| pool.available_bytes < (pool.total_bytes / 100 * percent).min(most);
        pools.iter().filter(is_low).min_by_key(|pool| pool.available_bytes)
    }
}

/// The causes that hold now.
#[derive(Debug, Default)]
pub(crate) struct Episode {
    active: BTreeMap<Cause, Active>,
    io_errors: u64,
    io_error_at: Option<Instant>,
}

#[derive(Debug)]
struct Active {
    since: Instant,
    since_unix_ms: i64,
    why: String,
}

/// A change of what holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// This cause holds now. `is_first`: none did before, so an episode begins.
    Begins { cause: Cause, why: String, is_first: bool },
    /// This cause holds no more. `is_last`: none does, so the episode ends.
    Ends { cause: Cause, is_last: bool },
}

impl Episode {
    /// Whether any cause holds.
    pub(crate) fn is_on(&self) -> bool {
        !self.active.is_empty()
    }

    /// The causes that hold, for reports.
    pub(crate) fn shown(&self) -> Vec<ActivePressure> {
        let shown = |(cause, active): (&Cause, &Active)| ActivePressure {
            cause: cause.as_str().to_owned(),
            why: active.why.clone(),
            since_unix_ms: active.since_unix_ms,
        };
        self.active.iter().map(shown).collect()
    }

    /// Takes a look at the machine, and returns what changes.
    pub(crate) fn look(&mut self, readings: &Readings, now: Instant) -> Vec<Turn> {
        // They are counted from the worker's start on. A count that falls begins anew.
        if readings.io_errors > std::mem::replace(&mut self.io_errors, readings.io_errors) {
            self.io_error_at = Some(now);
        }
        Cause::ALL
            .into_iter()
            .filter_map(|cause| self.turn(cause, self.why(cause, readings, now), now))
            .collect()
    }

    /// Returns why the cause holds; `None` if it does not.
    fn why(&self, cause: Cause, readings: &Readings, now: Instant) -> Option<String> {
        let is_active = self.active.contains_key(&cause);
        let low = |pool: &Pool, what| {
            let Pool { name, available_bytes, total_bytes } = pool;
            format!("{} MiB of {} MiB {what} {name} are left", available_bytes / MIB, total_bytes / MIB)
        };
        match cause {
            Cause::Memory => MEMORY.low(&readings.memory, is_active).map(|pool| low(pool, "of memory of")),
            Cause::Disk => DISK.low(&readings.disks, is_active).map(|pool| low(pool, "on the disk of")),
            Cause::IoErrors => {
                let is_recent = self.io_error_at.is_some_and(|at| now - at < IO_ERRORS_QUIET);
                let last = || readings.last_io_error.clone().unwrap_or_else(|| "an I/O error".to_owned());
                is_recent.then(last)
            }
        }
    }

    fn turn(&mut self, cause: Cause, why: Option<String>, now: Instant) -> Option<Turn> {
        match (why, self.active.get(&cause)) {
            (Some(why), None) => {
                let is_first = self.active.is_empty();
                let active = Active { since: now, since_unix_ms: unix_millis(), why: why.clone() };
                self.active.insert(cause, active);
                Some(Turn::Begins { cause, why, is_first })
            }
            (None, Some(active)) if now - active.since >= LASTS_AT_LEAST => {
                self.active.remove(&cause);
                Some(Turn::Ends { cause, is_last: self.active.is_empty() })
            }
            (Some(_) | None, Some(_)) | (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1_024 * MIB;

    fn memory(available_mib: u64, total: u64) -> Readings {
        Readings { memory: vec![Pool::new("m", available_mib * MIB, total)], ..Readings::default() }
    }

    fn disk(free_mib: u64, total: u64) -> Readings {
        Readings { disks: vec![Pool::new("d", free_mib * MIB, total)], ..Readings::default() }
    }

    fn io_errors(count: u64) -> Readings {
        Readings { io_errors: count, ..Readings::default() }
    }

    /// Looks, by their seconds.
    type Looks = Vec<(u64, Readings)>;
    type Turns = Vec<(i64, Cause)>;

    /// Looks at the readings at these seconds, and returns at which seconds pressure begins (positive) and ends
    /// (negative).
    fn turns(looks: &[(u64, Readings)]) -> Turns {
        let (mut episode, began) = (Episode::default(), Instant::now());
        let mut turns = Vec::new();
        for (second, readings) in looks {
            for turn in episode.look(readings, began + Duration::from_secs(*second)) {
                let second = i64::try_from(*second).unwrap();
                turns.push(match turn {
                    Turn::Begins { cause, .. } => (second, cause),
                    Turn::Ends { cause, .. } => (-second, cause),
                });
            }
        }
        turns
    }

    #[test]
    fn each_cause_has_one_threshold_to_begin_and_another_to_end() {
        let (m, d, io) = (Cause::Memory, Cause::Disk, Cause::IoErrors);
        let table: [(&str, Looks, Turns); 11] = [
            ("nothing is read", vec![(1, Readings::default())], vec![]),
            ("5 % of a small machine is enough", vec![(1, memory(205, 4 * GIB))], vec![]),
            ("less is low", vec![(1, memory(204, 4 * GIB))], vec![(1, m)]),
            ("2 % of a large one is plenty", vec![(1, memory(1_300, 64 * GIB))], vec![]),
            ("half a gibibyte of it is low", vec![(1, memory(511, 64 * GIB))], vec![(1, m)]),
            (
                "between the two it stays as it is",
                vec![(1, memory(300, 4 * GIB)), (2, memory(100, 4 * GIB)), (40, memory(300, 4 * GIB))],
                vec![(2, m)],
            ),
            (
                "above the upper it ends, after half a minute",
                vec![(1, memory(100, 4 * GIB)), (30, memory(3_000, 4 * GIB)), (31, memory(3_000, 4 * GIB))],
                vec![(1, m), (-31, m)],
            ),
            ("a disk with a gibibyte", vec![(1, disk(1_025, 100 * GIB))], vec![]),
            (
                "a disk that is filled and emptied",
                vec![(1, disk(1_000, 100 * GIB)), (40, disk(1_900, 100 * GIB)), (50, disk(2_100, 100 * GIB))],
                vec![(1, d), (-50, d)],
            ),
            (
                "another error prolongs it",
                vec![
                    (1, io_errors(0)),
                    (2, io_errors(1)),
                    (50, io_errors(2)),
                    (100, io_errors(2)),
                    (110, io_errors(2)),
                ],
                vec![(2, io), (-110, io)],
            ),
            ("a count that falls is none", vec![(1, io_errors(0)), (2, io_errors(0))], vec![]),
        ];
        for (name, looks, expected) in table {
            assert_eq!(turns(&looks), expected, "{name}");
        }
    }

    #[test]
    fn the_tightest_of_machine_and_cgroup_counts() {
        let pools = [Pool::new("the machine", 8 * GIB, 16 * GIB), Pool::new("the cgroup /a", 10 * MIB, GIB)];
        let readings = Readings { memory: pools.into(), ..Readings::default() };
        let turns = Episode::default().look(&readings, Instant::now());
        let why = "10 MiB of 1024 MiB of memory of the cgroup /a are left".to_owned();
        assert_eq!(turns, [Turn::Begins { cause: Cause::Memory, why, is_first: true }]);
    }

    #[test]
    fn a_busy_machine_is_under_no_pressure() {
        let shown = super::super::Shown {
            io_stall_percent: Some(99),
            steal_percent: Some(80),
            memory_errors_corrected: Some(1_000),
            memory_errors_uncorrected: Some(3),
            clock_behind_ms: Some(90_000),
        };
        let readings = Readings { shown, ..memory(8_000, 16 * GIB) };
        let looks: Vec<_> = (0..600).map(|second| (second, readings.clone())).collect();
        assert_eq!(turns(&looks), []);
    }

    #[test]
    fn an_episode_lasts_from_the_first_cause_to_the_last() {
        let (mut episode, began) = (Episode::default(), Instant::now());
        let mut look = |second, readings: &Readings| {
            let turns = episode.look(readings, began + Duration::from_secs(second));
            turns
                .into_iter()
                .map(|turn| match turn {
                    Turn::Begins { is_first, .. } => is_first,
                    Turn::Ends { is_last, .. } => is_last,
                })
                .collect::<Vec<_>>()
        };
        let both = Readings { disks: disk(1, GIB).disks, ..memory(1, GIB) };
        assert_eq!(look(0, &memory(1, GIB)), [true]);
        assert_eq!(look(10, &both), [false]);
        assert_eq!(look(40, &disk(1, GIB)), [false]);
        assert_eq!(look(60, &Readings::default()), [true]);
    }
}
