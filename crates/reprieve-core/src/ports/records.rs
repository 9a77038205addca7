//! The record port: one small conditionally written object per job, and the immutable payloads that
//! it names.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use super::Page;
use crate::error::Result;
use crate::ids::{JobId, PayloadName};

/// The largest record, in bytes: 64 KiB. A state above
/// [`INLINE_BYTES_MAX`](crate::record::INLINE_BYTES_MAX) is stored as a payload.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;

/// The longest note of a record, in bytes: 4 KiB. Blob Storage's metadata has room for 8 KiB, as base64.
/// <https://learn.microsoft.com/rest/api/storageservices/setting-and-retrieving-properties-and-metadata-for-blob-resources>
pub const NOTE_BYTES_MAX: usize = 4 * 1024;

/// The version of one write of one record or blob: an ETag, where the backend has those. Opaque.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(String);

impl Version {
    /// Wraps the backend's own version.
    pub fn new(version: impl Into<String>) -> Self {
        Self(version.into())
    }

    /// The version, for the backend that made it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The record's bytes; see [`crate::record`].
    pub bytes: Vec<u8>,
    /// The version that the next write must expect.
    pub version: Version,
    /// When it was written, in milliseconds since the Unix epoch, by the clock that also sets
    /// [`Delivery::inserted_unix_ms`](super::Delivery::inserted_unix_ms).
    pub modified_unix_ms: i64,
}

/// A record in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRecord {
    /// The job.
    pub job: JobId,
    /// When it was written, in milliseconds since the Unix epoch, by the store's clock.
    pub modified_unix_ms: i64,
    /// The note of the record's last write; empty without one.
    pub note: String,
}

/// A payload in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPayload {
    /// The job.
    pub job: JobId,
    /// The name.
    pub name: PayloadName,
    /// The length in bytes.
    pub bytes: u64,
    /// When it was written, in milliseconds since the Unix epoch, by the store's clock.
    pub modified_unix_ms: i64,
}

/// A state that is too large for a record.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    /// The name, which no other payload of the job ever has.
    pub name: PayloadName,
    /// The bytes, shared by every try to write them.
    pub bytes: Bytes,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({}, {} bytes)", self.name, self.bytes.len())
    }
}

/// One write of a record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordWrite {
    /// The record's new bytes, at most [`RECORD_BYTES_MAX`].
    pub record: Vec<u8>,
    /// The payload that the new record names, if its state is not inside.
    pub payload: Option<Payload>,
    /// Payloads that the new record no longer names.
    pub obsolete: Vec<PayloadName>,
    /// A text of at most [`NOTE_BYTES_MAX`] that lists show, so that the ends of many jobs are read in few
    /// requests. It replaces the note of the write before; empty for none.
    pub note: String,
}

/// Stores the record of each job, the only commit point of the job's progress, and the job's
/// payloads.
///
/// [`crate::record`] defines the bytes. The store promises only that a write is whole or absent,
/// and that it refuses a write unless the caller knew the version that it replaces.
///
/// # Promises, each a function of `conformance::records`
/// - After a write has returned, every load from any process returns its bytes, until the next
///   write.
/// - A write or removal that expects another version changes no record and fails with
///   [`Conflict`](crate::ErrorKind::Conflict).
/// - Of any number of concurrent writes that expect the same version, exactly one succeeds.
/// - A version is never used twice for one job, not even after a removal.
/// - The parts of a list name every record, or payload, that is there from the first part to the
///   last once, with the time of its write; a record with its note, and only those of jobs whose ids
///   begin with the prefix.
/// - A payload can be read, whole, from the moment at which a record names it until a later write
///   lists it as obsolete or a removal names it. Payloads of a refused write are harmless and may
///   be deleted.
///
/// # Cancel safety
/// A dropped write may have been applied: load the record and compare its writer before drawing a
/// conclusion.
#[async_trait]
pub trait RecordStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the job's record; `None` when there is none.
    async fn load(&self, job: &JobId) -> Result<Option<Stored>>;

    /// Writes the job's record if the present version is `expected` (`None`: if there is no
    /// record), and returns the new version. Stores the payload before the record that names it,
    /// and removes obsolete payloads afterwards. A failed removal is logged and does not fail the
    /// write.
    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version>;

    /// Stores a payload ahead of the record that will name it: a chunk of an attachment. Storing it
    /// again under its name, with the same bytes, succeeds.
    async fn store_payload(&self, job: &JobId, payload: Payload) -> Result<()>;

    /// Removes the record if its version is `expected`, and then the `payloads`.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) when there is another version or no record; then no
    /// payload is removed.
    async fn remove(&self, job: &JobId, expected: &Version, payloads: &[PayloadName]) -> Result<()>;

    /// Returns a payload's bytes; `None` when there is no such payload.
    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Bytes>>;

    /// Returns a part of the list of the records of jobs whose ids begin with `prefix` (`""` for all), in
    /// the order of the jobs: the first part, or the one that begins at the `next` of the part before.
    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedRecord>>;

    /// Returns a part of the list of payloads, those of one job in sequence, like
    /// [`page`](Self::page).
    async fn payload_page(&self, at: Option<&str>) -> Result<Page<ListedPayload>>;

    /// Removes payloads that no record names; succeeds for those that are gone.
    async fn remove_payloads(&self, job: &JobId, names: &[PayloadName]) -> Result<()>;
}
