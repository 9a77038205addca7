//! Pressure on the machine: what a worker does before memory or disk run out.
//!
//! A [`Machine`] reads the machine's state about once a second. Three causes alone make the worker save its
//! running jobs, once, and take no new work: low memory, a nearly full disk, and I/O errors. Everything else
//! that is read is only shown, because stress is no failure: a machine may be busy for hours.
//!
//! | cause | begins | ends |
//! |---|---|---|
//! | `memory` | less than 5 % available, or 512 MiB if that is less | at least 10 %, or 1 GiB |
//! | `disk` | less than 5 % free, or 1 GiB if that is less | at least 10 %, or 2 GiB |
//! | `io-errors` | another I/O error | none for a minute |
//!
//! Each lasts for at least [`LASTS_AT_LEAST`], so that a value that goes to and fro does not make the worker do
//! the same. Running jobs go on: they must, to give their memory back.

mod episode;
mod reserve;

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub(crate) use episode::{Episode, Turn};
pub use episode::{IO_ERRORS_QUIET, LASTS_AT_LEAST};
pub(crate) use reserve::{JobMemory, shortage};
pub use reserve::{MemoryReserve, OnPressure, too_much_memory};

/// Reads the machine's state.
///
/// # Example: a machine with little memory, for a test
/// ```
/// use reprieve_core::pressure::{Machine, Pool, Readings};
///
/// #[derive(Debug)]
/// struct Small;
///
/// #[async_trait::async_trait]
/// impl Machine for Small {
///     async fn read(&self) -> Readings {
///         Readings { memory: vec![Pool::new("the machine", 100 << 20, 8 << 30)], ..Readings::default() }
///     }
/// }
/// ```
#[async_trait]
pub trait Machine: fmt::Debug + Send + Sync + 'static {
    /// Reads it anew. Called about once a second, never twice at once. What can't be read is left out. It must
    /// not block the thread; dropping the future has no effect.
    async fn read(&self) -> Readings;
}

/// A resource of which something is left: memory, or space on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its name, for people: `the machine`, `the cgroup /a/b`, a directory.
    pub name: String,
    /// The bytes that are available. For memory, with what the kernel can reclaim at once.
    pub available_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
}

impl Pool {
    /// A pool with this name, of which so many bytes are available.
    #[must_use]
    pub fn new(name: impl Into<String>, available_bytes: u64, total_bytes: u64) -> Self {
        Self { name: name.into(), available_bytes, total_bytes }
    }
}

/// One look at the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readings {
    /// The memory of the machine, and of each cgroup with a limit that this process is in. The tightest counts.
    pub memory: Vec<Pool>,
    /// The memory that this process uses itself, in bytes.
    pub own_memory_bytes: Option<u64>,
    /// The disks on which the worker writes.
    pub disks: Vec<Pool>,
    /// I/O errors of these disks since the worker began.
    pub io_errors: u64,
    /// The last of them, for people.
    pub last_io_error: Option<String>,
    /// What is only shown.
    pub shown: Shown,
}

/// What is shown of a machine and never acted upon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shown {
    /// The share of the last ten seconds in which some task waited for I/O, in percent.
    /// <https://docs.kernel.org/accounting/psi.html>
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_stall_percent: Option<u32>,
    /// The share of processor time that the host gave to others since the look before, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_percent: Option<u32>,
    /// Memory errors that the hardware corrected since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_errors_corrected: Option<u64>,
    /// Memory errors that it could not correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_errors_uncorrected: Option<u64>,
    /// How far the metadata service's clock is ahead of this machine's, in milliseconds: 0 below two seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_behind_ms: Option<i64>,
}

/// A cause of pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Little memory is available.
    Memory,
    /// A disk is nearly full.
    Disk,
    /// A disk had I/O errors.
    IoErrors,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::IoErrors];

    /// The name in reports, logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::IoErrors => "io-errors",
        }
    }
}

/// A cause that holds, as a worker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivePressure {
    /// Its name: `memory`, `disk`, `io-errors`.
    pub cause: String,
    /// Why, in a sentence for people.
    pub why: String,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_unix_ms: i64,
}

/// A machine as a worker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineReport {
    /// The causes that hold; empty without pressure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<ActivePressure>,
    /// Whether the worker saves and takes no new work for them. False where that is switched off.
    #[serde(default)]
    pub acts: bool,
    /// What is only shown.
    #[serde(flatten)]
    pub shown: Shown,
}
