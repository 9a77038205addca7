//! The lock of a process that asks the metadata service for the other workers of its VM.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::PathBuf;

/// A locked file. The lock ends with its process.
#[derive(Debug)]
pub(super) struct AskLock {
    /// Zero for the process that always asks; the others ask while those with lower ranks are silent.
    pub(super) rank: u8,
    path: PathBuf,
    file: File,
}

impl AskLock {
    /// Locks the file; `None` if another process holds the lock.
    pub(super) fn try_take(rank: u8, path: PathBuf) -> io::Result<Option<Self>> {
        let file = options().write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let lock = Self { rank, path, file };
        Ok(lock.is_in_place().then_some(lock))
    }

    /// Whether the file is still in its directory: after it was removed, others lock a new one.
    #[cfg(unix)]
    pub(super) fn is_in_place(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let id = |file: io::Result<fs::Metadata>| file.ok().map(|file| (file.dev(), file.ino()));
        id(self.file.metadata()).is_some_and(|locked| id(fs::metadata(&self.path)) == Some(locked))
    }

    /// Whether the file is still in its directory.
    #[cfg(not(unix))]
    pub(super) fn is_in_place(&self) -> bool {
        self.file.metadata().is_ok() && fs::metadata(&self.path).is_ok()
    }
}

/// Only this user may read and write what is created.
fn options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
