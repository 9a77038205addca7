//! The blob port: files under their own names, published under the gate after a check of the fence.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use reprieve_core::ports::BlobStore;
use reprieve_core::{BlobName, ErrorKind, Fence, JobId, Result, Writer};

use crate::failure::{Failure, Fault, Outcome};
use crate::files;
use crate::place;
use crate::shared::Shared;
use crate::store::{Ports, blocking};
use crate::writer::Tx;

const FIND: &str = "SELECT path FROM blob WHERE name = ?1";

#[async_trait]
impl BlobStore for Ports {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        let (shared, name) = (Arc::clone(&self.shared), name.clone());
        blocking(move || get(&shared, &name)).await.map_err(|failure| failure.during("read a blob"))
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        let (shared, name, writer) = (Arc::clone(&self.shared), name.clone(), writer.cloned());
        let put = blocking(move || put(&shared, &name, &bytes, writer));
        put.await.map_err(|failure| failure.during("write a blob"))
    }

    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool> {
        let (shared, name, writer) = (Arc::clone(&self.shared), name.clone(), writer.clone());
        let created = blocking(move || create(&shared, &name, &bytes, writer));
        created.await.map_err(|failure| failure.during("create a blob"))
    }

    async fn exists(&self, name: &BlobName) -> Result<bool> {
        let (shared, name) = (Arc::clone(&self.shared), name.clone());
        blocking(move || exists(&shared, &name)).await.map_err(|failure| failure.during("look for a blob"))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>> {
        let (shared, prefix) = (Arc::clone(&self.shared), prefix.to_owned());
        blocking(move || list(&shared, &prefix)).await.map_err(|failure| failure.during("list blobs"))
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        let (root, name) = (self.shared.files.blobs(), name.clone());
        let apply = move |tx: &Tx<'_>| {
            const DELETE: &str = "DELETE FROM blob WHERE name = ?1 RETURNING path";
            Ok(tx.row(DELETE, [name.as_str()], |row| row.get::<_, String>(0))?)
        };
        let remove = move |path: Option<String>| path.map_or(Ok(()), |path| unpublish(&root, &path));
        self.shared.writer.call(0, apply, remove).await.map_err(|failure| failure.during("delete a blob"))
    }
}

fn get(shared: &Shared, name: &BlobName) -> Outcome<Option<Vec<u8>>> {
    let root = shared.files.blobs();
    let find = || shared.reader.row(FIND, [name.as_str()], |row| row.get::<_, String>(0));
    let mut path = find()?;
    loop {
        let Some(found) = path else { return Ok(None) };
        let file = root.join(&found);
        let bytes = match fs::read(&file) {
            Ok(bytes) => Some(bytes),
            // Its writer died between the commit and the rename, or a person removed it: the blob
            // does not exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::io(&error, &file)),
        };
        // If the blob was deleted meanwhile, the file may already have been another blob's.
        path = find()?;
        if path.as_ref() == Some(&found) {
            return Ok(bytes);
        }
    }
}

/// Writes the bytes to the disk first. Then one transaction checks the fence and reserves the name.
/// Then, before any other process can write, the file is renamed to it. A death in between leaves
/// the former blob intact, and the fence of an owner whose put did not return and will be repeated.
fn put(shared: &Arc<Shared>, name: &BlobName, bytes: &[u8], writer: Option<Writer>) -> Outcome<()> {
    let temporary = shared.files.temporary().join(shared.session()?.new_file_name());
    files::write_new(&temporary, bytes)?;
    let root = shared.files.blobs();
    let (apply_root, publish_root, from) = (root.clone(), root.clone(), temporary.clone());
    let name = name.clone();
    let published = shared.writer.call_blocking(
        move |tx| {
            check_fence(tx, &name, writer.as_ref())?;
            path_of(tx, &apply_root, &name)
        },
        move |path| publish(&from, &publish_root, &path).map(|()| path),
    );
    let path = published.inspect_err(|_| files::remove_if_there(&temporary))?;
    sync_directories(&root, &path)
}

/// Like [`put`], but renames the file only if the blob does not exist. This is decided under the
/// gate and after the commit, when the files of all earlier writes have their names, including
/// those of the same transaction.
fn create(shared: &Arc<Shared>, name: &BlobName, bytes: &[u8], writer: Writer) -> Outcome<bool> {
    // Avoids writing a large file in vain.
    if exists(shared, name)? {
        return Ok(false);
    }
    let temporary = shared.files.temporary().join(shared.session()?.new_file_name());
    files::write_new(&temporary, bytes)?;
    let root = shared.files.blobs();
    let (apply_root, publish_root, from) = (root.clone(), root.clone(), temporary.clone());
    let name = name.clone();
    let created = shared.writer.call_blocking(
        move |tx| {
            let there = tx.row(FIND, [name.as_str()], |row| row.get::<_, String>(0))?;
            if there.is_some_and(|path| apply_root.join(path).exists()) {
                return Ok(None);
            }
            raise_fence(tx, &name, &writer)?;
            path_of(tx, &apply_root, &name).map(Some)
        },
        move |path| match path.filter(|path| !publish_root.join(path).exists()) {
            Some(path) => publish(&from, &publish_root, &path).map(|()| Some(path)),
            None => Ok(None),
        },
    );
    match created {
        Ok(Some(path)) => sync_directories(&root, &path).map(|()| true),
        refused => {
            files::remove_if_there(&temporary);
            refused.map(|_| false)
        }
    }
}

