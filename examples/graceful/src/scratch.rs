//! A directory for one step's files. The step removes it, or a later step if the worker was killed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use reprieve::JobContext;

/// The file that the owner of a directory keeps locked. The operating system releases the lock when
/// the owner's process ends.
const LOCK_FILE: &str = "lock";

/// A new, empty directory, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct ScratchDir {
    path: PathBuf,
    _lock: File,
}

impl ScratchDir {
    /// Creates a directory below `root` for this delivery of the job. First removes the directories
    /// that killed workers left there.
    pub(crate) fn new(root: &Path, cx: &JobContext) -> io::Result<Self> {
        Self::named(root, &format!("{}-{}", cx.job(), cx.fence()))
    }

    fn named(root: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        // Without this lock, another process could remove a new directory before it is locked.
        let root_lock = File::create(root.join(LOCK_FILE))?;
        root_lock.lock()?;
        remove_unused(root)?;
        let path = root.join(name);
        fs::create_dir(&path)?;
        let lock = File::create(path.join(LOCK_FILE))?;
        lock.lock()?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the directories in `root` that no process has locked.
fn remove_unused(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !is_locked(&entry.path())? {
            tracing::info!(path = %entry.path().display(), "removing the directory of a killed worker");
            remove(&entry.path());
        }
    }
    Ok(())
}

fn is_locked(directory: &Path) -> io::Result<bool> {
    match File::open(directory.join(LOCK_FILE)).map(|lock| lock.try_lock()) {
        Ok(Ok(())) => Ok(false),
        Ok(Err(TryLockError::WouldBlock)) => Ok(true),
        // The worker was killed before it created the lock file, or is removing the directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Ok(Err(TryLockError::Error(error))) | Err(error) => Err(error),
    }
}

/// Removes a directory, or logs why not: a killed program may still write to it for a moment. The
/// next [`ScratchDir::new`] tries again.
fn remove(directory: &Path) {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %directory.display(), %error, "failed to remove a scratch directory");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_removed_by_its_owner_or_after_its_death_by_the_next() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("not/there/yet");
        let scratch = ScratchDir::named(&root, "in use").unwrap();
        fs::write(scratch.path().join("file"), "content").unwrap();
        fs::create_dir(root.join("killed before it was locked")).unwrap();
        fs::create_dir(root.join("killed")).unwrap();
        fs::write(root.join("killed").join(LOCK_FILE), "").unwrap();

        let next = ScratchDir::named(&root, "next").unwrap();
        assert!(scratch.path().join("file").exists(), "a directory in use was removed");
        assert!(!root.join("killed").exists());
        assert!(!root.join("killed before it was locked").exists());

        drop(scratch);
        drop(next);
        let left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [LOCK_FILE]);
    }
}
