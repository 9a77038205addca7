//! The blob port: blobs are rows when they are small, else files that a row refers to. A write
//! replaces the row in one commit, after a check of the fence.

mod parts;
mod range;

use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use reprieve_core::ports::{BlobRange, BlobStore, ListedBlob, Page, Upload, Version};
use reprieve_core::{BlobName, Bytes, ErrorKind, Fence, JobId, Result, Writer};

use self::parts::Parts;

use crate::damaged::Text;
use crate::failure::{Failure, Fault, Outcome};
use crate::files;
use crate::shared::Shared;
use crate::store::{PAGE, Ports, blocking, page_of};
use crate::writer::Tx;

/// The largest blob in the database. A row of this size takes a third of the time of a file, which
/// waits for the disk three times. With many writers at once a file is as fast, and it keeps short
/// the database's log, which every renewal uses as well.
const ROW_BYTES_MAX: usize = 64 << 10;

#[async_trait]
impl BlobStore for Ports {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        let read = range::get_range(&self.shared, name, 0..u64::MAX, None).await;
        let read = read.map_err(|failure| failure.during("read a blob"))?;
        Ok(read.map(|read| read.bytes.into()))
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        let write = Write { name: name.clone(), how: How::Put(writer.cloned()) };
        let put = write.make(Arc::clone(&self.shared), bytes).await;
        put.map(drop).map_err(|failure| failure.during("write a blob"))
    }

    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool> {
        let write = Write { name: name.clone(), how: How::Create(writer.clone()) };
        let created = write.make(Arc::clone(&self.shared), bytes).await;
        created.map_err(|failure| failure.during("create a blob"))
    }

    async fn exists(&self, name: &BlobName) -> Result<bool> {
        let (shared, name) = (Arc::clone(&self.shared), name.clone());
        blocking(move || exists(&shared, &name)).await.map_err(|failure| failure.during("look for a blob"))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>> {
        let (shared, prefix) = (Arc::clone(&self.shared), prefix.to_owned());
        blocking(move || list(&shared, &prefix)).await.map_err(|failure| failure.during("list blobs"))
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>> {
        let (shared, prefix) = (Arc::clone(&self.shared), prefix.to_owned());
        let at = at.map(str::to_owned);
        let list = move || page(&shared, &prefix, at.as_deref());
        blocking(list).await.map_err(|failure| failure.during("list blobs"))
    }

    async fn get_range(
        &self,
        name: &BlobName,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Option<BlobRange>> {
        let read = range::get_range(&self.shared, name, range, version).await;
        read.map_err(|failure| failure.during("read a blob"))
    }

    async fn put_part(&self, _: &BlobName, upload: &Upload, number: u32, bytes: Bytes) -> Result<()> {
        let (shared, upload) = (Arc::clone(&self.shared), upload.clone());
        let put = blocking(move || Parts::of(&upload, &shared)?.put(number, &bytes)).await;
        put.map_err(|failure| failure.during("write a part of a blob"))
    }

    async fn put_parts(
        &self,
        name: &BlobName,
        upload: &Upload,
        length: u64,
        writer: Option<&Writer>,
    ) -> Result<()> {
        let (shared, upload) = (Arc::clone(&self.shared), upload.clone());
        let write = Write { name: name.clone(), how: How::Put(writer.cloned()) };
        let publish = move || parts::publish(write, &shared, Parts::of(&upload, &shared)?, length);
        blocking(publish).await.map_err(|failure| failure.during("write a blob in parts"))
    }

    async fn delete(&self, name: &BlobName, writer: Option<&Writer>) -> Result<()> {
        self.delete_as(name, None, writer.cloned()).await.map(drop)
    }

    async fn delete_version(&self, name: &BlobName, version: &Version) -> Result<bool> {
        // A version that this store never returned is no blob's.
        let Ok(version) = version.as_str().parse() else { return Ok(false) };
        self.delete_as(name, Some(version), None).await
    }
}

impl Ports {
    /// Deletes the blob, if `version` is given only that one, and unless an owner after `writer` wrote
    /// it; returns whether there was one.
    async fn delete_as(&self, name: &BlobName, version: Option<i64>, writer: Option<Writer>) -> Result<bool> {
        let (shared, name) = (Arc::clone(&self.shared), name.clone());
        let apply = move |tx: &Tx<'_>| {
            if let Some(writer) = &writer
                && let Some(present) = Present::find(tx, &name)?
            {
                admit(tx, &name, Some(&present), writer)?;
            }
            delete(tx, &name, version)
        };
        let publish = move |deleted: Option<Present>| {
            let is_deleted = deleted.is_some();
            remove_file(&shared, deleted.and_then(|blob| blob.file));
            Ok(is_deleted)
        };
        let deleted = self.shared.writer.call(0, apply, publish).await;
        deleted.map_err(|failure| failure.during("delete a blob"))
    }
}

/// The bytes of a blob, as its row keeps them.
enum Content {
    Row(Vec<u8>),
    /// The name of a file in `blobs/`, and its length.
    File(String, usize),
}

/// One write of a blob.
struct Write {
    name: BlobName,
    how: How,
}

enum How {
    /// Replaces the blob.
    Put(Option<Writer>),
    /// Writes the blob if there is none.
    Create(Writer),
}

/// The result of a write in its transaction.
#[derive(Debug, PartialEq, Eq)]
enum Applied {
    /// Names the file of the replaced blob, which the caller removes after the commit.
    Written(Option<String>),
    /// A create found a blob.
    AlreadyThere,
}

impl Write {
    /// Makes the write; returns false if it was a create that found a blob.
    async fn make(self, shared: Arc<Shared>, bytes: Vec<u8>) -> Outcome<bool> {
        if bytes.len() > ROW_BYTES_MAX {
            blocking(move || self.in_file(&shared, &bytes)).await
        } else {
            self.in_row(shared, bytes).await
        }
    }

    async fn in_row(self, shared: Arc<Shared>, bytes: Vec<u8>) -> Outcome<bool> {
        let (weight, content) = (bytes.len(), Content::Row(bytes));
        let (applying, publishing) = (Arc::clone(&shared), Arc::clone(&shared));
        let apply = move |tx: &Tx<'_>| self.apply(tx, &applying, &content);
        let publish = move |applied| Ok(finish(&publishing, applied));
        shared.writer.call(weight, apply, publish).await
    }

    /// The file is written first, under a name that is never used again, so that a row never refers
    /// to an incomplete one.
    fn in_file(self, shared: &Arc<Shared>, bytes: &[u8]) -> Outcome<bool> {
        // The transaction checks this again. The check here avoids writing a large file in vain.
        if matches!(self.how, How::Create(_)) && exists(shared, &self.name)? {
            return Ok(false);
        }
        let (file, directory) = (shared.session()?.new_file_name(), shared.files.blobs());
        let path = directory.join(&file);
        files::write_new(&path, bytes)?;
        let content = Content::File(file, bytes.len());
        let synced = files::sync_directory(&directory).map_err(|error| Failure::io(&error, &directory));
        let applying = Arc::clone(shared);
        let apply = move |tx: &Tx<'_>| self.apply(tx, &applying, &content);
        // After a crash, a commit that failed may turn out to be applied. Then its session has
        // ended, and the sweep keeps a file that a row refers to. No row refers to the file of a
        // refused write.
        let written = synced.and_then(|()| shared.writer.call_blocking(apply, Ok));
        let applied = written.inspect_err(|_| files::remove_if_there(&path))?;
        if applied == Applied::AlreadyThere {
            files::remove_if_there(&path);
        }
        Ok(finish(shared, applied))
    }

    fn apply(&self, tx: &Tx<'_>, shared: &Shared, content: &Content) -> Result<Applied, Fault> {
        let present = Present::find(tx, &self.name)?;
        let owner = match &self.how {
            How::Put(None) => None,
            How::Put(Some(writer)) => Some(admit(tx, &self.name, present.as_ref(), writer)?),
            How::Create(_) if present.as_ref().is_some_and(|present| present.is_there(shared)) => {
                return Ok(Applied::AlreadyThere);
            }
            How::Create(Writer { job, fence }) => {
                let greatest = greatest_fence(tx, &self.name, present.as_ref(), job)?;
                let fence = greatest.map_or(*fence, |greatest| greatest.max(*fence));
                Some(Writer { job: job.clone(), fence })
            }
        };
        self.store(tx, present, owner.as_ref(), content)
    }

    /// Writes the row, in place of the present one.
    fn store(
        &self,
        tx: &Tx<'_>,
        present: Option<Present>,
        owner: Option<&Writer>,
        content: &Content,
    ) -> Result<Applied, Fault> {
        let name = self.name.as_str();
        let (bytes, data, file) = match content {
            Content::Row(data) => (data.len(), Some(data), None),
            Content::File(file, bytes) => (*bytes, None, Some(file)),
        };
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // SQLite's integers are signed; the bits are preserved.
        let (job, fence) =
            owner.map(|owner| (owner.job.as_str(), owner.fence.as_u64().cast_signed())).unzip();
        let Some(present) = present else {
            tx.execute(
                "INSERT INTO blob(name, at, version, job, fence, bytes, file, data)
                 VALUES(?1, ?2, random(), ?3, ?4, ?5, ?6, ?7)",
                (name, tx.now, job, fence, bytes, file, data),
            )?;
            return Ok(Applied::Written(None));
        };
        if let (Some((before, fence)), Some(job)) = (&present.owner, job)
            && before != job
        {
            keep_fence(tx, name, before, *fence)?;
        }
        // A producer's write, without an owner, keeps the last owner's fence.
        tx.execute(
            "UPDATE blob SET at = ?2, version = random(), job = coalesce(?3, job), fence = coalesce(?4, fence),
             bytes = ?5, file = ?6, data = ?7 WHERE name = ?1",
            (name, tx.now, job, fence, bytes, file, data),
        )?;
        Ok(Applied::Written(present.file))
    }
}

/// Removes the replaced blob's file; returns whether there was a write.
fn finish(shared: &Shared, applied: Applied) -> bool {
    match applied {
        Applied::Written(replaced) => {
            remove_file(shared, replaced);
            true
        }
        Applied::AlreadyThere => false,
    }
}

fn remove_file(shared: &Shared, file: Option<String>) {
    if let Some(file) = file {
        files::remove_if_there(&shared.files.blobs().join(file));
    }
}

/// A blob's row without its bytes.
struct Present {
    /// The last owner that wrote the blob, and its fence.
    owner: Option<(String, i64)>,
    file: Option<String>,
}

impl Present {
    fn find(tx: &Tx<'_>, name: &BlobName) -> rusqlite::Result<Option<Self>> {
        tx.row("SELECT job, fence, file FROM blob WHERE name = ?1", [name.as_str()], Self::read)
    }

    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let (job, fence): (Option<Text>, Option<i64>) = (row.get(0)?, row.get(1)?);
        let (job, file) = (job.map(|Text(job)| job), row.get::<_, Option<Text>>(2)?);
        Ok(Self { owner: job.zip(fence), file: file.map(|Text(file)| file) })
    }

    /// A blob whose file a person removed does not exist.
    fn is_there(&self, shared: &Shared) -> bool {
        self.file.as_ref().is_none_or(|file| !files::is_missing(&shared.files.blobs().join(file)))
    }
}

