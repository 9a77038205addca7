//! The blob port: a job's inputs and outputs.

use std::fmt;

use async_trait::async_trait;

use crate::error::Result;
use crate::ids::{BlobName, Writer};

/// Where jobs read their inputs and publish their outputs.
///
/// # Promises, each a function of [`crate::conformance::blobs`]
/// - A reader sees the whole of one write or nothing: never half, never a mixture.
/// - A put by an owner of a job fails with [`Superseded`](crate::ErrorKind::Superseded), and changes nothing, when the
///   blob was last written by a greater fence of the same job. Fences of different jobs do not compare: the later put
///   is kept.
/// - A put by the same or a greater fence replaces.
/// - Of any number of creates of one name, from any processes, exactly one is taken.
/// - Names with a common prefix, case and Unicode are told apart.
#[async_trait]
pub trait BlobStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the blob's bytes; `None` when there is no such blob.
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>>;

    /// Stores the blob, whole or not at all. `writer` is the owner whose fence is checked; `None` for a producer's
    /// input, which is not fenced.
    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()>;

    /// Stores the blob if there is none of that name, whole or not at all; false when there is one, which stays as it
    /// is. Makes a job's result: the first complete one stands.
    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool>;

    /// Whether there is such a blob.
    async fn exists(&self, name: &BlobName) -> Result<bool> {
        Ok(self.get(name).await?.is_some())
    }

    /// The names that start with `prefix` (`""` for all), in order.
    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>>;

    /// Removes the blob; succeeds when there is none.
    async fn delete(&self, name: &BlobName) -> Result<()>;
}
