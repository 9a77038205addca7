//! The record port: records are rows. Payloads are rows when they are small, else files that a row
//! refers to.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::ports::{
    ListedPayload, ListedRecord, Page, Payload, RecordStore, RecordWrite, Stored, Version,
};
use reprieve_core::{Bytes, ErrorKind, JobId, PayloadName, Result};
use rusqlite::types::ValueRef;
use tokio::time::sleep;

use crate::damaged::{Data, Text};
use crate::failure::{Failure, Fault, Outcome};
use crate::files;
use crate::shared::Shared;
use crate::store::{PAGE, Ports, blocking, page_of};
use crate::writer::Tx;

/// The largest payload in the database. A larger one is written faster as a file, and the
/// database's log, which every renewal uses as well, stays short.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// The largest buffer that is allocated by the length in a row, which may be damaged.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// How often a file is read again that the disk can't read, and after what time.
const READS_AGAIN: u32 = 4;
const READ_AGAIN_AFTER: Duration = Duration::from_millis(500);

const FIND_VERSION: &str = "SELECT version FROM record WHERE job = ?1";

#[async_trait]
impl RecordStore for Ports {
    async fn load(&self, job: &JobId) -> Result<Option<Stored>> {
        const FIND: &str = "SELECT data, version, at FROM record WHERE job = ?1";
        let (shared, job) = (Arc::clone(&self.shared), job.clone());
        let stored = |row: &rusqlite::Row<'_>| {
            let version = Version::new(row.get::<_, i64>(1)?.to_string());
            let Data(bytes) = row.get(0)?;
            Ok(Stored { bytes, version, modified_unix_ms: row.get(2)? })
        };
        let loaded = blocking(move || shared.reader.row(FIND, [job.as_str()], stored));
        loaded.await.map_err(|failure| failure.during("load a record"))
    }

    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version> {
        let (shared, expected) = (Arc::clone(&self.shared), Expected::read(expected));
        let RecordWrite { record, payload, obsolete, note } = write;
        let change = Change { job: job.clone(), expected, record, note, payload: None, obsolete };
        let written = match payload {
            Some(payload) if payload.bytes.len() > INLINE_BYTES_MAX => {
                blocking(move || change.with_file(&shared, &payload)).await
            }
            payload => Change { payload: payload.map(Row::inline), ..change }.without_file(shared).await,
        };
        written.map_err(|failure| failure.during("write a record"))
    }

    async fn remove(&self, job: &JobId, expected: &Version, payloads: &[PayloadName]) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (job, expected, payloads) = (job.clone(), Expected::read(Some(expected)), payloads.to_vec());
        let apply = move |tx: &Tx<'_>| {
            expected.check(tx, &job)?;
            tx.execute("DELETE FROM record WHERE job = ?1", [job.as_str()])?;
            remove_payloads(tx, &job, &payloads)
        };
        let publish = move |files| {
            remove_files(&shared, files);
            Ok(())
        };
        let removed = self.shared.writer.call(0, apply, publish).await;
        removed.map_err(|failure| failure.during("remove a record"))
    }

    async fn store_payload(&self, job: &JobId, payload: Payload) -> Result<()> {
        let (shared, job) = (Arc::clone(&self.shared), job.clone());
        let stored = if payload.bytes.len() > INLINE_BYTES_MAX {
            blocking(move || store_as_file(&shared, job, &payload)).await
        } else {
            let (writing, row) = (Arc::clone(&shared), Row::inline(payload));
            let publish = move |files| {
                remove_files(&shared, files);
                Ok(())
            };
            writing.writer.call(row.bytes, move |tx| row.insert(tx, &job), publish).await
        };
        stored.map_err(|failure| failure.during("write a payload"))
    }

    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Bytes>> {
        let read = read_payload(&self.shared, job, name).await;
        let read = read.map_err(|failure| failure.during("read a payload"))?;
        Ok(read.map(Bytes::from))
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedRecord>> {
        const LIST: &str = "SELECT job, at, note FROM record
             WHERE job > ?1 AND job >= ?2 AND job < ?3 ORDER BY job LIMIT ?4";
        let (shared, at) = (Arc::clone(&self.shared), at.unwrap_or_default().to_owned());
        // The first text after all ids that begin with it: an id has no character after z.
        let (prefix, end) = (prefix.to_owned(), format!("{prefix}{{"));
        let row = |row: &rusqlite::Row<'_>| {
            let (Text(job), Text(note)) = (row.get(0)?, row.get(2)?);
            Ok((job, row.get(1)?, note))
        };
        let list = move || shared.reader.rows(LIST, (at, prefix, end, PAGE), row);
        let listed = blocking(list).await.map_err(|failure| failure.during("list records"))?;
        let page = page_of(&self.shared.clock, listed, |(job, ..)| job.clone());
        // A name that is no job id was not written by Reprieve.
        let entry = |(job, modified_unix_ms, note)| {
            Some(ListedRecord { job: JobId::parse(job).ok()?, modified_unix_ms, note })
        };
        Ok(page.filter_map(entry))
    }

    async fn payload_page(&self, at: Option<&str>) -> Result<Page<ListedPayload>> {
        const LIST: &str = "SELECT job, name, bytes, at FROM payload WHERE (job, name) > (?1, ?2)
             ORDER BY job, name LIMIT ?3";
        let (job, name) = at.and_then(|at| at.split_once('/')).unwrap_or_default();
        let (shared, job, name) = (Arc::clone(&self.shared), job.to_owned(), name.to_owned());
        let row = |row: &rusqlite::Row<'_>| {
            let (Text(job), Text(name)) = (row.get(0)?, row.get(1)?);
            Ok((job, name, row.get::<_, i64>(2)?, row.get(3)?))
        };
        let list = move || shared.reader.rows(LIST, (job, name, PAGE), row);
        let listed = blocking(list).await.map_err(|failure| failure.during("list payloads"))?;
        let entry = |(job, name, bytes, modified_unix_ms): (String, String, i64, i64)| {
            let (job, name) = (JobId::parse(job).ok()?, PayloadName::parse(name).ok()?);
            Some(ListedPayload { job, name, bytes: bytes.cast_unsigned(), modified_unix_ms })
        };
        Ok(page_of(&self.shared.clock, listed, |(job, name, ..)| format!("{job}/{name}")).filter_map(entry))
    }

    async fn remove_payloads(&self, job: &JobId, names: &[PayloadName]) -> Result<()> {
        let (shared, job, names) = (Arc::clone(&self.shared), job.clone(), names.to_vec());
        let publish = move |files| {
            remove_files(&shared, files);
            Ok(())
        };
        let remove = move |tx: &Tx<'_>| remove_payloads(tx, &job, &names);
        let removed = self.shared.writer.call(0, remove, publish).await;
        removed.map_err(|failure| failure.during("remove payloads"))
    }
}

