//! The checkpoint port: small named values with compare-and-set.

use std::fmt;

use async_trait::async_trait;

use crate::error::Result;

/// Identifies one write of one key; an ETag where the backend has those. Opaque.
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

/// A value with the version it was read at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What was saved.
    pub bytes: Vec<u8>,
    /// What the next save must expect.
    pub version: Version,
}

/// Where jobs keep their progress. Keys are `<job id>/<slot>`.
///
/// What the bytes mean, whose they are and whether they are whole is for [`crate::checkpoint`] to say; the store only
/// promises that a save is whole or absent, and that it is refused unless the caller knew what it replaces.
///
/// # Promises, each a function of [`crate::conformance::checkpoints`]
/// - A save that returned is what every later load returns, byte for byte, from any process.
/// - A save whose expectation is not met changes nothing and fails with [`Conflict`](crate::ErrorKind::Conflict).
/// - Of any number of concurrent saves that expect the same version, exactly one is taken.
/// - A version is never used twice for one key, not even after a clear.
///
/// # Cancel safety
/// A dropped save may have been applied: load, and compare who wrote, before concluding anything.
#[async_trait]
pub trait CheckpointStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the value and its version; `None` when there is none.
    async fn load(&self, key: &str) -> Result<Option<Stored>>;

    /// Stores `bytes` if the present version is `expected` (`None`: if there is no value), and returns the new version.
    async fn save(&self, key: &str, expected: Option<&Version>, bytes: Vec<u8>) -> Result<Version>;

    /// Removes the value; succeeds when there is none.
    async fn clear(&self, key: &str) -> Result<()>;
}