/// Returns the writer, unless a later owner of its job has written the blob.
fn admit(tx: &Tx<'_>, name: &BlobName, present: Option<&Present>, writer: &Writer) -> Result<Writer, Fault> {
    let Writer { job, fence } = writer;
    if greatest_fence(tx, name, present, job)?.is_some_and(|greatest| greatest > *fence) {
        return Err(Fault::Refused(Failure::new(
            ErrorKind::Superseded,
            format!("a later owner of job {job} has written {name}; this one must stop"),
        )));
    }
    Ok(writer.clone())
}

/// Returns the greatest fence under which the job wrote the blob. The row has the last owner's; the
/// table `fence` has those of the owners before, and of deleted blobs.
fn greatest_fence(
    tx: &Tx<'_>,
    name: &BlobName,
    present: Option<&Present>,
    job: &JobId,
) -> Result<Option<Fence>, Fault> {
    const FIND: &str = "SELECT fence FROM fence WHERE name = ?1 AND job = ?2";
    let own = |(owner, fence): &(String, i64)| (owner == job.as_str()).then_some(*fence);
    let greatest = match present.and_then(|present| present.owner.as_ref()).and_then(own) {
        Some(fence) => Some(fence),
        None => tx.row(FIND, (name.as_str(), job.as_str()), |row| row.get(0))?,
    };
    Ok(greatest.map(|greatest| Fence::from_u64(greatest.cast_unsigned())))
}

