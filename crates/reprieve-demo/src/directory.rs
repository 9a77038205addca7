//! The demo's directory: created, or taken over from an earlier demo.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use reprieve::{Error, ErrorKind, Result};

/// Marks a demo's directory; locked while a demo runs.
const MARKER: &str = ".reprieve-demo";

/// The files of a demo, which the next demo removes.
const MADE: [&str; 6] = [STORE, LOGS, FRAMES, JOURNAL, REPORT, SUMMARY];
const STORE: &str = "store";
const LOGS: &str = "logs";
const FRAMES: &str = "frames";
pub(crate) const JOURNAL: &str = "journal";
const REPORT: &str = "report.html";
const SUMMARY: &str = "summary.json";

/// The store's file, for a process that runs in the directory.
pub(crate) const STORE_FILE: &str = "store/reprieve.db";

/// A demo's directory, for as long as the demo runs.
#[derive(Debug)]
pub(crate) struct DemoDirectory {
    /// Absolute, because workers run in it.
    path: PathBuf,
    /// The path as it was given, for messages.
    shown: PathBuf,
    _marker: File,
}

impl DemoDirectory {
    /// Makes the directory, or empties that of an earlier demo.
    ///
    /// # Errors
    /// `Invalid` when the path is no directory, has other files, or belongs to a running demo; else
    /// the file system's.
    pub(crate) fn take(dir: &Path) -> Result<Self> {
        let shown = dir.display();
        let there = |error: io::Error| failed(dir, error);
        fs::create_dir_all(dir).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                refused(format!("{shown} is not a directory; give another --dir"))
            }
            _ => there(error),
        })?;
        let marker = dir.join(MARKER);
        let ours = marker.try_exists().map_err(there)?;
        if !ours && fs::read_dir(dir).map_err(there)?.next().is_some() {
            return Err(refused(format!(
                "{shown} is not empty and holds no earlier demo; give another --dir"
            )));
        }
        // Not for appending only, which Windows does not lock.
        let file = File::options().write(true).create(true).truncate(false).open(&marker).map_err(there)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(refused(format!(
                    "another demo runs in {shown}; wait for it or give another --dir"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(there(error)),
        }
        for made in MADE {
            remove(&dir.join(made)).map_err(there)?;
        }
        for made in [STORE, LOGS, FRAMES] {
            fs::create_dir(dir.join(made)).map_err(there)?;
        }
        let path = std::path::absolute(dir).map_err(there)?;
        Ok(Self { path, shown: dir.to_owned(), _marker: file })
    }

    /// The whole path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path as it was given.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path.join(STORE_FILE)
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    /// Where the workers' logs are.
    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }

    /// Writes a frame.
    pub(crate) fn write_frame(&self, name: &str, png: &[u8]) -> Result<()> {
        self.write(Path::new(FRAMES).join(name), png)
    }

    /// Writes the report, and returns its path as it is shown.
    pub(crate) fn write_report(&self, html: &str) -> Result<PathBuf> {
        self.write(REPORT, html.as_bytes())?;
        Ok(self.shown.join(REPORT))
    }

    pub(crate) fn write_summary(&self, json: &[u8]) -> Result<()> {
        self.write(SUMMARY, json)
    }

    fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        fs::write(&path, bytes).map_err(|error| failed(&path, error))
    }
}

/// Returns the path of the log of the worker on `vm`.
pub(crate) fn log(logs: &Path, vm: &str) -> PathBuf {
    logs.join(format!("{vm}.jsonl"))
}

/// Returns the error for an unusable `--dir`.
fn refused(message: String) -> Error {
    Error::new(ErrorKind::Invalid, "prepare the demo", message)
}

fn failed(path: &Path, error: io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    Error::new(ErrorKind::Internal, "write the demo's files", message).with_source(error)
}

/// Removes a file or a whole directory, if there is one. Links are not followed.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_demo_is_replaced_and_a_persons_own_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/demo");
        let first = DemoDirectory::take(&path).unwrap();
        first.write_frame("00.png", b"old").unwrap();
        first.write_report("old").unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        drop(first);
        let second = DemoDirectory::take(&path).unwrap();
        assert!(!path.join("frames/00.png").exists() && !path.join(REPORT).exists());
        assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
        assert!(second.path().is_absolute());
    }

    #[test]
    fn a_foreign_directory_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("store")).unwrap();
        let error = DemoDirectory::take(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(dir.path().join("store").exists() && !dir.path().join(MARKER).exists());
    }

    #[test]
    fn a_path_that_is_no_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "mine").unwrap();
        for path in [file.clone(), file.join("deeper")] {
            let error = DemoDirectory::take(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    }

    #[test]
    fn a_running_demo_keeps_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = DemoDirectory::take(dir.path()).unwrap();
        first.write_report("mine").unwrap();
        let error = DemoDirectory::take(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(dir.path().join(REPORT).exists());
    }
}
