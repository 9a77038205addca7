//! Proves a fault of this machine's disks by own writes, again and again.
//!
//! Only what a new machine mends is a fault: a file system that took writes and takes none any more, and a disk that
//! fails them. A full disk, a quota, a permission, a directory that is gone, and a write that takes long are none.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use reprieve_core::healing::{Fault, FaultKind};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

/// How many writes in a row must fail alike.
pub(super) const PROOF: u32 = 3;

/// How many in a row must not fail until a proven fault is gone: a minute of them. A disk that fails again and again is
/// no sound one in between.
pub(super) const GONE: u32 = 6;

/// A block of a file system: what it takes to reach the disk.
const BLOCK: [u8; 4096] = [0x5a; 4096];

/// Writes to a directory once.
type Write = Box<dyn Fn(&Path) -> io::Result<()> + Send>;

/// The directories that are probed, and how one is written to.
pub(super) struct Probe {
    directories: Vec<Watched>,
    write: Write,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// It took a write of this process.
    took_write: bool,
    /// It took one of an earlier process of this boot.
    is_trusted: bool,
    /// How the last writes failed, and how many in a row.
    failed: Option<(FaultKind, u32)>,
    /// How a write failed, until a minute of them did not.
    seen: Option<FaultKind>,
    /// The fault that is proven.
    proven: Option<FaultKind>,
    /// How many of the last writes did not fail so.
    sound: u32,
}

impl Watched {
    fn new(path: PathBuf) -> Self {
        Self { path, took_write: false, is_trusted: false, failed: None, seen: None, proven: None, sound: 0 }
    }

    /// Whether it took a write before, so that one that fails proves a change.
    const fn has_been_written(&self) -> bool {
        self.took_write || self.is_trusted
    }

    /// Takes in the result of a write.
    fn note(&mut self, written: &io::Result<()>) {
        self.took_write |= written.is_ok();
        let kind = written.as_ref().err().and_then(kind_of);
        self.failed = kind.map(|kind| match self.failed {
            Some((before, times)) if before == kind => (kind, times.saturating_add(1)),
            _ => (kind, 1),
        });
        self.sound = if kind.is_none() { self.sound.saturating_add(1) } else { 0 };
        match self.failed {
            Some((kind, times)) if times >= PROOF && self.has_been_written() => self.proven = Some(kind),
            None if self.sound >= GONE => (self.proven, self.seen) = (None, None),
            _ => {}
        }
        self.seen = kind.or(self.seen);
    }

    fn fault(&self) -> Option<Fault> {
        Some(self.named(self.proven?))
    }

    /// Returns the fault that each write of this process shows, from the first one on, while it is not proven.
    fn suspected(&self) -> Option<Fault> {
        self.unproven().filter(|_| !self.took_write && self.failed.is_some())
    }

    /// Returns the fault that a write of the last minute shows while it is not proven.
    fn unproven(&self) -> Option<Fault> {
        Some(self.named(self.seen.filter(|_| self.proven.is_none())?))
    }

    fn named(&self, kind: FaultKind) -> Fault {
        Fault { kind, place: self.path.display().to_string() }
    }
}

impl Probe {
    pub(super) fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        Self::by(directories, write)
    }

    /// Probes these directories by such writes.
    pub(super) fn by(
        directories: impl IntoIterator<Item = PathBuf>,
        write: impl Fn(&Path) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self { directories: directories.into_iter().map(Watched::new).collect(), write: Box::new(write) }
    }

    /// Returns the directories that have taken a write.
    pub(super) fn directories(&self) -> Vec<&Path> {
        let written = self.directories.iter().filter(|watched| watched.has_been_written());
        written.map(|watched| watched.path.as_path()).collect()
    }

    /// Whether every directory took the last write.
    pub(super) fn is_sound(&self) -> bool {
        self.directories.iter().all(|watched| watched.failed.is_none())
    }

    /// Whether this place is probed, took a write before, and its last write showed no fault.
    pub(super) fn is_sound_at(&self, place: &str) -> bool {
        let mut written = self.directories.iter().filter(|watched| watched.has_been_written());
        written.any(|watched| watched.path == Path::new(place) && watched.failed.is_none())
    }

    /// Whether the fault that is proven is so by the last writes, and not by earlier ones alone.
    pub(super) fn still_fails(&self) -> bool {
        let mut written = self.directories.iter().filter(|watched| watched.has_been_written());
        written.any(|watched| watched.failed.is_some_and(|(_, times)| times >= PROOF))
    }

    /// Returns a fault that is seen, and is no proof: no write of this process to that place has succeeded yet.
    pub(super) fn suspected(&self) -> Option<Fault> {
        self.directories.iter().find_map(Watched::suspected)
    }

    /// Returns a fault that a write of the last minute shows and that is not proven. Other machines are to know of it at
    /// once, and while writes fail now and then: else the first of them that has proven its own would take the fault of all
    /// for its own.
    pub(super) fn unproven(&self) -> Option<Fault> {
        self.directories.iter().find_map(Watched::unproven)
    }

    /// Whether it would be one if an earlier process of this boot had written there.
    pub(super) fn wants_trust(&self) -> bool {
        self.directories.iter().any(|watched| watched.suspected().is_some() && !watched.is_trusted)
    }

    /// Believes an earlier process of this boot that it has written to this place.
    pub(super) fn trust(&mut self, place: &str) {
        for watched in self.directories.iter_mut().filter(|watched| watched.path == Path::new(place)) {
            watched.is_trusted = true;
        }
    }

    /// Writes to each directory once, and returns the fault that is proven by now. Blocks for as long as a disk does.
    pub(super) fn look(&mut self) -> Option<Fault> {
        for watched in &mut self.directories {
            watched.note(&(self.write)(&watched.path));
        }
        self.directories.iter().find_map(Watched::fault)
    }
}

