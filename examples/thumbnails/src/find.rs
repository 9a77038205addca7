//! Finds pictures in a directory or in the store.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use reprieve::BlobName;
use reprieve::ports::BlobStore;

use crate::job::{input, output};

/// The file name extensions of pictures, in lower case.
const EXTENSIONS: [&str; 5] = ["gif", "jpeg", "jpg", "png", "webp"];

/// A picture on disk.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Picture {
    /// The path relative to the directory, with `/` as the separator on every system.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// A file or directory that was skipped, and why.
#[derive(Debug)]
pub(crate) struct Skipped {
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Ordered by name.
    pub(crate) pictures: Vec<Picture>,
    pub(crate) skipped: Vec<Skipped>,
}

/// Searches `dir` recursively for files with a picture's extension. Does not follow symbolic links.
///
/// # Errors
/// When `dir` itself can't be read. Unreadable files and directories below it are skipped.
pub(crate) fn pictures(dir: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let mut entries = fs::read_dir(dir)?.map(|entry| (dir.to_owned(), entry)).collect::<Vec<_>>();
    while let Some((parent, entry)) = entries.pop() {
        let (path, kind) = match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
            Ok(entry) => entry,
            Err(error) => {
                found.skip(parent, error.to_string());
                continue;
            }
        };
        if kind.is_dir() {
            match fs::read_dir(&path) {
                Ok(below) => entries.extend(below.map(|entry| (path.clone(), entry))),
                Err(error) => found.skip(path, error.to_string()),
            }
        } else if kind.is_file() && is_picture(&path) {
            match name(dir, &path) {
                Ok(name) => found.pictures.push(Picture { name, path }),
                Err(reason) => found.skip(path, reason),
            }
        }
    }
    found.pictures.sort();
    found.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Lists the pictures in the store under `photos/`, or under `photos/{folder}/`, ordered by name.
/// Blobs whose names are not valid [`BlobName`]s are not listed.
///
/// # Errors
/// When the store fails.
pub(crate) async fn uploaded(
    blobs: &dyn BlobStore,
    folder: &str,
) -> reprieve::Result<(Vec<String>, Vec<Skipped>)> {
    let (mut pictures, mut skipped) = (Vec::new(), Vec::new());
    for blob in blobs.list(&prefix(folder)).await? {
        let Some(name) = blob.as_str().strip_prefix(&input("")).filter(|name| is_picture(Path::new(name)))
        else {
            continue;
        };
        match check_name(name) {
            Ok(()) => pictures.push(name.to_owned()),
            Err(reason) => skipped.push(Skipped { path: blob.as_str().into(), reason }),
        }
    }
    Ok((pictures, skipped))
}

/// Returns the prefix of the input blobs in `folder`.
pub(crate) fn prefix(folder: &str) -> String {
    match folder.trim_matches('/') {
        "" => input(""),
        folder => input(&format!("{folder}/")),
    }
}

impl Found {
    fn skip(&mut self, path: PathBuf, reason: String) {
        self.skipped.push(Skipped { path, reason });
    }
}

fn is_picture(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase();
    EXTENSIONS.contains(&extension.as_str())
}

/// Returns the picture's name in the store, or why it can't have one.
fn name(dir: &Path, path: &Path) -> Result<String, String> {
    let relative = path.strip_prefix(dir).map_err(|error| error.to_string())?;
    let parts: Option<Vec<&str>> = relative.iter().map(OsStr::to_str).collect();
    let name = parts.ok_or("the name is not valid Unicode; rename the file")?.join("/");
    check_name(&name)?;
    Ok(name)
}

/// Checks that the thumbnail of the picture called `name` has a valid blob name.
fn check_name(name: &str) -> Result<(), String> {
    // The thumbnail's blob has the longest of the names.
    BlobName::parse(output(name, "png")).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_found_in_order_at_any_depth_and_in_any_case() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        for file in ["z.JPG", "a.webp", "b/c/d.Png", "b/e.gif", "b.jpeg", "notes.txt", "jpg", "b/.png"] {
            fs::write(dir.path().join(file), b"").unwrap();
        }
        fs::create_dir(dir.path().join("album.jpg")).unwrap();
        let found = pictures(dir.path()).unwrap();
        let names: Vec<_> = found.pictures.iter().map(|picture| picture.name.as_str()).collect();
        assert_eq!(names, ["a.webp", "b.jpeg", "b/c/d.Png", "b/e.gif", "z.JPG"]);
        assert!(found.skipped.is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("a.jpg"), b"").unwrap();
        std::os::unix::fs::symlink(other.path(), dir.path().join("directory")).unwrap();
        std::os::unix::fs::symlink(other.path().join("a.jpg"), dir.path().join("file.jpg")).unwrap();
        assert!(pictures(dir.path()).unwrap().pictures.is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_picture_with_an_invalid_name_is_skipped_and_reported() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let (long, not_unicode) = (format!("{}.jpg", "x".repeat(240)), OsStr::from_bytes(b"\xff.jpg"));
        for file in [OsStr::new("10:30.jpg"), OsStr::new(&long), not_unicode, OsStr::new("fine.jpg")] {
            fs::write(dir.path().join(file), b"").unwrap();
        }
        let found = pictures(dir.path()).unwrap();
        assert_eq!(found.pictures.len(), 1);
        assert_eq!(found.skipped.len(), 3, "{:?}", found.skipped);
    }

    #[tokio::test]
    async fn uploaded_pictures_are_found_by_folder() {
        let store = reprieve::memory::store();
        let long = format!("photos/{}.jpg", "x".repeat(233));
        for name in [
            "photos/b/c.PNG",
            "photos/a.jpg",
            "photos/b/notes.txt",
            "photos/bc.gif",
            "thumbnails/a.jpg",
            &long,
        ] {
            store.blobs.put(&BlobName::parse(name).unwrap(), Vec::new(), None).await.unwrap();
        }
        let (pictures, skipped) = uploaded(store.blobs.as_ref(), "").await.unwrap();
        assert_eq!(pictures, ["a.jpg", "b/c.PNG", "bc.gif"]);
        assert_eq!(skipped.iter().map(|one| one.path.to_str().unwrap()).collect::<Vec<_>>(), [long]);
        for folder in ["b", "b/", "/b/"] {
            assert_eq!(uploaded(store.blobs.as_ref(), folder).await.unwrap().0, ["b/c.PNG"], "{folder}");
        }
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        assert!(pictures(Path::new("/nowhere/at/all")).is_err());
    }
}