/// The version that a write or a removal expects to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Nothing,
    Version(i64),
    /// A version that this store never returned.
    Foreign,
}

impl Expected {
    fn read(version: Option<&Version>) -> Self {
        match version.map(|version| version.as_str().parse()) {
            None => Self::Nothing,
            Some(Ok(version)) => Self::Version(version),
            Some(Err(_)) => Self::Foreign,
        }
    }

    /// Fails unless the record has this version now.
    fn check(self, tx: &Tx<'_>, job: &JobId) -> Result<(), Fault> {
        Ok(self.is_met(tx.row(FIND_VERSION, [job.as_str()], |row| row.get(0))?)?)
    }

    fn is_met(self, current: Option<i64>) -> Outcome<()> {
        match (self, current) {
            (Self::Nothing, None) => Ok(()),
            (Self::Version(expected), Some(current)) if expected == current => Ok(()),
            _ => Err(Failure::new(
                ErrorKind::Conflict,
                "the record has another version than expected: load it again",
            )),
        }
    }
}

/// One write of a record, with the row of its payload, if it has one.
struct Change {
    job: JobId,
    expected: Expected,
    record: Vec<u8>,
    note: String,
    payload: Option<Row>,
    obsolete: Vec<PayloadName>,
}

/// The row of a payload.
struct Row {
    name: PayloadName,
    bytes: usize,
    data: Option<Bytes>,
    file: Option<String>,
}

impl Row {
    fn inline(payload: Payload) -> Self {
        Self { name: payload.name, bytes: payload.bytes.len(), data: Some(payload.bytes), file: None }
    }

