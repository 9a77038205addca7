//! An in-memory blob store.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use super::{PAGE, lock};
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, Writer};
use crate::ports::{BlobRange, BlobStore, ListedBlob, Page, Upload, Version};

/// An in-memory blob store.
#[derive(Debug, Default)]
pub struct MemoryBlobs {
    blobs: Mutex<BTreeMap<BlobName, Blob>>,
    /// The last version given. All blobs share it, so a removal does not restart a blob's versions.
    last_version: AtomicU64,
}

#[derive(Debug)]
struct Blob {
    bytes: Bytes,
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

    /// Returns how long all blobs are together.
    #[cfg(feature = "testing")]
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.blobs).values().map(|blob| blob.bytes.len() as u64).sum()
    }

    fn blob(&self, bytes: impl Into<Bytes>, writer: Option<Writer>) -> Blob {
        let bytes = bytes.into();
        let version = Version::new((self.last_version.fetch_add(1, Relaxed) + 1).to_string());
        Blob { bytes, writer, version, at_unix_ms: unix_millis() }
    }

    fn write(&self, name: &BlobName, bytes: impl Into<Bytes>, writer: Option<&Writer>) -> Result<()> {
        let mut blobs = lock(&self.blobs);
        check_fence("write a blob", name, blobs.get(name), writer)?;
        blobs.insert(name.clone(), self.blob(bytes, writer.cloned()));
        Ok(())
    }
}

/// Fails when a later owner of the writer's job wrote the blob.
fn check_fence(
    operation: &'static str,
    name: &BlobName,
    blob: Option<&Blob>,
    writer: Option<&Writer>,
) -> Result<()> {
    let last = blob.and_then(|blob| blob.writer.as_ref());
    match (last, writer) {
        (Some(last), Some(writer)) if last.job == writer.job && last.fence > writer.fence => {
            let message = format!("{name} was written under fence {}, after {}", last.fence, writer.fence);
            Err(Error::new(ErrorKind::Superseded, operation, message))
        }
        _ => Ok(()),
    }
}

/// The parts of a blob that were sent so far.
type Parts = Mutex<BTreeMap<u32, Bytes>>;

#[async_trait]
impl BlobStore for MemoryBlobs {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        Ok(lock(&self.blobs).get(name).map(|blob| blob.bytes.to_vec()))
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        self.write(name, bytes, writer)
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

    async fn get_range(
        &self,
        name: &BlobName,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Option<BlobRange>> {
        let blobs = lock(&self.blobs);
        let Some(blob) = blobs.get(name) else { return Ok(None) };
        if version.is_some_and(|version| *version != blob.version) {
            let message = format!("{name} was replaced");
            return Err(Error::new(ErrorKind::Conflict, "read a blob", message));
        }
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(blob.bytes.len());
        let bytes = blob.bytes.slice(at(range.start)..at(range.end.max(range.start)));
        let (length, version) = (blob.bytes.len() as u64, blob.version.clone());
        Ok(Some(BlobRange { bytes, length, version }))
    }

    async fn put_part(&self, _: &BlobName, upload: &Upload, number: u32, bytes: Bytes) -> Result<()> {
        lock(upload.state::<Parts>()?).insert(number, bytes);
        Ok(())
    }

    async fn put_parts(
        &self,
        name: &BlobName,
        upload: &Upload,
        length: u64,
        writer: Option<&Writer>,
    ) -> Result<()> {
        let mut whole = BytesMut::new();
        let parts = lock(upload.state::<Parts>()?);
        (0..Upload::parts(length)?)
            .filter_map(|number| parts.get(&number))
            .for_each(|part| whole.extend_from_slice(part));
        drop(parts);
        if whole.len() as u64 != length {
            let message = format!("{} of {length} bytes of {name} are there", whole.len());
            return Err(Error::new(ErrorKind::Conflict, "write a blob in parts", message));
        }
        self.write(name, whole, writer)
    }

    async fn delete(&self, name: &BlobName, writer: Option<&Writer>) -> Result<()> {
        let mut blobs = lock(&self.blobs);
        check_fence("delete a blob", name, blobs.get(name), writer)?;
        blobs.remove(name);
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