/// Keeps a fence that the blob's row loses. It is not less than one that is kept already.
fn keep_fence(tx: &Tx<'_>, name: &str, job: &str, fence: i64) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT INTO fence(name, job, fence, at) VALUES(?1, ?2, ?3, ?4)
         ON CONFLICT(name, job) DO UPDATE SET fence = excluded.fence, at = excluded.at",
        (name, job, fence, tx.now),
    )?;
    Ok(())
}

/// Deletes the row, if `version` is given only of that version; returns what it was.
fn delete(tx: &Tx<'_>, name: &BlobName, version: Option<i64>) -> Result<Option<Present>, Fault> {
    const DELETE: &str =
        "DELETE FROM blob WHERE name = ?1 AND version = coalesce(?2, version) RETURNING job, fence, file";
    let deleted = tx.row(DELETE, (name.as_str(), version), Present::read)?;
    if let Some((job, fence)) = deleted.as_ref().and_then(|blob| blob.owner.as_ref()) {
        keep_fence(tx, name.as_str(), job, *fence)?;
    }
    Ok(deleted)
}

/// `place` has the wrong number of bytes.
fn damaged(name: &BlobName, place: impl Display, bytes: u64, length: u64) -> Failure {
    let message = format!("the blob {name} is damaged: its {place} has {bytes} bytes instead of {length}");
    Failure::new(ErrorKind::Corrupt, message)
}

