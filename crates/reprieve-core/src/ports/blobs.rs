//! The blob port: a job's inputs and outputs.

use std::fmt;

use async_trait::async_trait;

use super::{Page, Version};
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
        Ok(self.get(name).await?.is_some())
    }

    /// Lists the names that start with `prefix` (`""` for all), in order.
    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>>;

    /// Returns a part of the list of blobs with names that start with `prefix`, in order: the first
    /// part, or the one that begins at the `next` of the part before.
    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>>;

    /// Removes the blob; succeeds when there is none.
    async fn delete(&self, name: &BlobName) -> Result<()>;

    /// Removes the blob if it has this version; returns false, and removes nothing, if it has
    /// another or is gone.
    async fn delete_version(&self, name: &BlobName, version: &Version) -> Result<bool>;
}