/// Writes a file without a name, so that nothing is left whenever this ends, and waits until the disk has it.
fn write(directory: &Path) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(&BLOCK)?;
    file.sync_all()
}

/// Returns the fault that an error proves, if it does.
fn kind_of(error: &io::Error) -> Option<FaultKind> {
    match Errno::from_io_error(error) {
        Some(Errno::ROFS) => Some(FaultKind::ReadOnly),
        Some(Errno::IO) => Some(FaultKind::DiskError),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(errno: Errno) -> io::Result<()> {
        Err(errno.into())
    }

    /// Plays writes, and returns the fault after each.
    fn play(writes: &[io::Result<()>]) -> Vec<Option<FaultKind>> {
        let mut watched = Watched::new("/data".into());
        let after = |written| {
            watched.note(written);
            watched.fault().map(|fault| fault.kind)
        };
        writes.iter().map(after).collect()
    }

    #[test]
    fn three_writes_that_fail_alike_after_one_that_did_not_prove_a_fault() {
        let (read_only, broken) = (Some(FaultKind::ReadOnly), Some(FaultKind::DiskError));
        let rofs = || failed(Errno::ROFS);
        assert_eq!(play(&[Ok(()), rofs(), rofs(), rofs()]), [None, None, None, read_only]);
        let io = || failed(Errno::IO);
        assert_eq!(play(&[Ok(()), io(), io(), io(), Ok(())]), [None, None, None, broken, broken]);
        assert_eq!(play(&[Ok(()), io(), rofs(), io(), rofs(), io()]), [None; 6], "neither is certain");
        assert_eq!(play(&[Ok(()), rofs(), rofs(), Ok(()), rofs(), rofs()]), [None; 6], "not in a row");
    }

    #[test]
    fn a_fault_is_gone_after_a_minute_of_writes_that_do_not_fail_so() {
        let failures = || (0..3).map(|_| failed(Errno::IO));
        let sound = |writes: u32| (0..writes).map(|_| Ok(()));
        let ends_with = |writes: Vec<io::Result<()>>| play(&writes).pop().unwrap();
        let first = || std::iter::once(Ok(())).chain(failures());
        assert_eq!(ends_with(first().chain(sound(GONE - 1)).collect()), Some(FaultKind::DiskError));
        assert_eq!(ends_with(first().chain(sound(GONE)).collect()), None);
        let again = first().chain(sound(GONE - 1)).chain([failed(Errno::ROFS)]).chain(sound(GONE - 1));
        assert_eq!(ends_with(again.collect()), Some(FaultKind::DiskError), "it failed in between");
        let full = first().chain((0..GONE).map(|_| failed(Errno::NOSPC)));
        assert_eq!(ends_with(full.collect()), None);
    }

    #[test]
    fn a_directory_that_never_took_a_write_proves_nothing() {
        let rofs = || failed(Errno::ROFS);
        assert_eq!(play(&[rofs(), rofs(), rofs(), rofs()]), [None; 4]);
    }

    #[test]
    fn a_fault_from_the_first_write_on_is_suspected_at_once_and_proven_if_an_earlier_process_has_written_there()
     {
        let mut probe = Probe::by(["/data".into()], |_| failed(Errno::IO));
        let fault = Some(Fault { kind: FaultKind::DiskError, place: "/data".to_owned() });
        for _ in 0..4 {
            assert_eq!((probe.look(), probe.suspected()), (None, fault.clone()));
            assert!(!probe.still_fails() && !probe.is_sound() && probe.wants_trust());
        }
        probe.trust("/other");
        assert_eq!((probe.look(), probe.wants_trust()), (None, true));
        probe.trust("/data");
        assert_eq!((probe.suspected(), probe.wants_trust()), (fault.clone(), false), "until the next look");
        assert_eq!((probe.look(), probe.suspected()), (fault, None));
        assert!(probe.still_fails());
    }

    #[test]
    fn failures_after_a_write_that_did_not_fail_are_shown_and_are_no_suspicion() {
        let writes = std::sync::Mutex::new(vec![failed(Errno::IO), failed(Errno::IO), Ok(())]);
        let mut probe = Probe::by(["/data".into()], move |_| writes.lock().unwrap().pop().unwrap_or(Ok(())));
        let shown = (0..9).map(|_| {
            assert_eq!((probe.look(), probe.suspected()), (None, None));
            probe.unproven().is_some()
        });
        assert_eq!(shown.collect::<Vec<_>>(), [false, true, true, true, true, true, true, true, false]);
    }

    #[test]
    fn a_full_disk_a_quota_a_permission_and_a_missing_directory_are_no_fault() {
        for errno in [
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::ACCESS,
            Errno::PERM,
            Errno::NOENT,
            Errno::OPNOTSUPP,
            Errno::ISDIR,
            Errno::NOMEM,
            Errno::MFILE,
            Errno::FBIG,
            Errno::INTR,
            Errno::STALE,
        ] {
            let after = play(&[Ok(()), failed(errno), failed(errno), failed(errno), failed(errno)]);
            assert_eq!(after, [None; 5], "{errno:?}");
        }
    }

    #[test]
    fn a_directory_that_takes_writes_is_left_empty() {
        let directory = tempfile::tempdir().unwrap();
        let mut probe = Probe::new([directory.path().to_owned()]);
        assert_eq!((probe.look(), probe.directories[0].took_write), (None, true));
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
