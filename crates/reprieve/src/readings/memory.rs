//! The memory that is available: of the machine, and of the cgroups that this process is in.

use std::path::Path;

use reprieve_core::pressure::Pool;

use super::{number, text};

/// The machine's memory, and that of each cgroup with a limit, from this process' own up to the root.
pub(super) fn pools(root: &Path) -> Vec<Pool> {
    let machine = text(root, "proc/meminfo").and_then(|meminfo| of_machine(&meminfo));
    let most = machine.as_ref().map_or(u64::MAX, |pool| pool.total_bytes);
    let groups = text(root, "proc/self/cgroup").unwrap_or_default();
    // A limit above the machine's memory is none; version 1 writes a huge one for it.
    let of_groups = groups.lines().flat_map(|line| of_group(root, line));
    machine.into_iter().chain(of_groups.filter(|pool| pool.total_bytes < most)).collect()
}

/// The bytes of memory that this process uses.
pub(super) fn own_bytes(root: &Path) -> Option<u64> {
    field(&text(root, "proc/self/status")?, "VmRSS:").map(|kib| kib * 1_024)
}

/// <https://man7.org/linux/man-pages/man5/proc_meminfo.5.html>
fn of_machine(meminfo: &str) -> Option<Pool> {
    let bytes = |name| field(meminfo, name).map(|kib| kib * 1_024);
    Some(Pool::new("the machine", bytes("MemAvailable:")?, bytes("MemTotal:")?))
}

/// The memory of the cgroup in a line of `/proc/self/cgroup`, and of those above it: `4:memory:/a/b` in version 1,
/// `0::/a/b` in version 2. A container may see its own only, at the root.
/// <https://man7.org/linux/man-pages/man7/cgroups.7.html>
fn of_group(root: &Path, line: &str) -> Vec<Pool> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let is_first = controllers.split(',').any(|controller| controller == "memory");
    if !is_first && !controllers.is_empty() {
        return Vec::new();
    }
    let mount = if is_first { "sys/fs/cgroup/memory" } else { "sys/fs/cgroup" };
    let read = if is_first { first } else { second };
    let of_path = |path: &Path| {
        let group = path.to_string_lossy();
        let directory = format!("{mount}{}", group.trim_end_matches('/'));
        read(root, &directory)
            .map(|(available, limit)| Pool::new(format!("the cgroup {group}"), available, limit))
    };
    Path::new(path).ancestors().filter_map(of_path).collect()
}

/// Version 1. `total_` counts the cgroups below, as the usage does.
/// <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>
fn first(root: &Path, directory: &str) -> Option<(u64, u64)> {
    let limit = number(root, &format!("{directory}/memory.limit_in_bytes"))?;
    let used = number(root, &format!("{directory}/memory.usage_in_bytes"))?;
    let stat = text(root, &format!("{directory}/memory.stat")).unwrap_or_default();
    let reclaimable = reclaimable(&stat, ["total_inactive_file", "total_active_file"]);
    Some((limit.saturating_sub(used.saturating_sub(reclaimable)), limit))
}

/// Version 2. Without a limit, `memory.max` is `max`.
/// <https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files>
fn second(root: &Path, directory: &str) -> Option<(u64, u64)> {
    let limit = number(root, &format!("{directory}/memory.max"))?;
    let used = number(root, &format!("{directory}/memory.current"))?;
    let stat = text(root, &format!("{directory}/memory.stat")).unwrap_or_default();
    let reclaimable = reclaimable(&stat, ["inactive_file", "active_file"]);
    Some((limit.saturating_sub(used.saturating_sub(reclaimable)), limit))
}

