//! Reading a blob of any size in a program that is no job.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::BlobName;
use crate::ports::{BlobRange, BlobStore, PART_BYTES, Store, Version};

const READ: &str = "read a blob";

/// A blob that is read from its beginning to its end, in parts of 4 MiB. A job reads by
/// [`JobContext::input_stream`](crate::JobContext::input_stream).
///
/// All parts are of one write of the blob, the one that was the newest when it was opened.
///
/// # Example
/// ```
/// # use reprieve_core::{BlobName, Result};
/// # use reprieve_core::ports::Store;
/// # async fn length(store: &Store) -> Result<usize> {
/// let mut length = 0;
/// if let Some(mut blob) = store.open_blob(&BlobName::parse("jobs/j/film.mov")?).await? {
///     while let Some(bytes) = blob.next().await? {
///         length += bytes.len();
///     }
/// }
/// # Ok(length) }
/// ```
pub struct BlobReader {
    blobs: Arc<dyn BlobStore>,
    name: BlobName,
    version: Version,
    length: u64,
    /// The first part, until it is read.
    first: Option<BlobRange>,
    /// The place of the next byte.
    position: u64,
}

impl Store {
    /// Opens a blob of any size; `None` when there is none. Reads its first part.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn open_blob(&self, name: &BlobName) -> Result<Option<BlobReader>> {
        let Some(read) = self.blobs.get_range(name, 0..PART_BYTES as u64, None).await? else {
            return Ok(None);
        };
        let (blobs, name) = (Arc::clone(&self.blobs), name.clone());
        let (length, version) = (read.length, read.version.clone());
        Ok(Some(BlobReader { blobs, name, version, length, first: Some(read), position: 0 }))
    }
}

impl BlobReader {
    /// The length of the blob in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when the blob was replaced or removed meanwhile. The store's
    /// errors; after a temporary one, another call reads the same bytes.
    ///
    /// # Cancel safety
    /// After a dropped call, another one reads the same bytes.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.position >= self.length {
            return Ok(None);
        }
        let range = self.position..self.length.min(self.position + PART_BYTES as u64);
        let read = match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.blobs.get_range(&self.name, range.clone(), Some(&self.version)).await,
        };
        let bytes = whole_part(READ, &self.name, &range, read)?;
        self.position = range.end;
        Ok(Some(bytes))
    }
}

/// Checks what a store has returned for a range that the blob had when it was opened.
pub(super) fn whole_part(
    operation: &'static str,
    name: &BlobName,
    range: &Range<u64>,
    read: Result<Option<BlobRange>>,
) -> Result<Bytes> {
    let replaced = |how: &str| {
        let message =
            format!("the blob {name} was {how} while it was read; read it again from its beginning");
        Error::new(ErrorKind::Conflict, operation, message)
    };
    let bytes = match read {
        Ok(Some(read)) => read.bytes,
        Ok(None) => return Err(replaced("removed")),
        Err(error) if error.kind() == ErrorKind::Conflict => return Err(replaced("replaced")),
        Err(error) => return Err(error),
    };
    if bytes.len() as u64 == range.end - range.start {
        return Ok(bytes);
    }
    let message = format!("the blob {name} has only {} bytes of {range:?}", bytes.len());
    Err(Error::new(ErrorKind::Corrupt, operation, message))
}

impl fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobReader")
            .field("name", &self.name)
            .field("position", &self.position)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
