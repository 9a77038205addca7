//! The paths of the store's files, and how files are written so that no reader sees half of one.
//!
//! ```text
//! reprieve.db                  SQLite: messages, records, small payloads and blobs (+ -wal, -shm)
//! reprieve.db.d/
//!   gate.lock write.lock       the gate between processes
//!   bell                       touched when a message becomes receivable
//!   sessions/TOKEN             locked for as long as its process lives
//!   payloads/TOKEN-N           payloads too large for the database
//!   blobs/TOKEN-N              inputs and outputs too large for the database
//! ```
//!
//! Only SQLite opens the database file: on Unix, closing any descriptor of a file releases every
//! POSIX lock of the process on it, including those of its SQLite connections.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use reprieve_core::ErrorKind;

use crate::failure::{Failure, Outcome};

/// The paths of one store.
#[derive(Debug)]
pub(crate) struct Files {
    database: PathBuf,
    directory: PathBuf,
}

impl Files {
    /// Finds the store at `path`, through any links. Creates nothing.
    pub(crate) fn locate(path: &Path) -> Outcome<Self> {
        let database = real_path(path)?;
        let mut directory = database.clone().into_os_string();
        directory.push(".d");
        Ok(Self { database, directory: directory.into() })
    }

    /// Creates the directories beside the database, which must be known to be ours or new.
    pub(crate) fn make_directories(&self) -> Outcome<()> {
        let is_new = !self.directory.exists();
        for wanted in [self.sessions(), self.payloads(), self.blobs()] {
            fs::create_dir_all(&wanted).map_err(|error| Failure::io(&error, &wanted))?;
        }
        if is_new {
            let above = self.database.parent().unwrap_or(Path::new("/"));
            for changed in [self.directory.as_path(), above] {
                sync_directory(changed).map_err(|error| Failure::io(&error, changed))?;
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn made(path: &Path) -> Self {
        let files = Self::locate(path).unwrap();
        files.make_directories().unwrap();
        files
    }

    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    pub(crate) fn gate_lock(&self) -> PathBuf {
        self.directory.join("gate.lock")
    }

    pub(crate) fn write_lock(&self) -> PathBuf {
        self.directory.join("write.lock")
    }

    pub(crate) fn bell(&self) -> PathBuf {
        self.directory.join("bell")
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.directory.join("sessions")
    }

    pub(crate) fn payloads(&self) -> PathBuf {
        self.directory.join("payloads")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.directory.join("blobs")
    }
}

/// The canonical path of the file: two names of one file must not lead to two gates.
fn real_path(path: &Path) -> Outcome<PathBuf> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(Failure::new(
            ErrorKind::Invalid,
            format!(
                "{} is a directory; name a file in it, such as {}",
                path.display(),
                path.join("reprieve.db").display()
            ),
        )),
        // Opening a pipe would wait without limit, and a device keeps no data.
        Ok(found) if !found.is_file() => Err(Failure::new(
            ErrorKind::Invalid,
            format!("{} is a pipe, a socket or a device; name an ordinary file", path.display()),
        )),
        Ok(_) => fs::canonicalize(path).map_err(|error| Failure::io(&error, path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => real_path_of_new(path),
        Err(error) => Err(Failure::io(&error, path)),
    }
}

fn real_path_of_new(path: &Path) -> Outcome<PathBuf> {
    // If the file exists now, another process has created it since.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(Failure::new(
            ErrorKind::NotFound,
            format!(
                "{} is a link to a file that doesn't exist; create that file or remove the link",
                path.display()
            ),
        ));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name() else {
        return Err(Failure::new(ErrorKind::Invalid, format!("{} does not name a file", path.display())));
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::new(
            ErrorKind::NotFound,
            format!("the directory {} doesn't exist; create it first", parent.display()),
        )),
        Err(error) => Err(Failure::io(&error, parent)),
    }
}

/// Writes a new file and waits until it is on the disk. Leaves nothing behind when it fails.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let write = || {
        let mut file = File::create_new(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| {
        remove_if_there(path);
        Failure::io(&error, path)
    })
}

/// Opens a file that a row refers to. What is no file counts as a damaged one; opening a pipe would
/// wait without limit.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is no ordinary file"))
}

/// Reads the file into `buffer`, which is empty. Of one that is longer than `bytes`, it reads one byte
/// more than that, by which the reader sees that it is damaged.
pub(crate) fn read_into(path: &Path, bytes: usize, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    open(path)?.take(bytes as u64 + 1).read_to_end(&mut buffer)?;
    Ok(buffer)
}

/// Whether the content of a file is lost: the disk, or the file system by its own checksums, can't read
/// it, or no file has this name. Other errors, such as too many open files or missing permissions, may
/// pass.
pub(crate) fn is_lost(error: &io::Error) -> bool {
    let lost: &[i32] = if cfg!(windows) {
        // ERROR_CRC, ERROR_IO_DEVICE and ERROR_FILE_CORRUPT.
        &[23, 1117, 1392]
    } else {
        // EIO, ENXIO, ELOOP, ENODATA, EBADMSG, EILSEQ, EUCLEAN and EREMOTEIO, as Linux numbers them.
        &[5, 6, 40, 61, 74, 84, 117, 121]
    };
    error.raw_os_error().is_some_and(|code| lost.contains(&code))
        || matches!(
            error.kind(),
            io::ErrorKind::IsADirectory
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidData
                | io::ErrorKind::InvalidFilename
                | io::ErrorKind::InvalidInput
        )
}

/// Whether there is no file of this name. One that can't be looked at is there, and can't be read.
pub(crate) fn is_missing(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

/// Removes a file that no row refers to. If that fails, the next sweep tries again.
pub(crate) fn remove_if_there(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let path = path.display();
            tracing::warn!(%path, %error, "failed to remove an unused file; the next sweep tries again");
        }
    }
}

/// Waits until the names in a directory are on the disk.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    // Elsewhere a directory can't be opened as a file, and the file system's journal makes renames
    // durable.
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ways_to_one_file_find_one_store() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("a.db");
        let first = Files::locate(&plain).unwrap();
        File::create(&plain).unwrap();
        let roundabout =
            Files::locate(&dir.path().join("../").join(dir.path().file_name().unwrap()).join("a.db"))
                .unwrap();
        assert_eq!(first.gate_lock(), roundabout.gate_lock());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_to_the_store_they_mean() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("a.db")).unwrap();
        std::os::unix::fs::symlink("a.db", dir.path().join("link.db")).unwrap();
        std::os::unix::fs::symlink("none.db", dir.path().join("dangling.db")).unwrap();
        let real = Files::locate(&dir.path().join("a.db")).unwrap();
        let linked = Files::locate(&dir.path().join("link.db")).unwrap();
        assert_eq!(real.gate_lock(), linked.gate_lock());
        let error = Files::locate(&dir.path().join("dangling.db")).unwrap_err().during("open the store");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
