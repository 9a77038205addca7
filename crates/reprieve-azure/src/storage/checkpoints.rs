//! Checkpoints as blobs, replaced on the condition of their entity tags.

use std::fmt;

use async_trait::async_trait;
use reprieve_core::Result;
use reprieve_core::ports::{CheckpointStore, Stored, Version};

use super::blob::{Container, When};
use super::blobs::RESERVED;

/// The checkpoints of a container.
pub(crate) struct AzureCheckpoints(Container);

impl AzureCheckpoints {
    pub(crate) fn new(container: Container) -> Self {
        Self(container)
    }
}

fn blob(key: &str) -> String {
    format!("{RESERVED}checkpoints/{key}")
}

#[async_trait]
impl CheckpointStore for AzureCheckpoints {
    async fn load(&self, key: &str) -> Result<Option<Stored>> {
        let read = self.0.read("load a checkpoint", &blob(key)).await?;
        Ok(read.map(|read| Stored { bytes: read.bytes, version: Version::new(read.etag) }))
    }

    async fn save(&self, key: &str, expected: Option<&Version>, bytes: Vec<u8>) -> Result<Version> {
        let when = expected.map_or(When::Absent, |version| When::Is(version.as_str().to_owned()));
        self.0.write("save a checkpoint", &blob(key), bytes, None, &when).await.map(Version::new)
    }

    async fn clear(&self, key: &str) -> Result<()> {
        self.0.delete("clear a checkpoint", &blob(key)).await
    }
}

impl fmt::Debug for AzureCheckpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AzureCheckpoints").field(self.0.name()).finish()
    }
}