fn exists(shared: &Shared, name: &BlobName) -> Outcome<bool> {
    const FIND: &str = "SELECT job, fence, file FROM blob WHERE name = ?1";
    let present = shared.reader.row(FIND, [name.as_str()], Present::read)?;
    Ok(present.is_some_and(|present| present.is_there(shared)))
}

fn list(shared: &Shared, prefix: &str) -> Outcome<Vec<BlobName>> {
    // The first statement reads the index only, and the second an index of the blobs with files:
    // a list never reads the bytes of the blobs beside it.
    const NAMES: &str = "SELECT name FROM blob WHERE name >= ?1 ORDER BY name";
    const FILES: &str = "SELECT name, file FROM blob WHERE file IS NOT NULL AND name >= ?1 ORDER BY name";
    let (names, files) = shared.reader.read(|snapshot| {
        let mut names = snapshot.prepare_cached(NAMES)?;
        let names = names.query_map([prefix], |row| row.get(0).map(|Text(name)| name))?;
        let mut files = snapshot.prepare_cached(FILES)?;
        let file = |row: &rusqlite::Row<'_>| {
            let (Text(name), Text(file)) = (row.get(0)?, row.get(1)?);
            Ok((name, file))
        };
        let files = files.query_map([prefix], file)?;
        Ok((
            take_prefix(names, prefix, String::as_str)?,
            take_prefix(files, prefix, |(name, _): &(String, String)| name)?,
        ))
    })?;
    let root = shared.files.blobs();
    let is_missing = |(_, file): &(String, String)| files::is_missing(&root.join(file));
    let missing: HashSet<String> = files.into_iter().filter(is_missing).map(|(name, _)| name).collect();
    let there = names.into_iter().filter(|name| !missing.contains(name));
    // A name that is no blob's was not written by Reprieve.
    Ok(there.filter_map(|name| BlobName::parse(name).ok()).collect())
}

/// A list in parts. Reads no blob's bytes: they come last in a row.
fn page(shared: &Shared, prefix: &str, at: Option<&str>) -> Outcome<Page<ListedBlob>> {
    const LIST: &str = "SELECT name, bytes, at, version FROM blob WHERE name >= ?1 AND name > ?2
         ORDER BY name LIMIT ?3";
    let row = |row: &rusqlite::Row<'_>| {
        let (Text(name), bytes): (_, i64) = (row.get(0)?, row.get(1)?);
        Ok((name, bytes.cast_unsigned(), row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
    };
    let listed = shared.reader.read(|snapshot| {
        let mut list = snapshot.prepare_cached(LIST)?;
        let rows = list.query_map((prefix, at.unwrap_or_default(), PAGE), row)?;
        take_prefix(rows, prefix, |(name, ..)| name)
    })?;
    let page = page_of(&shared.clock, listed, |(name, ..)| name.clone());
    // A name that is no blob's was not written by Reprieve.
    let entry = |(name, bytes, modified_unix_ms, version): (String, u64, i64, i64)| {
        let (name, version) = (BlobName::parse(name).ok()?, Version::new(version.to_string()));
        Some(ListedBlob { name, bytes, modified_unix_ms, version })
    };
    Ok(page.filter_map(entry))
}

/// Reads rows while their name has the prefix.
fn take_prefix<T>(
    rows: impl Iterator<Item = rusqlite::Result<T>>,
    prefix: &str,
    name: impl Fn(&T) -> &str,
) -> rusqlite::Result<Vec<T>> {
    rows.take_while(|row| row.as_ref().is_ok_and(|row| name(row).starts_with(prefix)) || row.is_err())
        .collect()
}
