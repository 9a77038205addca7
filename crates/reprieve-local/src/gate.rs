//! The gate between processes: a fair lock, under which one process writes at a time.
//!
//! SQLite's own busy handler sleeps up to 100 ms between attempts and is unfair: with four busy
//! processes one of them can starve for seconds. Two lock files move the waiting into the kernel.
//! The process that holds `write.lock` writes, and only the process that holds `gate.lock` waits
//! for `write.lock`. So a process that has just written can't overtake those that wait. The kernel
//! releases both locks when a process dies.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::{Failure, Outcome};
use crate::files::Files;

/// One process's handle to the gate, for one thread at a time.
#[derive(Debug)]
pub(crate) struct Gate {
    entry: File,
    write: File,
    write_path: PathBuf,
}

impl Gate {
    pub(crate) fn open(files: &Files) -> Outcome<Self> {
        let write_path = files.write_lock();
        Ok(Self { entry: lock_file(&files.gate_lock())?, write: lock_file(&write_path)?, write_path })
    }

    /// Waits for this process's turn without limit. [`crate::writer`] limits the time of the
    /// operations that wait for this thread.
    pub(crate) fn enter(&mut self) -> Outcome<Turn<'_>> {
        let enter = || {
            lock(&self.entry)?;
            let entered = lock(&self.write);
            self.entry.unlock()?;
            entered
        };
        enter().map_err(|error| Failure::io(&error, &self.write_path))?;
        Ok(Turn(self))
    }

    /// Waits at most `limit` for this process's turn; `None` on timeout. Not fair: for opening
    /// only.
    pub(crate) fn enter_within(&mut self, limit: Duration) -> Outcome<Option<Turn<'_>>> {
        let deadline = Instant::now() + limit;
        loop {
            match self.write.try_lock() {
                Ok(()) => return Ok(Some(Turn(self))),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::park_timeout(Duration::from_millis(2)),
                Err(TryLockError::Error(error)) => return Err(Failure::io(&error, &self.write_path)),
            }
        }
    }
}

fn lock_file(path: &Path) -> Outcome<File> {
    let opened = File::options().create(true).read(true).write(true).truncate(false).open(path);
    opened.map_err(|error| Failure::io(&error, path))
}

fn lock(file: &File) -> io::Result<()> {
    loop {
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// This process's turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'gate>(&'gate Gate);

impl Turn<'_> {
    /// The greatest time that any process had seen when it wrote; 0 if no process has stored its
    /// time.
    pub(crate) fn time_seen(&self) -> i64 {
        let mut file = &self.0.write;
        let mut time = [0; 8];
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_exact(&mut time));
        // A file that was never written is too short. Without a stored time, only the protection
        // against a clock that is set back is missing.
        read.map_or(0, |()| i64::from_le_bytes(time))
    }

    /// Stores the time for the processes that come next.
    pub(crate) fn store_time(&self, time: i64) {
        let mut file = &self.0.write;
        let stored = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&time.to_le_bytes()));
        if let Err(error) = stored {
            tracing::debug!(%error, "failed to store the time for other processes");
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.write.unlock() {
            tracing::error!(%error, path = %self.0.write_path.display(), "failed to release the write lock");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn one_at_a_time_holds_the_gate() {
        let dir = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::made(&dir.path().join("a.db")));
        let inside = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (files, inside) = (Arc::clone(&files), Arc::clone(&inside));
                std::thread::spawn(move || {
                    let mut gate = Gate::open(&files).unwrap();
                    for _ in 0..500 {
                        let turn = gate.enter().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        turn.store_time(turn.time_seen() + 1);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(Gate::open(&files).unwrap().enter().unwrap().time_seen(), 2_000);
    }

    #[test]
    fn waiting_for_the_gate_can_be_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::made(&dir.path().join("a.db"));
        let (mut one, mut two) = (Gate::open(&files).unwrap(), Gate::open(&files).unwrap());
        let turn = one.enter().unwrap();
        assert!(two.enter_within(Duration::from_millis(10)).unwrap().is_none());
        drop(turn);
        assert!(two.enter_within(Duration::from_millis(10)).unwrap().is_some());
    }
}
