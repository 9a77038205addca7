//! The file system that a path is on: its kind, and what is free.

use std::path::Path;

/// The kind of a file system, by its consequence for an embedded store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A disk of this machine.
    Local,
    /// A network file system: its locks are not those of one kernel.
    Network,
    /// Lost when the machine stops.
    Memory,
    /// A container's layer, lost when the container stops.
    Layer,
}

impl Kind {
    /// By the name that the kernel has for it.
    pub(super) fn of(name: &str) -> Self {
        const NETWORK: [&str; 14] = [
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "glusterfs",
            "gpfs",
            "lustre",
            "nfs",
            "nfs4",
            "smb3",
            "smbfs",
            "vboxsf",
            "virtiofs",
        ];
        match name {
            "tmpfs" | "ramfs" => Self::Memory,
            "overlay" | "aufs" => Self::Layer,
            // Any program, such as sshfs or blobfuse2; ntfs-3g and similar are `fuseblk` and are
            // disks.
            name if name.starts_with("fuse.") => Self::Network,
            name if NETWORK.contains(&name) => Self::Network,
            _ => Self::Local,
        }
    }
}

/// The name of the file system that `directory` is on; `None` where the system does not report it.
pub(super) fn file_system(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    mounted(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &directory)
}

/// The free bytes of the file system; `None` where the system does not report them.
#[cfg(unix)]
pub(super) fn free(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(not(unix))]
pub(super) fn free(_directory: &Path) -> Option<u64> {
    None
}

/// The file system of the mount that `directory` is in: the deepest, of two at the same place the
/// later.
/// <https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html>
fn mounted(mounts: &str, directory: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let point = unescaped(mount.split(' ').nth(4)?);
        let kind = kind.split(' ').next()?.to_owned();
        directory.starts_with(&point).then(|| (Path::new(&point).components().count(), kind))
    };
    mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

/// Blanks and the like are written as three octal digits.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_and_of_two_the_later_is_the_one() {
        let mounts = "\
22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw
30 22 8:1 / /data rw - ext4 /dev/sda1 rw
31 30 0:31 / /data/shared\\040files rw - nfs4 server:/x rw
32 30 0:32 / /data/shared\\040files rw - cifs server:/y rw
";
        for (path, kind) in [
            ("/", "overlay"),
            ("/database", "overlay"),
            ("/data", "ext4"),
            ("/data/x/y", "ext4"),
            ("/data/shared files/x", "cifs"),
        ] {
            assert_eq!(mounted(mounts, Path::new(path)).as_deref(), Some(kind), "{path}");
        }
        assert_eq!(mounted("no mounts", Path::new("/")), None);
    }

    #[test]
    fn kinds_are_known_by_name() {
        for (name, kind) in [
            ("ext4", Kind::Local),
            ("xfs", Kind::Local),
            ("nfs4", Kind::Network),
            ("fuse.blobfuse2", Kind::Network),
            ("fuseblk", Kind::Local),
            ("tmpfs", Kind::Memory),
            ("overlay", Kind::Layer),
        ] {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_s_own_are_known() {
        let here = std::env::temp_dir();
        assert!(file_system(&here).is_some_and(|kind| !kind.is_empty()));
        assert!(free(&here).is_some_and(|free| free > 0));
    }
}
