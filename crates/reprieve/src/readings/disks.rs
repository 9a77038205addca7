//! The disks on which a worker writes: what is free, and their errors.
//!
//! A thread of their own looks at them, because a disk that does not answer blocks whoever asks it.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reprieve_core::pressure::{Pool, Readings};
use rustix::fs::{StatVfsMountFlags, major, minor, stat, statvfs};
use tokio::time::Instant;

use super::number;

/// How often something is written. It costs a write of one block.
const WRITE_EVERY: Duration = Duration::from_secs(10);

/// The disks of some directories.
#[derive(Debug)]
pub(super) struct Disks {
    found: Arc<Mutex<Found>>,
    /// Asks for a look. Full while one is under way.
    look: Option<SyncSender<()>>,
}

#[derive(Debug, Default)]
struct Found {
    pools: Vec<Pool>,
    errors: u64,
    last_error: Option<String>,
}

/// Looks at one directory.
struct Disk {
    directory: PathBuf,
    /// The file in which the kernel counts the file system's errors, and the count at the last look.
    counter: Option<(String, u64)>,
    written: Option<Instant>,
    /// It was read-only when the worker began, and has taken no write since then.
    is_for_reading: bool,
    is_full: bool,
}

impl Disks {
    /// Watches these directories.
    pub(super) fn watch(root: PathBuf, directories: Vec<PathBuf>) -> Self {
        let disks: Vec<_> = directories.into_iter().map(Disk::new).collect();
        for disk in disks.iter().filter(|disk| disk.is_for_reading) {
            let directory = disk.directory.display();
            tracing::warn!(%directory, "this directory is on a read-only file system, and the worker writes to it; mount it for writing, or name another directory");
        }
        let (look, looks) = sync_channel(1);
        let found = Arc::new(Mutex::new(Found::default()));
        let shared = Arc::clone(&found);
        let thread = std::thread::Builder::new().name("disks".to_owned());
        let started = thread.spawn(move || run(&root, disks, &looks, &shared));
        if let Err(error) = &started {
            tracing::warn!(%error, "failed to start a thread; the worker does not see whether a disk is full");
        }
        Self { found, look: started.is_ok().then_some(look) }
    }

    /// Adds what the last look found, and asks for another one.
    pub(super) fn read_into(&self, readings: &mut Readings) {
        if let Some(look) = &self.look {
            // It is full while a look is under way.
            let _asked = look.try_send(());
        }
        let found = lock(&self.found);
        readings.disks.clone_from(&found.pools);
        readings.io_errors = found.errors;
        readings.last_io_error.clone_from(&found.last_error);
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks whenever that is asked for, until nobody can ask any more.
fn run(root: &Path, mut disks: Vec<Disk>, looks: &Receiver<()>, found: &Mutex<Found>) {
    while looks.recv().is_ok() {
        let (mut pools, mut errors) = (Vec::new(), Vec::new());
        for disk in &mut disks {
            errors.extend(disk.errors(root));
            pools.extend(disk.pool());
        }
        let mut found = lock(found);
        found.pools = pools;
        found.errors += errors.len() as u64;
        if let Some(error) = errors.pop() {
            found.last_error = Some(error);
        }
    }
}

impl Disk {
    fn new(directory: PathBuf) -> Self {
        let flags = statvfs(&directory).map(|of| of.f_flag);
        let is_for_reading = flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY));
        Self { directory, counter: None, written: None, is_for_reading, is_full: false }
    }

    /// What is free for this user.
    fn pool(&self) -> Option<Pool> {
        let of = statvfs(&self.directory).ok()?;
        let available = if self.is_full { 0 } else { of.f_bavail.saturating_mul(of.f_frsize) };
        let total = of.f_blocks.saturating_mul(of.f_frsize);
        // Some file systems of no disk have no size.
        (total > 0).then(|| Pool::new(self.directory.display().to_string(), available, total))
    }

    /// Returns a sentence for each new error.
    fn errors(&mut self, root: &Path) -> Vec<String> {
        let mut errors: Vec<_> = self.counted(root).into_iter().collect();
        if self.written.is_none_or(|at| at.elapsed() >= WRITE_EVERY) {
            self.written = Some(Instant::now());
            let written = self.write();
            errors.extend(self.note(written));
        }
        errors
    }

    /// Looks at the kernel's count, which ext4 has. It keeps the errors of earlier days, too.
    /// <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-fs-ext4>
    fn counted(&mut self, root: &Path) -> Option<String> {
        let (file, before) = match &mut self.counter {
            Some((file, before)) => (file.clone(), Some(before)),
            None => (counter(root, &self.directory)?, None),
        };
        let now = number(root, &file)?;
        let Some(before) = before else {
            self.counter = Some((file, now));
            return None;
        };
        let more = now > std::mem::replace(before, now);
        more.then(|| format!("the file system below {} has counted an error", self.directory.display()))
    }