/// The bytes that the kernel can take back from what is cached of files: those on the two lists of such pages. Those that
/// are not on the disk yet are among them: whoever wants the memory waits for the disk, and is not killed. That is what `MemAvailable` counts for the machine, less a part for
/// its low watermark, which a cgroup has not. Pages of shared memory and `tmpfs` are on the lists of anonymous memory,
/// and locked ones on that of unevictable memory, so that neither counts.
/// <https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files>,
/// <https://git.kernel.org/torvalds/c/34e431b0ae398fc54ea69ff85ec700722c9da773>
fn reclaimable(stat: &str, lists: [&str; 2]) -> u64 {
    lists.into_iter().filter_map(|name| field(stat, name)).fold(0, u64::saturating_add)
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == name).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str =
        "MemTotal:       24684084 kB\nMemFree:         4893776 kB\nMemAvailable:   23609868 kB\n";

    /// A root directory with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn found(files: &[(&str, &str)]) -> Vec<(String, u64, u64)> {
        let pools = pools(root(files).path());
        pools.into_iter().map(|pool| (pool.name, pool.available_bytes, pool.total_bytes)).collect()
    }

    #[test]
    fn the_machine_s_memory_is_what_can_be_had_without_swapping() {
        let machine = ("the machine".to_owned(), 23_609_868 * 1_024, 24_684_084 * 1_024);
        assert_eq!(found(&[("proc/meminfo", MEMINFO)]), [machine]);
        assert_eq!(found(&[("proc/meminfo", "MemTotal: 5 kB\n")]), []);
        assert_eq!(found(&[]), []);
    }

    #[test]
    fn a_cgroup_of_version_1_counts_with_those_above_it() {
        let group = "sys/fs/cgroup/memory/a/b";
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n0::/\n"),
            (&format!("{group}/memory.limit_in_bytes"), "209715200\n"),
            (&format!("{group}/memory.usage_in_bytes"), "150000000\n"),
            (
                &format!("{group}/memory.stat"),
                "inactive_file 7\nactive_file 8\ntotal_cache 90000000\ntotal_shmem 9000000\ntotal_inactive_file \
                 20000000\ntotal_active_file 34000000\ntotal_unevictable 5000000\ntotal_dirty \
                 3000000\ntotal_writeback 1000000\n",
            ),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300000000\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "290000000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n"),
        ];
        let expected = [
            ("the cgroup /a/b".to_owned(), 113_715_200, 209_715_200),
            ("the cgroup /a".to_owned(), 10_000_000, 300_000_000),
        ];
        assert_eq!(found(&files)[1..], expected);
    }

    #[test]
    fn a_cgroup_of_version_2_counts_where_it_has_a_limit() {
        let group = "sys/fs/cgroup/system.slice/worker.service";
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/system.slice/worker.service\n"),
            (&format!("{group}/memory.max"), "1000000\n"),
            (&format!("{group}/memory.current"), "900000\n"),
            (
                &format!("{group}/memory.stat"),
                "anon 1\nfile 700000\nshmem 200000\nfile_dirty 40000\nfile_writeback 10000\ninactive_file \
                 50000\nactive_file 300000\nunevictable 100000\n",
            ),
            ("sys/fs/cgroup/system.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/memory.current", "900000\n"),
        ];
        let expected = ("the cgroup /system.slice/worker.service".to_owned(), 450_000, 1_000_000);
        assert_eq!(found(&files)[1..], [expected]);
    }

    #[test]
    fn a_cgroup_full_of_a_file_that_is_read_often_has_its_memory() {
        let group = "sys/fs/cgroup/memory/cache";
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "4:memory:/cache\n"),
            (&format!("{group}/memory.limit_in_bytes"), "419430400\n"),
            (&format!("{group}/memory.usage_in_bytes"), "411041792\n"),
            (
                &format!("{group}/memory.stat"),
                "total_rss 3145728\ntotal_inactive_file 1048576\ntotal_active_file 403701760\n",
            ),
        ];
        let available = 419_430_400 - 411_041_792 + 1_048_576 + 403_701_760;
        assert_eq!(found(&files)[1..], [("the cgroup /cache".to_owned(), available, 419_430_400)]);
    }

    #[test]
    fn a_container_s_own_cgroup_is_at_the_root() {
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/../pod7/c1\n"),
            ("sys/fs/cgroup/memory.max", "1000000\n"),
            ("sys/fs/cgroup/memory.current", "1500000\n"),
        ];
        assert_eq!(found(&files)[1..], [("the cgroup /".to_owned(), 0, 1_000_000)]);
    }
}
