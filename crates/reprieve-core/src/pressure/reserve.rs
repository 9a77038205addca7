//! Decides whether one more job may begin, by the memory that would be left.

use super::Pool;

/// What a worker does under pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnPressure {
    /// Saves the running jobs once, and takes no new work; without a running job it takes one at a time.
    #[default]
    Save,
    /// Only shows it.
    Show,
}

/// The memory that no job may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryReserve {
    /// So many bytes.
    Bytes(u64),
    /// So many percent of the machine's memory, and of each cgroup's limit.
    Percent(u8),
}

impl MemoryReserve {
    const fn of(self, total_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => total_bytes / 100 * percent as u64,
        }
    }
}

/// The memory of the jobs of a worker, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct JobMemory {
    /// What all that run are expected to take at most.
    pub(crate) running: u64,
    /// What the process has taken for them so far. Some of it may be free again, but still be the process'.
    pub(crate) taken: u64,
    /// What one more job is expected to take.
    pub(crate) next: u64,
}

/// Returns the pool in which one more job would leave less than the reserve, if there is one.
///
/// Jobs that have begun a moment ago have not taken their memory yet, so that what they are expected to take counts
/// beside what is used now.
pub(crate) fn shortage(pools: &[Pool], reserve: MemoryReserve, jobs: JobMemory) -> Option<&Pool> {
    let expected = jobs.running.saturating_add(jobs.next);
    let to_come = expected - expected.min(jobs.taken);
    pools.iter().find(|pool| pool.available_bytes < reserve.of(pool.total_bytes).saturating_add(to_come))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_begins_while_its_memory_and_that_to_come_leave_the_reserve() {
        // Of 1000, in percent or in bytes 100 are the reserve.
        let table = [
            ("an empty machine", 950, (0, 0, 300), true),
            ("as much as there is", 400, (0, 0, 300), true),
            ("one more", 399, (0, 0, 300), false),
            ("two that have just begun", 950, (600, 0, 300), false),
            ("two that have what they take", 350, (600, 600, 300), false),
            ("one that has what it takes", 650, (300, 300, 300), true),
            ("one of an unknown size", 100, (0, 0, 0), true),
            ("one of an unknown size, too late", 99, (0, 0, 0), false),
            ("what jobs gave back to the process", 100, (300, 600, 300), true),
            ("more than was expected", 99, (300, 900, 300), false),
        ];
        for (name, available, (running, taken, next), may_begin) in table {
            for reserve in [MemoryReserve::Percent(10), MemoryReserve::Bytes(100)] {
                let pools = [Pool::new("large", 1 << 40, 1 << 10), Pool::new("m", available, 1_000)];
                let short = shortage(&pools, reserve, JobMemory { running, taken, next });
                assert_eq!(short.is_none(), may_begin, "{name}: {short:?}");
            }
        }
        assert_eq!(shortage(&[], MemoryReserve::Percent(10), JobMemory::default()), None, "nothing is known");
    }
}