    /// Writes a payload to a file, which is on the disk when this returns. No row refers to it yet.
    fn in_file(shared: &Shared, payload: &Payload) -> Outcome<(Self, PathBuf)> {
        let (file, directory) = (shared.session()?.new_file_name(), shared.files.payloads());
        let path = directory.join(&file);
        files::write_new(&path, &payload.bytes)?;
        files::sync_directory(&directory).map_err(|error| Failure::io(&error, &directory)).inspect_err(
            |_| {
                files::remove_if_there(&path);
            },
        )?;
        let row =
            Self { name: payload.name.clone(), bytes: payload.bytes.len(), data: None, file: Some(file) };
        Ok((row, path))
    }

    /// Inserts the row in place of one of its name. Returns the files that are obsolete now.
    fn insert(&self, tx: &Tx<'_>, job: &JobId) -> Result<Vec<String>, Fault> {
        let Self { name, bytes, data, file } = self;
        let files = remove_payloads(tx, job, std::slice::from_ref(name))?;
        let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
        tx.execute(
            "INSERT INTO payload(job, name, at, bytes, data, file) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
            (job.as_str(), name.as_str(), tx.now, bytes, data.as_deref(), file),
        )?;
        Ok(files)
    }
}

/// Stores a payload as a file, which is written first, so that the row never refers to an
/// incomplete one.
fn store_as_file(shared: &Arc<Shared>, job: JobId, payload: &Payload) -> Outcome<()> {
    let (row, path) = Row::in_file(shared, payload)?;
    let stored = shared.writer.call_blocking(move |tx| row.insert(tx, &job), Ok);
    // After a crash, a commit that failed may turn out to be applied. Then its session has ended,
    // and the sweep keeps a file that a row refers to.
    let obsolete = stored.inspect_err(|_| files::remove_if_there(&path))?;
    remove_files(shared, obsolete);
    Ok(())
}

impl Change {
    async fn without_file(self, shared: Arc<Shared>) -> Outcome<Version> {
        let payload = self.payload.as_ref().map_or(0, |payload| payload.bytes);
        let (weight, writing) = (self.record.len() + payload, Arc::clone(&shared));
        let publish = move |(version, files)| {
            remove_files(&shared, files);
            Ok(version)
        };
        writing.writer.call(weight, move |tx| self.apply(tx), publish).await
    }

    /// Applies the write with a payload in a file. The file is written first, so that the row never
    /// refers to an incomplete one.
    fn with_file(mut self, shared: &Arc<Shared>, payload: &Payload) -> Outcome<Version> {
        // The transaction checks this again. The check here keeps a superseded owner from writing
        // gigabytes in vain.
        self.expected.is_met(shared.reader.row(FIND_VERSION, [self.job.as_str()], |row| row.get(0))?)?;
        let (row, path) = Row::in_file(shared, payload)?;
        self.payload = Some(row);
        let written = shared.writer.call_blocking(move |tx| self.apply(tx), Ok);
        // As for a payload that is stored ahead. No row refers to the file of a refused write.
        let (version, obsolete) = written.inspect_err(|_| files::remove_if_there(&path))?;
        remove_files(shared, obsolete);
        Ok(version)
    }

    /// Writes the record and the payload. Also returns the files that are obsolete now.
    fn apply(&self, tx: &Tx<'_>) -> Result<(Version, Vec<String>), Fault> {
        self.expected.check(tx, &self.job)?;
        let job = self.job.as_str();
        let mut files = remove_payloads(tx, &self.job, &self.obsolete)?;
        if let Some(row) = &self.payload {
            files.extend(row.insert(tx, &self.job)?);
        }
        // A new row, not an update: its id is the version.
        tx.execute("DELETE FROM record WHERE job = ?1", [job])?;
        let row = (job, tx.now, self.note.as_str(), &self.record);
        let version = tx.insert("INSERT INTO record(job, at, note, data) VALUES(?1, ?2, ?3, ?4)", row)?;
        Ok((Version::new(version.to_string()), files))
    }
}

