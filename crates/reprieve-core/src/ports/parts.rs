//! Writes of blobs in parts.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::chance;
use crate::error::{Error, ErrorKind, Result};

/// The length of every part of a blob but the last, in bytes: 4 MiB, as the storage client's own parts.
pub const PART_BYTES: usize = 4 << 20;

/// The most parts of a blob: Blob Storage commits at most 50,000 blocks. So a blob that is written in
/// parts has at most 195 GiB.
/// <https://learn.microsoft.com/azure/storage/blobs/scalability-targets>
pub const PARTS_MAX: u32 = 50_000;

/// One write of a blob in parts. Clones are the same write.
///
/// The store keeps its state of the write in here. When the last clone is dropped before the parts are
/// published, the store removes them where it can, and otherwise they expire.
#[derive(Clone)]
pub struct Upload(Arc<Inner>);

struct Inner {
    id: u64,
    state: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Upload {
    /// A new write, without parts.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Inner { id: chance::number(), state: OnceLock::new() }))
    }

    /// A number that no other write of the same blob has at the same time.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The store's state of this write.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if another kind of store has one.
    pub fn state<T: Any + Default + Send + Sync>(&self) -> Result<&T> {
        self.0
            .state
            .get_or_init(|| Box::new(T::default()))
            .downcast_ref()
            .ok_or_else(|| Error::new(ErrorKind::Invalid, OPERATION, "its parts were sent to another store"))
    }

    /// The number of parts of a blob of `length` bytes.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) for more than [`PARTS_MAX`].
    pub fn parts(length: u64) -> Result<u32> {
        let parts = u32::try_from(length.div_ceil(PART_BYTES as u64)).ok();
        parts.filter(|parts| *parts <= PARTS_MAX).ok_or_else(|| {
            let most = u64::from(PARTS_MAX) * PART_BYTES as u64;
            Error::new(ErrorKind::TooLarge, OPERATION, format!("a blob in parts has at most {most} bytes"))
        })
    }
}

const OPERATION: &str = "write a blob in parts";

impl Default for Upload {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upload").field(&self.0.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_up_to_the_most_that_a_blob_can_have() {
        let part = PART_BYTES as u64;
        for (length, parts) in [(0, 0), (1, 1), (part, 1), (part + 1, 2), (part * 50_000, 50_000)] {
            assert_eq!(Upload::parts(length).unwrap(), parts, "{length}");
        }
        for length in [part * 50_000 + 1, u64::MAX] {
            assert_eq!(Upload::parts(length).unwrap_err().kind(), ErrorKind::TooLarge);
        }
    }

    #[test]
    fn a_write_belongs_to_one_kind_of_store() {
        let upload = Upload::new();
        let state: &std::sync::Mutex<u8> = upload.state().unwrap();
        *state.lock().unwrap() = 7;
        assert_eq!(*upload.clone().state::<std::sync::Mutex<u8>>().unwrap().lock().unwrap(), 7);
        assert_eq!(upload.state::<u32>().unwrap_err().kind(), ErrorKind::Invalid);
        assert_ne!(upload.id(), Upload::new().id());
    }
}
