//! The record port: one small conditional object per job, and the immutable payloads that it names.

use std::fmt;

use async_trait::async_trait;

use crate::error::Result;
use crate::ids::{JobId, PayloadName};

/// The largest record, in bytes: 64 KiB. State above [`INLINE_BYTES_MAX`](crate::record::INLINE_BYTES_MAX) is a payload.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;

/// Identifies one write of one record; an entity tag where the backend has those. Opaque.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(String);

impl Version {
    /// Takes the backend's own version.
    pub fn new(version: impl Into<String>) -> Self {
        Self(version.into())
    }

    /// The version, for the backend that made it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A record as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The record's bytes; see [`crate::record`].
    pub bytes: Vec<u8>,
    /// What the next write must expect.
    pub version: Version,
    /// When it was written, in milliseconds since the Unix epoch, by the clock that also stamps
    /// [`Delivery::inserted_unix_ms`](super::Delivery::inserted_unix_ms).
    pub modified_unix_ms: i64,
}

/// State that is too large for a record.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    /// Its name, which no other payload of the job has or will have.
    pub name: PayloadName,
    /// The state.
    pub bytes: Vec<u8>,
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
    /// A payload that the new record names.
    pub payload: Option<Payload>,
    /// Payloads that the new record no longer names.
    pub obsolete: Vec<PayloadName>,
}

/// Stores the record of each job, which is the only commit point of the job's progress, and its payloads.
///
/// The meaning of the bytes is [`crate::record`]'s. The store promises only that a write is whole or absent, and that it
/// is refused unless the caller knew what it replaces.
///
/// # Promises, each a function of [`crate::conformance::records`]
/// - A write that returned is what every later load returns, byte for byte, from any process.
/// - A write or removal whose expectation is not met changes no record and fails with
///   [`Conflict`](crate::ErrorKind::Conflict).
/// - Of any number of concurrent writes that expect the same version, exactly one is taken.
/// - A version is never used twice for one job, not even after a removal.
/// - A payload can be read, whole, from the moment at which a record names it until a later write lists it as obsolete
///   or a removal names it. Payloads of a write that was refused harm nothing, and need not stay.
///
/// # Cancel safety
/// A dropped write may have been applied: load, and compare who wrote, before concluding anything.
#[async_trait]
pub trait RecordStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the job's record; `None` when there is none.
    async fn load(&self, job: &JobId) -> Result<Option<Stored>>;

    /// Writes the job's record if the present version is `expected` (`None`: if there is no record), and returns the new
    /// version. Stores the payload before the record that names it, and removes obsolete ones after. A removal that
    /// fails is logged, and does not fail the write.
    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version>;

    /// Removes the record if its version is `expected`, and then these payloads.
    ///
    /// # Errors
    /// [`Conflict`](crate::ErrorKind::Conflict) when there is another version, or none; then no payload is removed.
    async fn remove(&self, job: &JobId, expected: &Version, payloads: &[PayloadName]) -> Result<()>;

    /// Returns a payload's bytes; `None` when there is no such payload.
    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Vec<u8>>>;

    /// Returns up to `max` jobs with records that were not written since `before_unix_ms`, for clean-up.
    async fn stale(&self, before_unix_ms: i64, max: usize) -> Result<Vec<JobId>>;
}
