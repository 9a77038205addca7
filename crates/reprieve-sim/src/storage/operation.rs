//! The storage double's operations, by which faults and counts are keyed.

use std::fmt;
use std::str::FromStr;

use reprieve_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// One kind of request. Its name on the wire and on command lines is [`Operation::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Operation {
    /// Create Queue.
    QueueCreate,
    /// Delete Queue.
    QueueDelete,
    /// Get Queue Metadata, which also returns the approximate number of messages.
    QueueProperties,
    /// Set Queue Metadata.
    QueueMetadata,
    /// Put Message.
    Send,
    /// Get Messages.
    Receive,
    /// Peek Messages.
    Peek,
    /// Update Message: renews or releases a lease.
    Update,
    /// Delete Message.
    Delete,
    /// Clear Messages.
    Clear,
    /// Create Container.
    ContainerCreate,
    /// Delete Container.
    ContainerDelete,
    /// Get Container Properties.
    ContainerProperties,
    /// Put Blob.
    BlobPut,
    /// Put Block.
    BlockPut,
    /// Put Block List: commits the blocks.
    BlockList,
    /// Get Blob.
    BlobGet,
    /// Get Blob Properties.
    BlobProperties,
    /// Set Blob Metadata.
    BlobMetadata,
    /// Delete Blob.
    BlobDelete,
    /// List Blobs.
    BlobList,
    /// Anything that the double does not support; it answers 501.
    Other,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 22] = [
        Self::QueueCreate,
        Self::QueueDelete,
        Self::QueueProperties,
        Self::QueueMetadata,
        Self::Send,
        Self::Receive,
        Self::Peek,
        Self::Update,
        Self::Delete,
        Self::Clear,
        Self::ContainerCreate,
        Self::ContainerDelete,
        Self::ContainerProperties,
        Self::BlobPut,
        Self::BlockPut,
        Self::BlockList,
        Self::BlobGet,
        Self::BlobProperties,
        Self::BlobMetadata,
        Self::BlobDelete,
        Self::BlobList,
        Self::Other,
    ];

    /// Returns its name, such as `receive` or `blob-put`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueCreate => "queue-create",
            Self::QueueDelete => "queue-delete",
            Self::QueueProperties => "queue-properties",
            Self::QueueMetadata => "queue-metadata",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Peek => "peek",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Clear => "clear",
            Self::ContainerCreate => "container-create",
            Self::ContainerDelete => "container-delete",
            Self::ContainerProperties => "container-properties",
            Self::BlobPut => "blob-put",
            Self::BlockPut => "block-put",
            Self::BlockList => "block-list",
            Self::BlobGet => "blob-get",
            Self::BlobProperties => "blob-properties",
            Self::BlobMetadata => "blob-metadata",
            Self::BlobDelete => "blob-delete",
            Self::BlobList => "blob-list",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|operation| operation.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|operation| operation.name()).collect();
            let message = format!("there is no operation {name:?}; there are: {}", names.join(", "));
            Error::new(ErrorKind::Invalid, "read the name of an operation", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_one_name_everywhere() {
        for operation in Operation::ALL {
            assert_eq!(operation.name().parse::<Operation>().unwrap(), operation);
            assert_eq!(serde_json::to_value(operation).unwrap(), operation.name());
        }
        let unknown = "get".parse::<Operation>().unwrap_err();
        assert!(unknown.to_string().contains("receive, peek"), "{unknown}");
    }
}
