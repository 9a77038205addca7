//! Reads the state of a Linux machine from its files, for the worker's decisions about pressure.

mod counters;
mod disks;
mod memory;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use reprieve_azure::scheduled_events::Watcher;
use reprieve_core::pressure::{Machine, Pool, Readings, Shown};

use self::counters::Times;
use self::disks::Disks;

/// Returns the memory of this machine, and of each cgroup with a limit that this process is in.
pub(crate) fn memory_pools() -> Vec<Pool> {
    memory::pools(Path::new("/"))
}

/// This machine.
#[derive(Debug)]
pub(crate) struct LinuxMachine {
    /// The root directory; another one in tests.
    root: PathBuf,
    disks: Disks,
    /// The processor times at the look before.
    times: Arc<Mutex<Option<Times>>>,
    /// Knows the clock of the metadata service.
    watcher: Option<Arc<Watcher>>,
}

impl LinuxMachine {
    /// This machine, with the disks of these directories.
    pub(crate) fn new(directories: Vec<PathBuf>, watcher: Option<Arc<Watcher>>) -> Self {
        let root = PathBuf::from("/");
        Self { disks: Disks::watch(root.clone(), directories), root, times: Arc::default(), watcher }
    }
}

#[async_trait]
impl Machine for LinuxMachine {
    async fn read(&self) -> Readings {
        let (root, times) = (self.root.clone(), Arc::clone(&self.times));
        // The kernel makes these files up, but may count for milliseconds.
        let read = tokio::task::spawn_blocking(move || read_files(&root, &times));
        let mut readings = read.await.unwrap_or_default();
        let ahead = self.watcher.as_ref().map(|watcher| watcher.stats().ahead.as_millis());
        readings.shown.clock_behind_ms = ahead.map(|ahead| i64::try_from(ahead).unwrap_or(i64::MAX));
        self.disks.read_into(&mut readings);
        readings
    }
}

fn read_files(root: &Path, times: &Mutex<Option<Times>>) -> Readings {
    let now = Times::read(root);
    let before = std::mem::replace(&mut *times.lock().unwrap_or_else(PoisonError::into_inner), now);
    let shown = Shown {
        io_stall_percent: counters::io_stall_percent(root),
        steal_percent: before.zip(now).and_then(|(before, now)| now.steal_percent_since(before)),
        memory_errors_corrected: counters::memory_errors(root, "ce_count"),
        memory_errors_uncorrected: counters::memory_errors(root, "ue_count"),
        clock_behind_ms: None,
    };
    Readings {
        memory: memory::pools(root),
        own_memory_bytes: memory::own_bytes(root),
        shown,
        ..Readings::default()
    }
}

/// The file's text; `None` where it is missing or can't be read.
fn text(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path)).ok()
}

/// The number in a file that has nothing else.
fn number(root: &Path, path: &str) -> Option<u64> {
    text(root, path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_is_read() {
        let place = tempfile::tempdir().unwrap();
        let machine = LinuxMachine::new(vec![place.path().to_owned()], None);
        let mut readings = machine.read().await;
        let until = std::time::Duration::from_secs(20);
        tokio::time::timeout(until, async {
            // Another thread looks at the disks.
            while readings.disks.is_empty() || readings.shown.steal_percent.is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                readings = machine.read().await;
            }
        })
        .await
        .expect("all is read");
        let memory = &readings.memory[0];
        assert!(memory.available_bytes > 0 && memory.total_bytes > memory.available_bytes, "{memory:?}");
        let disk = &readings.disks[0];
        assert!(disk.total_bytes >= disk.available_bytes && disk.total_bytes > 0, "{disk:?}");
        assert!(readings.own_memory_bytes.is_some_and(|bytes| bytes > 100_000), "{readings:?}");
        assert_eq!(readings.io_errors, 0, "{:?}", readings.last_io_error);
    }
}