    /// Writes a file without a name.
    fn write(&self) -> std::io::Result<()> {
        let mut file = tempfile::tempfile_in(&self.directory)?;
        file.write_all(b"reprieve looks whether this disk can be written")?;
        file.sync_data()
    }

    /// Returns the error that a write has shown. A disk that was read-only from the start has none: somebody mounted it
    /// so.
    fn note(&mut self, written: std::io::Result<()>) -> Option<String> {
        self.is_for_reading &= written.is_err();
        let error = written.err();
        let meaning = error.as_ref().map(|error| Meaning::of(error.kind()));
        self.is_full = meaning == Some(Meaning::Full);
        let error = error.filter(|_| meaning == Some(Meaning::Failed))?;
        let directory = self.directory.display();
        if error.kind() == ErrorKind::ReadOnlyFilesystem && self.is_for_reading {
            return None;
        }
        Some(format!("failed to write below {directory}: {error}"))
    }
}

/// The meaning of an error of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// There is no space left for this user.
    Full,
    /// The disk failed, or the kernel does not write on it any more.
    Failed,
    /// It says nothing of the disk: the directory may come later, or be another user's.
    Nothing,
}

impl Meaning {
    fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::Unsupported
            | ErrorKind::Interrupted => Self::Nothing,
            _ => Self::Failed,
        }
    }
}

/// The file in which the kernel counts the errors of the directory's file system.
fn counter(root: &Path, directory: &Path) -> Option<String> {
    let device = stat(directory).ok()?.st_dev;
    let link = root.join(format!("sys/dev/block/{}:{}", major(device), minor(device)));
    let name = std::fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned();
    Some(format!("sys/fs/ext4/{name}/errors_count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root directory whose file system of `directory` has counted no error.
    fn root(directory: &Path) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let device = stat(directory).unwrap().st_dev;
        let block = root.path().join("sys/dev/block");
        std::fs::create_dir_all(&block).unwrap();
        let link = block.join(format!("{}:{}", major(device), minor(device)));
        std::os::unix::fs::symlink("../../devices/virtual/block/sdx1", link).unwrap();
        let count = root.path().join("sys/fs/ext4/sdx1/errors_count");
        std::fs::create_dir_all(count.parent().unwrap()).unwrap();
        (root, count)
    }

    #[test]
    fn only_errors_that_the_kernel_counts_from_now_on_are_new() {
        let place = tempfile::tempdir().unwrap();
        let (root, count) = root(place.path());
        let mut disk = Disk::new(place.path().to_owned());
        let mut look = |counted: &str| {
            std::fs::write(&count, counted).unwrap();
            disk.errors(root.path()).len()
        };
        assert_eq!(["7\n", "7\n", "8\n", "8\n", "0\n", "1\n"].map(&mut look), [0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn a_disk_that_can_be_written_has_no_errors_and_a_missing_directory_is_no_error() {
        let place = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(place.path().to_owned());
        assert_eq!(disk.errors(Path::new("/")), Vec::<String>::new());
        assert!(disk.pool().is_some_and(|pool| pool.total_bytes > 0));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "it leaves nothing");
        let mut missing = Disk::new(place.path().join("missing"));
        assert_eq!((missing.errors(Path::new("/")), missing.pool()), (Vec::new(), None));
    }

    #[test]
    fn a_disk_that_is_read_only_from_the_start_has_no_error_until_it_has_taken_a_write() {
        const EROFS: i32 = 30;
        let refused =
            |disk: &mut Disk, code| disk.note(Err(std::io::Error::from_raw_os_error(code))).is_some();
        let mut disk = Disk::new(std::env::temp_dir());
        assert!(!disk.is_for_reading && refused(&mut disk, EROFS), "it was writable");
        disk.is_for_reading = true;
        assert_eq!(
            [refused(&mut disk, EROFS), refused(&mut disk, EROFS), refused(&mut disk, 5)],
            [false, false, true]
        );
        assert_eq!(disk.note(Ok(())), None);
        assert!(refused(&mut disk, EROFS), "somebody mounted it for writing");
    }

    #[test]
    fn errors_of_a_write_are_the_disk_s_or_not() {
        // ENOSPC, EDQUOT, EIO, EROFS, EUCLEAN, ENODEV, ENOENT, EACCES, EOPNOTSUPP
        for (code, meaning) in [
            (28, Meaning::Full),
            (122, Meaning::Full),
            (5, Meaning::Failed),
            (30, Meaning::Failed),
            (117, Meaning::Failed),
            (19, Meaning::Failed),
            (2, Meaning::Nothing),
            (13, Meaning::Nothing),
            (95, Meaning::Nothing),
        ] {
            let error = std::io::Error::from_raw_os_error(code);
            assert_eq!(Meaning::of(error.kind()), meaning, "{error}");
        }
        let full = Disk { is_full: true, ..Disk::new(std::env::temp_dir()) };
        assert_eq!(full.pool().map(|pool| pool.available_bytes), Some(0));
    }
}
