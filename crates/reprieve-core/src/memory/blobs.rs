//! An in-memory blob store.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;

use super::{PAGE, lock};
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, Writer};
use crate::ports::{BlobStore, ListedBlob, Page, Version};

/// An in-memory blob store.
#[derive(Debug, Default)]
pub struct MemoryBlobs {
    blobs: Mutex<BTreeMap<BlobName, Blob>>,
    /// The last version given. All blobs share it, so a removal does not restart a blob's versions.
    last_version: AtomicU64,
}

#[derive(Debug)]
struct Blob {
    bytes: Vec<u8>,
    /// The last writer; `None` for a producer.
    writer: Option<Writer>,
    version: Version,
    at_unix_ms: i64,
}

impl MemoryBlobs {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn blob(&self, bytes: Vec<u8>, writer: Option<Writer>) -> Blob {
        let version = Version::new((self.last_version.fetch_add(1, Relaxed) + 1).to_string());
        Blob { bytes, writer, version, at_unix_ms: unix_millis() }
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
        blobs.insert(name.clone(), self.blob(bytes, writer.cloned()));
        Ok(())
    }

    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool> {
        match lock(&self.blobs).entry(name.clone()) {
            Entry::Occupied(_) => Ok(false),
            Entry::Vacant(vacant) => {
                vacant.insert(self.blob(bytes, Some(writer.clone())));
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

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>> {
        let blobs = lock(&self.blobs);
        let is_next = |name: &str| name.starts_with(prefix) && at.is_none_or(|at| name > at);
        let entries: Vec<_> = blobs
            .iter()
            .filter(|(name, _)| is_next(name.as_str()))
            .map(|(name, blob)| ListedBlob {
                name: name.clone(),
                bytes: blob.bytes.len() as u64,
                modified_unix_ms: blob.at_unix_ms,
                version: blob.version.clone(),
            })
            .take(PAGE)
            .collect();
        Ok(Page::up_to(entries, PAGE, |last| last.name.to_string()))
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        lock(&self.blobs).remove(name);
        Ok(())
    }

    async fn delete_version(&self, name: &BlobName, version: &Version) -> Result<bool> {
        let mut blobs = lock(&self.blobs);
        let is_there = blobs.get(name).is_some_and(|blob| blob.version == *version);
        if is_there {
            blobs.remove(name);
        }
        Ok(is_there)
    }
}
