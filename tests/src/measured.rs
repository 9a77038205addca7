//! The measurements that a job with large data reports.

use serde::{Deserialize, Serialize};

/// The result of a job with large data.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Measured {
    /// A digest of the job's data at its end.
    pub digest: u64,
    /// The delivery in which it ended.
    pub delivery: u32,
    /// The most memory that the worker's process has occupied, in KiB, without the pages of its
    /// program, which are many in a debug build.
    pub peak_kib: u64,
}

/// Returns the most memory that this process has occupied so far, in KiB, without the pages of its
/// program.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let kib = |name: &str| -> u64 {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        let value = value.and_then(|value| value.trim().strip_suffix(" kB"));
        value.and_then(|value| value.parse().ok()).expect("a number of kB")
    };
    kib("VmHWM:").saturating_sub(kib("RssFile:"))
}
