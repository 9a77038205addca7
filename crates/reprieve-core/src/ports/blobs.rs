//! The blob port: a job's inputs and outputs.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Page, Upload, Version};
use crate::error::Result;
use crate::ids::{BlobName, Writer};

/// A blob in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    /// The name.
    pub name: BlobName,
    /// The length in bytes.
    pub bytes: u64,
    /// When it was written, in milliseconds since the Unix epoch, by the store's clock.
    pub modified_unix_ms: i64,
    /// The version of its last write.
    pub version: Version,
}

/// A range of a blob.
#[derive(Clone, PartialEq, Eq)]
pub struct BlobRange {
    /// The bytes of the range that the blob has: fewer than the range, or none, at and beyond its end.
    pub bytes: Bytes,
    /// The length of the whole blob in bytes.
    pub length: u64,
    /// The version of the write that the bytes are of.
    pub version: Version,
}

impl fmt::Debug for BlobRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, length, version) = (self.bytes.len(), self.length, self.version.as_str());
        write!(f, "BlobRange({bytes} of {length} bytes, version {version})")
    }
}

/// Stores the jobs' inputs and outputs.
///
/// # Promises, each a function of `conformance::blobs`
/// - A reader sees the whole of one write or nothing, never a part or a mixture.
/// - A put by an owner of a job fails with [`Superseded`](crate::ErrorKind::Superseded), and
///   changes nothing, when the blob was last written under a greater fence of the same job. Fences
///   of different jobs are not compared: the later put replaces.
/// - A put under the same or a greater fence replaces the blob.
/// - Of any number of creates of one name, from any processes, exactly one succeeds.
/// - The parts of a list name every blob that is there from the first part to the last once, with
///   its length, its version and the time of its last write.
/// - A removal of a version removes that version only.
/// - A range has the bytes that the whole blob has there. Ranges of one version are of one write; a
///   range of a version that was replaced is refused.
/// - A write in parts is invisible until it is published. Then it is stored whole, under the same rules
///   as a put, or not at all, and it may be published again, to the same effect.
/// - Parts that are never published do not stay for ever.
/// - A delete by an owner of a job is refused as its put would be.
/// - Names that share a prefix, or differ only in case or in Unicode characters, are distinct.
#[async_trait]
pub trait BlobStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the blob's bytes; `None` when there is no such blob.
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>>;

    /// Stores the blob, whole or not at all. `writer` is the owner for the fence check; `None` for
    /// a producer's input, which is not fenced.
    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()>;

    /// Stores the blob, whole or not at all, if there is none of that name; returns false if there
    /// is one, which stays unchanged. The worker creates a job's result this way: the first
    /// complete result is kept.
    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool>;

    /// Whether the blob exists.
    async fn exists(&self, name: &BlobName) -> Result<bool> {
        Ok(self.get_range(name, 0..0, None).await?.is_some())
    }

    /// Lists the names that start with `prefix` (`""` for all), in order.
    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>>;

    /// Returns a part of the list of blobs with names that start with `prefix`, in order: the first
    /// part, or the one that begins at the `next` of the part before.
    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>>;

    /// Returns the range of the blob's bytes, all of one write; `None` when there is no such blob. An
    /// empty range returns the blob's length and version. A range with its end before its start is
    /// empty.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) when a `version` is given and the blob has another.
    async fn get_range(
        &self,
        name: &BlobName,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Option<BlobRange>>;

    /// Sends one part of a blob ahead of [`put_parts`](Self::put_parts). Parts are numbered from 0, and
    /// every part but the last has [`PART_BYTES`](super::PART_BYTES). They may be sent in any order, at
    /// the same time, and again with the same bytes.
    async fn put_part(&self, name: &BlobName, upload: &Upload, number: u32, bytes: Bytes) -> Result<()>;

    /// Publishes the parts as a blob of `length` bytes, as [`put`](Self::put) stores a blob.
    ///
    /// # Errors
    /// As of `put`. [`Conflict`](crate::ErrorKind::Conflict) when parts are missing: some were not
    /// sent, or another write of the blob has discarded them, as Blob Storage does.
    async fn put_parts(
        &self,
        name: &BlobName,
        upload: &Upload,
        length: u64,
        writer: Option<&Writer>,
    ) -> Result<()>;

    /// Removes the blob; succeeds when there is none. `writer` is the owner for the fence check, as of
    /// [`put`](Self::put); `None` removes the blob whoever wrote it. The check is of the blob that is
    /// removed: a store may forget its fence with it.
    async fn delete(&self, name: &BlobName, writer: Option<&Writer>) -> Result<()>;

    /// Removes the blob if it has this version; returns false, and removes nothing, if it has
    /// another or is gone.
    async fn delete_version(&self, name: &BlobName, version: &Version) -> Result<bool>;
}
