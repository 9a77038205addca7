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

/// Returns a sentence for each amount of memory in the settings that is more than all there is: the reserve, and what one
/// job of a kind takes, by the kinds' names.
#[must_use]
pub fn too_much_memory<'a>(
    pools: &[Pool],
    reserve: Option<MemoryReserve>,
    kinds: impl IntoIterator<Item = (&'a str, u64)>,
) -> Vec<String> {
    let Some(least) = pools.iter().min_by_key(|pool| pool.total_bytes) else { return Vec::new() };
    let more = |bytes: u64| bytes > least.total_bytes;
    let shown = |bytes: u64| {
        let (has, place) = (least.total_bytes >> 20, &least.name);
        format!("{} MiB, which is more than the {has} MiB of memory of {place}", bytes >> 20)
    };
    let of_reserve = reserve.map(|reserve| reserve.of(least.total_bytes)).filter(|bytes| more(*bytes));
    let of_reserve = of_reserve.map(|bytes| {
        format!("--memory-reserve is {}: jobs run one at a time; set a smaller reserve", shown(bytes))
    });
    let of_kinds = kinds.into_iter().filter(|(_, bytes)| more(*bytes)).map(|(kind, bytes)| {
        format!(
            "memory of kind {kind:?} is {}: with --memory-reserve such a job runs alone; set what one takes",
            shown(bytes)
        )
    });
    of_reserve.into_iter().chain(of_kinds).collect()
}

/// The memory of the jobs of a worker, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct JobMemory {
    /// What all that run are expected to take at most.
    pub(crate) running: u64,
    /// The expected peak of the jobs that ran at the last look.
    pub(crate) seen: u64,
    /// By how much the process had grown at the last look. A part may be free memory that its allocator keeps.
    pub(crate) taken: u64,
    /// What one more job is expected to take.
    pub(crate) next: u64,
}

/// Returns the pool in which one more job would leave less than the reserve, if there is one.
///
/// Jobs that have begun a moment ago have not taken their memory yet, so that what they are expected to take counts
/// beside what is used now. Free memory that the allocator keeps from ended jobs is not set off for jobs that began after
/// the last look, because it may belong to threads that do not run them. Of jobs seen at the last look it is not known
/// which part of the growth is theirs, so all of it is set off, up to their expected peak.
pub(crate) fn shortage(pools: &[Pool], reserve: MemoryReserve, jobs: JobMemory) -> Option<&Pool> {
    let expected = jobs.running.saturating_add(jobs.next);
    let to_come = expected - expected.min(jobs.taken.min(jobs.seen));
    pools.iter().find(|pool| pool.available_bytes < reserve.of(pool.total_bytes).saturating_add(to_come))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_that_are_more_than_all_memory_are_named() {
        let pools = [Pool::new("the machine", 1 << 30, 8 << 30), Pool::new("the cgroup /a", 0, 400 << 20)];
        let [all, none] = [MemoryReserve::Bytes(400 << 20), MemoryReserve::Percent(90)];
        for fits in [Some(all), Some(none), None] {
            assert_eq!(too_much_memory(&pools, fits, [("a", 400 << 20), ("b", 0)]), Vec::<String>::new());
        }
        let said = too_much_memory(&pools, Some(MemoryReserve::Bytes(5 << 40)), [("a", 401 << 20), ("b", 1)]);
        let expected = [
            "--memory-reserve is 5242880 MiB, which is more than the 400 MiB of memory of the cgroup /a: jobs run one at a time; set a smaller reserve",
            "memory of kind \"a\" is 401 MiB, which is more than the 400 MiB of memory of the cgroup /a: with --memory-reserve such a job runs alone; set what one takes",
        ];
        assert_eq!(said, expected);
        assert_eq!(
            too_much_memory(&[], Some(MemoryReserve::Bytes(5 << 40)), [("a", 1 << 50)]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_job_begins_while_its_memory_and_that_to_come_leave_the_reserve() {
        // Of 1000, in percent or in bytes 100 are the reserve.
        let table = [
            ("an empty machine", 950, (0, 0, 0, 300), true),
            ("as much as there is", 400, (0, 0, 0, 300), true),
            ("one more", 399, (0, 0, 0, 300), false),
            ("two that have just begun", 950, (600, 0, 0, 300), false),
            ("two that have what they take", 350, (600, 600, 600, 300), false),
            ("one that has what it takes", 650, (300, 300, 300, 300), true),
            ("one that follows one that was seen and ended", 400, (0, 300, 300, 300), true),
            ("another that follows it", 350, (300, 300, 300, 300), false),
            ("one of an unknown size", 100, (0, 0, 0, 0), true),
            ("one of an unknown size, too late", 99, (0, 0, 0, 0), false),
            ("what an ended job left in the process", 399, (0, 0, 300, 300), false),
            ("enough beside what an ended job left", 400, (0, 0, 300, 300), true),
            ("one seen beside what an ended job left", 399, (300, 300, 600, 300), false),
            ("enough beside one seen and what is left", 400, (300, 300, 600, 300), true),
            ("one that began since beside what is left", 600, (300, 0, 300, 300), false),
            ("more than was expected", 399, (300, 300, 900, 300), false),
        ];
        for (name, available, (running, seen, taken, next), may_begin) in table {
            for reserve in [MemoryReserve::Percent(10), MemoryReserve::Bytes(100)] {
                let pools = [Pool::new("large", 1 << 40, 1 << 10), Pool::new("m", available, 1_000)];
                let short = shortage(&pools, reserve, JobMemory { running, seen, taken, next });
                assert_eq!(short.is_none(), may_begin, "{name}: {short:?}");
            }
        }
        assert_eq!(shortage(&[], MemoryReserve::Percent(10), JobMemory::default()), None, "nothing is known");
    }
}
