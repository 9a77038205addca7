//! An in-memory blob store.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Mutex;

use async_trait::async_trait;

use super::lock;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, Writer};
use crate::ports::BlobStore;

/// An in-memory blob store.
#[derive(Debug, Default)]
pub struct MemoryBlobs {
    blobs: Mutex<BTreeMap<BlobName, Blob>>,
}

#[derive(Debug)]
struct Blob {
    bytes: Vec<u8>,
    /// The last writer; `None` for a producer.
    writer: Option<Writer>,
}

impl MemoryBlobs {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl BlobStore for MemoryBlobs {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        Ok(lock(&self.blobs).get(name).map(|blob| blob.bytes.clone()))
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        let mut blobs = lock(&self.blobs);
        let last = blobs.get(name).and_then(|blob| blob.writer.as_ref());
        if let (Some(last), Some(writer)) = (last, writer)
            && last.job == writer.job
            && last.fence > writer.fence
        {
            return Err(Error::new(
                ErrorKind::Superseded,
                "write a blob",
                format!("{name} was written under fence {}, after {}", last.fence, writer.fence),
            ));
        }
        blobs.insert(name.clone(), Blob { bytes, writer: writer.cloned() });
        Ok(())
    }

    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool> {
        match lock(&self.blobs).entry(name.clone()) {
            Entry::Occupied(_) => Ok(false),
            Entry::Vacant(vacant) => {
                vacant.insert(Blob { bytes, writer: Some(writer.clone()) });
                Ok(true)
            }
        }
    }

    async fn exists(&self, name: &BlobName) -> Result<bool> {
        Ok(lock(&self.blobs).contains_key(name))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>> {
        let blobs = lock(&self.blobs);
        Ok(blobs.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect())
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        lock(&self.blobs).remove(name);
        Ok(())
    }
}
