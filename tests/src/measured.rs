//! What a job with large data reports of itself.

use serde::{Deserialize, Serialize};

/// The result of a job with large data.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Measured {
    /// A digest of the job's data at its end.
    pub digest: u64,
    /// The delivery in which it ended.
    pub delivery: u32,
    /// The most memory that the worker's process has occupied, in KiB.
    pub peak_kib: u64,
}

/// Returns the most memory that this process has occupied so far, in KiB.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    peak.and_then(|peak| peak.parse().ok()).expect("a number of kB")
}