/// Waits until the names of the blob's file and of its directories are on the disk. Not under the
/// gate, because other processes need not wait for it.
fn sync_directories(root: &Path, path: &str) -> Outcome<()> {
    for directory in root.join(path).ancestors().skip(1).take_while(|directory| directory.starts_with(root)) {
        match files::sync_directory(directory) {
            Ok(()) => {}
            // Another process deleted the directory again, with its last file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::io(&error, directory)),
        }
    }
    Ok(())
}

fn check_fence(tx: &Tx<'_>, name: &BlobName, writer: Option<&Writer>) -> Result<(), Fault> {
    let Some(Writer { job, fence }) = writer else { return Ok(()) };
    if greatest_fence(tx, name, job)?.is_some_and(|greatest| greatest > *fence) {
        return Err(Fault::Refused(Failure::new(
            ErrorKind::Superseded,
            format!("a later owner of job {job} has written {name}; this one must stop"),
        )));
    }
    set_fence(tx, name, job, *fence)
}

/// Raises the stored fence to the writer's, if that is greater.
fn raise_fence(tx: &Tx<'_>, name: &BlobName, writer: &Writer) -> Result<(), Fault> {
    let Writer { job, fence } = writer;
    let greatest = greatest_fence(tx, name, job)?;
    set_fence(tx, name, job, greatest.map_or(*fence, |greatest| greatest.max(*fence)))
}

fn greatest_fence(tx: &Tx<'_>, name: &BlobName, job: &JobId) -> Result<Option<Fence>, Fault> {
    const FIND: &str = "SELECT fence FROM fence WHERE name = ?1 AND job = ?2";
    let greatest = tx.row(FIND, (name.as_str(), job.as_str()), |row| row.get::<_, i64>(0))?;
    // SQLite's integers are signed; the bits are preserved.
    Ok(greatest.map(|greatest| Fence::from_u64(greatest.cast_unsigned())))
}

fn set_fence(tx: &Tx<'_>, name: &BlobName, job: &JobId, fence: Fence) -> Result<(), Fault> {
    tx.execute(
        "INSERT INTO fence(name, job, fence, at) VALUES(?1, ?2, ?3, ?4)
         ON CONFLICT(name, job) DO UPDATE SET fence = excluded.fence, at = excluded.at",
        (name.as_str(), job.as_str(), fence.as_u64().cast_signed(), tx.now),
    )?;
    Ok(())
}

/// Returns the blob's path; assigns one if it has none.
fn path_of(tx: &Tx<'_>, root: &Path, name: &BlobName) -> Result<String, Fault> {
    if let Some(path) = tx.row(FIND, [name.as_str()], |row| row.get(0))? {
        return Ok(path);
    }
    let path = place::choose(tx, root, name)?;
    tx.execute(
        "INSERT INTO blob(name, path, place) VALUES(?1, ?2, ?3)",
        (name.as_str(), &path, place::folded(&path)),
    )?;
    Ok(path)
}

fn publish(from: &Path, root: &Path, path: &str) -> Outcome<()> {
    let to = root.join(path);
    let directory = to.parent().unwrap_or(root);
    fs::create_dir_all(directory)
        .and_then(|()| fs::rename(from, &to))
        .map_err(|error| Failure::io(&error, &to))
}

/// Removes the file, and the directories that become empty.
fn unpublish(root: &Path, path: &str) -> Outcome<()> {
    let file = root.join(path);
    match fs::remove_file(&file) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Failure::io(&error, &file)),
    }
    for directory in file.ancestors().skip(1).take_while(|directory| *directory != root) {
        // Removing a directory fails at the first that is not empty, where the loop ends.
        if fs::remove_dir(directory).is_err() {
            break;
        }
    }
    Ok(())
}

fn exists(shared: &Shared, name: &BlobName) -> Outcome<bool> {
    let path = shared.reader.row(FIND, [name.as_str()], |row| row.get::<_, String>(0))?;
    Ok(path.is_some_and(|path| shared.files.blobs().join(path).exists()))
}

fn list(shared: &Shared, prefix: &str) -> Outcome<Vec<BlobName>> {
    let rows = shared.reader.read(|snapshot| {
        let mut statement =
            snapshot.prepare_cached("SELECT name, path FROM blob WHERE name >= ?1 ORDER BY name")?;
        let mut rows = statement.query([prefix])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            if !name.starts_with(prefix) {
                break;
            }
            found.push((name, row.get::<_, String>(1)?));
        }
        Ok(found)
    })?;
    let root = shared.files.blobs();
    let there = rows.into_iter().filter(|(_, path)| root.join(path).exists());
    let name = |(name, _)| {
        BlobName::parse(name).map_err(|error| Failure::new(ErrorKind::Corrupt, error.to_string()))
    };
    there.map(name).collect()
}
