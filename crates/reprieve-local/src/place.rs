//! The path of a blob's file: the blob's own name where possible, because people look into that
//! directory.
//!
//! That is impossible where the file system treats two names as the same (`A` and `a`), where one
//! name is another's directory (`a` and `a/b`), or where a character or name is reserved on
//! Windows. Such a name gets a `~2` before its extension, or `_` for the character. The database
//! maps names to paths.

use std::path::Path;

use reprieve_core::BlobName;

use crate::failure::Fault;
use crate::writer::Tx;

/// Device names on Windows, with any extension.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

/// The form of a path under which it is compared: two paths with the same form may be one file
/// somewhere.
pub(crate) fn folded(path: &str) -> String {
    path.to_lowercase()
}

/// Chooses a path under `root` that no other blob has, as close to the blob's name as possible.
pub(crate) fn choose(tx: &Tx<'_>, root: &Path, name: &BlobName) -> Result<String, Fault> {
    let mut path = String::new();
    let mut segments = name.as_str().split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_file = segments.peek().is_none();
        let segment = portable(segment);
        let mut variant = 1;
        path = loop {
            let candidate = join(&path, &numbered(&segment, variant));
            let taken =
                if is_file { file_is_taken(tx, root, &candidate)? } else { is_a_file(tx, root, &candidate)? };
            if !taken {
                break candidate;
            }
            variant += 1;
        };
    }
    Ok(path)
}

fn join(directory: &str, segment: &str) -> String {
    if directory.is_empty() { segment.to_owned() } else { format!("{directory}/{segment}") }
}

/// Checks both the database and the file system. A blob's file may not have its name yet, so the
/// database is needed. Only the file system knows which names it treats as the same, and files of
/// other origin must not be overwritten.
fn file_is_taken(tx: &Tx<'_>, root: &Path, path: &str) -> Result<bool, Fault> {
    let place = folded(path);
    // '0' follows '/' in ASCII, so this range contains the blobs for which this path would have to
    // be a directory.
    let below = (format!("{place}/"), format!("{place}0"));
    Ok(has_blob(tx, &place)?
        || tx.row("SELECT 1 FROM blob WHERE place > ?1 AND place < ?2 LIMIT 1", below, |_| Ok(()))?.is_some()
        || root.join(path).symlink_metadata().is_ok())
}

fn is_a_file(tx: &Tx<'_>, root: &Path, path: &str) -> Result<bool, Fault> {
    Ok(has_blob(tx, &folded(path))? || root.join(path).symlink_metadata().is_ok_and(|found| !found.is_dir()))
}

fn has_blob(tx: &Tx<'_>, place: &str) -> rusqlite::Result<bool> {
    Ok(tx.row("SELECT 1 FROM blob WHERE place = ?1", [place], |_| Ok(()))?.is_some())
}

/// Replaces what some file system forbids in a segment.
fn portable(segment: &str) -> String {
    let mut portable = segment.replace(['<', '>', '"', '|', '?', '*'], "_");
    if let Some(end) = portable.strip_suffix(['.', ' ']).map(str::len) {
        portable.replace_range(end.., "_");
    }
    let stem = portable.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let device = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    if DEVICES.contains(&device) && stem.len() <= device.len() + 1 {
        portable.insert(0, '_');
    }
    portable
}

/// `cat.jpg`, `cat~2.jpg`, `cat~3.jpg`, …
fn numbered(segment: &str, variant: u32) -> String {
    match segment.rfind('.') {
        _ if variant == 1 => segment.to_owned(),
        Some(dot) if dot > 0 => format!("{}~{variant}{}", &segment[..dot], &segment[dot..]),
        _ => format!("{segment}~{variant}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_stay_and_reserved_ones_change() {
        for (segment, wanted) in [
            ("IMG_0001.JPG", "IMG_0001.JPG"),
            ("été 猫.png", "été 猫.png"),
            (".hidden", ".hidden"),
            ("what?*.txt", "what__.txt"),
            ("end.", "end_"),
            ("end ", "end_"),
            ("con", "_con"),
            ("NUL.txt", "_NUL.txt"),
            ("COM1", "_COM1"),
            ("com10", "com10"),
            ("contract.pdf", "contract.pdf"),
        ] {
            assert_eq!(portable(segment), wanted);
        }
    }

    #[test]
    fn variants_keep_their_extension() {
        for (segment, variant, wanted) in [
            ("cat.jpg", 1, "cat.jpg"),
            ("cat.jpg", 2, "cat~2.jpg"),
            ("cat", 3, "cat~3"),
            (".cat", 2, ".cat~2"),
            ("a.tar.gz", 2, "a.tar~2.gz"),
        ] {
            assert_eq!(numbered(segment, variant), wanted);
        }
    }
}
