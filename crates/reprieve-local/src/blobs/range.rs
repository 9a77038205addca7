//! Reading a range of a blob: its row says which write is read, and the file of a write never changes.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use reprieve_core::ports::{BlobRange, Version};
use reprieve_core::{BlobName, Bytes, ErrorKind};

use super::damaged;
use crate::damaged::{Data, Text};
use crate::failure::{Failure, Outcome};
use crate::files;
use crate::shared::Shared;
use crate::store::blocking;

/// The largest buffer that is allocated by the length in a row, which may be damaged.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// A blob as its row describes it.
struct Found {
    version: i64,
    length: u64,
    place: Place,
}

enum Place {
    Row(Bytes),
    /// The name of a file in `blobs/`.
    File(String),
}

/// Reads a range of the blob, of `version` if there is one.
pub(super) async fn get_range(
    shared: &Arc<Shared>,
    name: &BlobName,
    range: Range<u64>,
    version: Option<&Version>,
) -> Outcome<Option<BlobRange>> {
    let mut missing = None;
    loop {
        let (finding, named) = (Arc::clone(shared), name.clone());
        let Some(found) = blocking(move || find(&finding, &named)).await? else { return Ok(None) };
        let Found { version: present, length, place } = found;
        let present = Version::new(present.to_string());
        if version.is_some_and(|version| *version != present) {
            return Err(Failure::new(ErrorKind::Conflict, format!("the blob {name} was replaced")));
        }
        let start = range.start.min(length);
        let range = start..range.end.clamp(start, length);
        let read = |bytes| Ok(Some(BlobRange { bytes, length, version: present.clone() }));
        let file = match place {
            Place::Row(data) if data.len() as u64 != length => {
                return Err(damaged(name, "row", data.len() as u64, length));
            }
            Place::Row(data) => return read(slice(&data, &range)),
            Place::File(file) => file,
        };
        let path = shared.files.blobs().join(&file);
        let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        // Allocated by the caller: glibc keeps what each thread has allocated apart, and each of the
        // many threads that wait for the disk would keep a buffer.
        let buffer = Vec::with_capacity(wanted.min(BUFFER_BYTES_MAX));
        let reading = path.clone();
        match blocking(move || Ok(read_file(&reading, range, length, buffer))).await? {
            Ok(Ok(bytes)) => return read(bytes.into()),
            Ok(Err(bytes)) => {
                return Err(damaged(name, format_args!("file {}", path.display()), bytes, length));
            }
            // The blob may have been replaced since its row was read: look again.
            Err(error) if error.kind() == io::ErrorKind::NotFound && missing.as_ref() != Some(&file) => {
                missing = Some(file);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(%name, path = %path.display(), "the file of a blob is missing");
                return Ok(None);
            }
            Err(error) if files::is_lost(&error) => {
                let message = format!("the blob {name} can't be read from {}: {error}", path.display());
                return Err(Failure::new(ErrorKind::Corrupt, message));
            }
            Err(error) => return Err(Failure::io(&error, &path)),
        }
    }
}

fn find(shared: &Shared, name: &BlobName) -> Outcome<Option<Found>> {
    const FIND: &str = "SELECT version, bytes, file, data FROM blob WHERE name = ?1";
    let row = |row: &rusqlite::Row<'_>| {
        let (version, length) = (row.get(0)?, row.get::<_, i64>(1)?);
        let place = match row.get(2)? {
            Some(Text(file)) => Place::File(file),
            None => Place::Row(row.get::<_, Data>(3)?.0.into()),
        };
        Ok(Found { version, length: length.cast_unsigned(), place })
    };
    shared.reader.row(FIND, [name.as_str()], row)
}

fn slice(data: &Bytes, range: &Range<u64>) -> Bytes {
    let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(data.len());
    data.slice(at(range.start)..at(range.end))
}

/// Reads a range of the file into `buffer`, which is empty. A file of another length than `length` is an
/// inner error, with its length.
fn read_file(
    path: &Path,
    range: Range<u64>,
    length: u64,
    mut buffer: Vec<u8>,
) -> io::Result<Result<Vec<u8>, u64>> {
    let mut file = files::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes != length {
        return Ok(Err(bytes));
    }
    file.seek(SeekFrom::Start(range.start))?;
    file.take(range.end - range.start).read_to_end(&mut buffer)?;
    Ok(Ok(buffer))
}