/// Removes the rows of these payloads. Returns their files, which the caller removes after the
/// commit.
fn remove_payloads(tx: &Tx<'_>, job: &JobId, names: &[PayloadName]) -> Result<Vec<String>, Fault> {
    const DELETE: &str = "DELETE FROM payload WHERE job = ?1 AND name = ?2 RETURNING file";
    let mut files = Vec::new();
    for name in names {
        let file = tx.row(DELETE, [job.as_str(), name.as_str()], |row| row.get::<_, Option<Text>>(0))?;
        files.extend(file.flatten().map(|Text(file)| file));
    }
    Ok(files)
}

fn remove_files(shared: &Shared, files: Vec<String>) {
    for file in files {
        files::remove_if_there(&shared.files.payloads().join(file));
    }
}

/// A payload without its file, or with one that the disk can't read, counts as missing: the job has
/// another checkpoint. A file of a different length is returned as far as it was read, because the
/// caller checks length and checksum.
async fn read_payload(shared: &Arc<Shared>, job: &JobId, name: &PayloadName) -> Outcome<Option<Vec<u8>>> {
    let (mut missing, mut lost) = (None, 0);
    loop {
        let (finding, of, named) = (Arc::clone(shared), job.clone(), name.clone());
        let (file, bytes) = match blocking(move || find_payload(&finding, &of, &named)).await? {
            None => return Ok(None),
            Some(Found::Row(data)) => return Ok(Some(data)),
            Some(Found::File(file, bytes)) => (file, bytes),
        };
        let path = shared.files.payloads().join(&file);
        // Allocated by the caller: glibc keeps what each thread has allocated apart, and each of
        // the many threads that wait for the disk would keep a buffer.
        let buffer = Vec::with_capacity(bytes.min(BUFFER_BYTES_MAX));
        let reading = path.clone();
        match blocking(move || Ok(files::read_into(&reading, bytes, buffer))).await? {
            Ok(bytes) => return Ok(Some(bytes)),
            // The payload may have been removed since its row was read: look again.
            Err(error) if error.kind() == io::ErrorKind::NotFound && missing.as_ref() != Some(&file) => {
                missing = Some(file);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(%job, path = %path.display(), "the file of a payload is missing");
                return Ok(None);
            }
            // A disk may answer again a moment later.
            Err(error) if files::is_lost(&error) && lost < READS_AGAIN => {
                lost += 1;
                sleep(READ_AGAIN_AFTER).await;
            }
            Err(error) if files::is_lost(&error) => {
                tracing::warn!(%job, path = %path.display(), %error, "the file of a payload can't be read");
                return Ok(None);
            }
            Err(error) => return Err(Failure::io(&error, &path)),
        }
    }
}

/// The bytes of a payload, or where they are.
enum Found {
    Row(Vec<u8>),
    /// The name of a file in `payloads/`, and its length.
    File(String, usize),
}

/// A damaged row is read as far as it goes: what it leads to does not fit its checksum, or is missing.
fn find_payload(shared: &Shared, job: &JobId, name: &PayloadName) -> Outcome<Option<Found>> {
    const FIND: &str = "SELECT data, file, bytes FROM payload WHERE job = ?1 AND name = ?2";
    let row = |row: &rusqlite::Row<'_>| {
        Ok(match (row.get_ref(0)?, row.get_ref(1)?) {
            (ValueRef::Blob(data) | ValueRef::Text(data), _) => Some(Found::Row(data.to_vec())),
            (_, ValueRef::Blob(file) | ValueRef::Text(file)) => {
                let bytes = row.get_ref(2)?.as_i64().unwrap_or_default();
                let file = String::from_utf8_lossy(file).into_owned();
                Some(Found::File(file, usize::try_from(bytes).unwrap_or_default()))
            }
            _ => None,
        })
    };
    Ok(shared.reader.row(FIND, [job.as_str(), name.as_str()], row)?.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_taken_only_if_it_knows_what_it_replaces() {
        for (expected, current, taken) in [
            (Expected::Nothing, None, true),
            (Expected::Nothing, Some(1), false),
            (Expected::Version(1), Some(1), true),
            (Expected::Version(1), Some(2), false),
            (Expected::Version(1), None, false),
            (Expected::read(Some(&Version::new("0x8D"))), Some(1), false),
            (Expected::read(Some(&Version::new("0x8D"))), None, false),
        ] {
            assert_eq!(expected.is_met(current).is_ok(), taken, "{expected:?} over {current:?}");
        }
    }
}
