//! What is only shown: waits for I/O, time that the host gave to others, and errors of the memory.

use std::path::Path;

use super::{number, text};

/// Processor times since the machine's start, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    steal: u64,
    all: u64,
}

impl Times {
    /// <https://man7.org/linux/man-pages/man5/proc_stat.5.html>
    pub(super) fn read(root: &Path) -> Option<Self> {
        let stat = text(root, "proc/stat")?;
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait, irq, softirq, steal; what guests take is in the first two.
        let times: Vec<u64> = line.split_whitespace().take(8).filter_map(|it| it.parse().ok()).collect();
        Some(Self { steal: *times.get(7)?, all: times.iter().sum() })
    }

    /// The share of steal since then, in percent; `None` where no time has passed.
    pub(super) fn steal_percent_since(self, before: Self) -> Option<u32> {
        let (steal, all) = (self.steal.checked_sub(before.steal)?, self.all.checked_sub(before.all)?);
        u32::try_from((steal * 100).checked_div(all)?).ok()
    }
}

/// The share of the last ten seconds in which some task waited for I/O, in percent.
/// <https://docs.kernel.org/accounting/psi.html>
pub(super) fn io_stall_percent(root: &Path) -> Option<u32> {
    let psi = text(root, "proc/pressure/io")?;
    let some = psi.lines().find_map(|line| line.strip_prefix("some avg10="))?;
    some.split(['.', ' ']).next()?.parse().ok()
}

/// The sum of a counter of all memory controllers: `ce_count` or `ue_count`. `None` without one.
/// <https://docs.kernel.org/admin-guide/ras.html>
pub(super) fn memory_errors(root: &Path, counter: &str) -> Option<u64> {
    let directory = "sys/devices/system/edac/mc";
    let controllers = std::fs::read_dir(root.join(directory)).ok()?;
    let names = controllers.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let counts: Vec<_> =
        names.filter_map(|name| number(root, &format!("{directory}/{name}/{counter}"))).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn steal_is_a_share_of_the_time_since_the_look_before() {
        let at = |stat| Times::read(root(&[("proc/stat", stat)]).path()).unwrap();
        let before = at("cpu  5290777 197559 1041148 4268710 181452 0 22003 5598 700 0\ncpu0 1 2 3\n");
        let after = at("cpu  5290807 197559 1041148 4268750 181452 0 22003 5628 900 0\n");
        assert_eq!(after.steal_percent_since(before), Some(30));
        assert_eq!(after.steal_percent_since(after), None);
        assert_eq!(before.steal_percent_since(after), None, "a counter that fell");
        assert_eq!(Times::read(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_wait_for_io_is_shown_where_the_kernel_measures_it() {
        let psi = "some avg10=7.93 avg60=0.00 avg300=0.00 total=1\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(io_stall_percent(root(&[("proc/pressure/io", psi)]).path()), Some(7));
        assert_eq!(io_stall_percent(Path::new("/nowhere")), None);
    }

    #[test]
    fn memory_errors_are_those_of_all_controllers() {
        let mc = "sys/devices/system/edac/mc";
        let files = [(&*format!("{mc}/mc0/ce_count"), "3\n"), (&*format!("{mc}/mc1/ce_count"), "4\n")];
        let root = root(&files);
        std::fs::create_dir(root.path().join(mc).join("power")).unwrap();
        assert_eq!(memory_errors(root.path(), "ce_count"), Some(7));
        assert_eq!(memory_errors(root.path(), "ue_count"), None);
    }
}
