//! A directory for one step's files, which goes when the step does, or when the next one finds it left behind.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use reprieve::JobContext;

/// The file whose lock says that somebody works here. The operating system releases it with its owner's death.
const LOCK: &str = "lock";

/// A new, empty directory; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes one for this owner of a job under `root`, after removing those that killed workers have left there.
    pub(crate) fn new(root: &Path, cx: &JobContext) -> io::Result<Self> {
        Self::named(root, &format!("{}-{}", cx.job(), cx.fence()))
    }

    fn named(root: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        // Until the end of this function, or the lock of a directory that was just made could be taken for nobody's.
        let alone = File::create(root.join(LOCK))?;
        alone.lock()?;
        sweep(root)?;
        let path = root.join(name);
        fs::create_dir(&path)?;
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the directories in `root` that nobody works in.
fn sweep(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !lives(&entry.path())? {
            tracing::info!(path = %entry.path().display(), "removing what a killed worker left behind");
            remove(&entry.path());
        }
    }
    Ok(())
}

fn lives(directory: &Path) -> io::Result<bool> {
    match File::open(directory.join(LOCK)).map(|lock| lock.try_lock()) {
        Ok(Ok(())) => Ok(false),
        Ok(Err(TryLockError::WouldBlock)) => Ok(true),
        // Killed before it could lock it, or just removed by its owner.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Ok(Err(TryLockError::Error(error))) | Err(error) => Err(error),
    }
}

/// A directory that can't be removed stops nobody: a program that was killed a moment ago may still be writing to it. The
/// next sweep tries again.
fn remove(directory: &Path) {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %directory.display(), %error, "a scratch directory could not be removed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_its_owner_and_a_dead_owners_with_the_next() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("not/there/yet");
        let scratch = Scratch::named(&root, "living").unwrap();
        fs::write(scratch.path().join("file"), "content").unwrap();
        fs::create_dir(root.join("killed before it was locked")).unwrap();
        fs::create_dir(root.join("killed")).unwrap();
        fs::write(root.join("killed").join(LOCK), "").unwrap();

        let next = Scratch::named(&root, "next").unwrap();
        assert!(scratch.path().join("file").exists(), "an owner that lives keeps its own");
        assert!(!root.join("killed").exists());
        assert!(!root.join("killed before it was locked").exists());

        drop(scratch);
        drop(next);
        let left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [LOCK]);
    }
}
