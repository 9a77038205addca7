//! What is stored about a machine before it is replaced: small, bounded, and without secrets.

use std::fs::{self, File};
use std::io::{self, Read as _};

use reprieve_core::ports::WorkerReport;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};

/// The most bytes of the kernel's log, of the list of mounts, and of one line of either.
const KERNEL_BYTES_MAX: usize = 32 * 1024;
const MOUNTS_MAX: usize = 100;
const LINE_BYTES_MAX: usize = 300;

/// The most bytes of the worker's own log.
const LOG_BYTES_MAX: usize = 128 * 1024;

/// The state of a machine whose replacement is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Diagnosis {
    /// The machine's boot. A repair that is asked for again in the same boot is the same repair.
    pub(super) boot: String,
    /// The machine's name.
    pub(super) vm: String,
    /// The worker that proved the fault.
    pub(super) worker: String,
    /// When, in milliseconds since the Unix epoch, by the machine's clock.
    pub(super) at_unix_ms: i64,
    /// The same by a clock that nobody sets: how many milliseconds after the machine booted.
    pub(super) since_boot_ms: Option<u64>,
    /// The fault in words, and its directory.
    pub(super) fault: String,
    pub(super) place: String,
    /// The fault went away by itself since.
    pub(super) healed: bool,
    pub(super) version: String,
    /// The worker's report in the roster.
    pub(super) report: Option<WorkerReport>,
    /// Each file system: its type, where it is mounted, and whether for reading only.
    pub(super) mounts: Vec<String>,
    /// The end of the kernel's log, where the worker may read it.
    pub(super) kernel: Vec<String>,
    /// `/proc/loadavg` and the first lines of `/proc/meminfo`.
    pub(super) machine: Vec<String>,
    /// The last lines of the worker's log, oldest first.
    pub(super) log: Vec<String>,
}

impl Default for Diagnosis {
    fn default() -> Self {
        Self {
            boot: String::new(),
            vm: String::new(),
            worker: String::new(),
            at_unix_ms: 0,
            since_boot_ms: None,
            fault: String::new(),
            place: String::new(),
            healed: false,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            report: None,
            mounts: Vec::new(),
            kernel: Vec::new(),
            machine: Vec::new(),
            log: Vec::new(),
        }
    }
}

impl Diagnosis {
    /// Adds what the system says of itself, and `log`. Blocks.
    pub(super) fn collect(mut self, log: Vec<String>) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        self.mounts = mounts(&read("/proc/self/mountinfo"));
        self.kernel = kernel(&kernel_log().unwrap_or_default());
        self.machine =
            (read("/proc/loadavg") + &read("/proc/meminfo")).lines().take(6).map(str::to_owned).collect();
        self.log = last(log, LOG_BYTES_MAX);
        self
    }
}

/// Reads the type, the place and the mode of each file system. Other options may name users and servers.
/// <https://www.kernel.org/doc/html/latest/filesystems/proc.html#proc-pid-mountinfo-information-about-mounts>
fn mounts(mountinfo: &str) -> Vec<String> {
    let read = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(4);
        let (place, options) = (mount.next()?, mount.next()?);
        let mut file_system = file_system.split(' ');
        let (kind, super_options) = (file_system.next()?, file_system.nth(1).unwrap_or_default());
        let mode = |options: &str| if options.split(',').any(|it| it == "ro") { "ro" } else { "rw" };
        let line = format!("{kind} {place} {} (file system {})", mode(options), mode(super_options));
        Some(cut(&line))
    };
    mountinfo.lines().filter_map(read).take(MOUNTS_MAX).collect()
}

/// Reads the kernel's log, as far as it goes without waiting.
fn kernel_log() -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut log = File::from(openat(CWD, "/dev/kmsg", flags, Mode::empty())?);
    // Each read returns one record, and fails when there is none.
    let (mut text, mut record) = (String::new(), [0; 8 * 1024]);
    while let Ok(bytes) = log.read(&mut record) {
        if bytes == 0 {
            break;
        }
        text += &String::from_utf8_lossy(&record[..bytes]);
    }
    Ok(text)
}

/// The last messages among the kernel's records, `<prefix>;<message>`, without what follows in indented lines.
fn kernel(records: &str) -> Vec<String> {
    let message = |line: &str| line.split_once(';').map(|(_, message)| cut(message));
    let messages = records.lines().filter(|line| !line.starts_with(' ')).filter_map(message);
    last(messages.collect(), KERNEL_BYTES_MAX)
}

/// Returns the last of these lines, of so many bytes at most.
fn last(lines: Vec<String>, bytes_max: usize) -> Vec<String> {
    let mut bytes = 0;
    let fits = |line: &&String| {
        bytes += line.len();
        bytes <= bytes_max
    };
    let count = lines.iter().rev().take_while(fits).count();
    lines.into_iter().rev().take(count).rev().collect()
}

fn cut(line: &str) -> String {
    line[..line.floor_char_boundary(LINE_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_shown_by_its_type_place_and_mode_alone() {
        let mountinfo = "36 35 98:0 / /data ro,noatime - ext4 /dev/sdb1 ro,errors=remount-ro\n\
                         41 35 0:40 / /share rw - cifs //server/share rw,username=ada,password=secret\n\
                         nonsense\n";
        let expected = ["ext4 /data ro (file system ro)", "cifs /share rw (file system rw)"];
        assert_eq!(mounts(mountinfo), expected);
    }

    #[test]
    fn the_end_of_the_kernels_log_is_kept_up_to_its_limit() {
        let records = "6,1,0,-;begin\n SUBSYSTEM=block\n".to_owned()
            + &"4,2,1,-;sda: I/O error\n".repeat(5_000)
            + "3,9,9,-;EXT4-fs: Remounting filesystem read-only\n";
        let kept = kernel(&records);
        assert_eq!(kept.last().map(String::as_str), Some("EXT4-fs: Remounting filesystem read-only"));
        assert!(kept.iter().map(String::len).sum::<usize>() <= KERNEL_BYTES_MAX);
        assert!(!kept.iter().any(|line| line == "begin" || line.contains("SUBSYSTEM")));
        assert_eq!(kernel("6,1,0,-;begin\n SUBSYSTEM=block\n"), ["begin"]);
    }

    #[test]
    fn a_diagnosis_is_bounded_and_read_again() {
        let lines = vec!["x".repeat(7_000); 1_000];
        let diagnosis = Diagnosis { boot: "b".to_owned(), ..Diagnosis::default() }.collect(lines);
        let json = serde_json::to_vec(&diagnosis).unwrap();
        assert!(json.len() < 256 * 1024, "{}", json.len());
        let read: Diagnosis = serde_json::from_slice(&json).unwrap();
        assert_eq!((read.boot, read.log.len()), (diagnosis.boot, LOG_BYTES_MAX / 7_000));
        let newer: Diagnosis = serde_json::from_str(r#"{"boot":"b","later":1}"#).unwrap();
        assert_eq!(newer.boot, "b");
    }
}
