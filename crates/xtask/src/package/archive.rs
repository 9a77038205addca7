//! A gzipped tar archive that depends on nothing but its entries and one time.

use std::collections::BTreeSet;
use std::io::{self, Write};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A file of the archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) content: Vec<u8>,
}

impl Entry {
    pub(super) fn new(path: &str, mode: u32, content: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode, content }
    }
}

/// Archives the entries in their order, with the directories they are in first.
pub(super) fn compress(entries: &[Entry], mtime: u64) -> io::Result<Vec<u8>> {
    // Neither a name nor a time, and no system: else the bytes depend on when and where.
    let gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    let mut tar = Builder::new(gzip);
    let directories = entries.iter().filter_map(|entry| Some(entry.path.rsplit_once('/')?.0));
    for directory in directories.collect::<BTreeSet<_>>() {
        append(&mut tar, EntryType::Directory, &format!("{directory}/"), 0o755, mtime, &[])?;
    }
    for Entry { path, mode, content } in entries {
        append(&mut tar, EntryType::Regular, path, *mode, mtime, content)?;
    }
    tar.into_inner()?.finish()
}

fn append(
    tar: &mut Builder<impl Write>,
    kind: EntryType,
    path: &str,
    mode: u32,
    mtime: u64,
    content: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(mtime);
    header.set_size(content.len() as u64);
    tar.append_data(&mut header, path, content)
}
