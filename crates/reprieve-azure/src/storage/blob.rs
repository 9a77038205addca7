//! One container's blobs: reading, writing on a condition, listing and removing, bounded and in our terms.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use azure_core::Bytes;
use azure_core::http::{Body, Etag};
use azure_core::time::OffsetDateTime;
use azure_storage_blob::models::{
    BlobClientDeleteOptions, BlobClientUploadOptions, BlobContainerClientListBlobsOptions, BlobItem,
    BlockBlobClientUploadResult,
};
use azure_storage_blob::{BlobClient, BlobContainerClient};
use futures_util::TryStreamExt;
use jiff::Timestamp;
use reprieve_core::{Error, ErrorKind, Result};

use super::access::Access;
use super::container_name::ContainerName;
use super::effort::{Effort, not_applied, temporary};
use super::failure::{Target, bounded};

/// A container, and how hard to try.
#[derive(Clone)]
pub(crate) struct Container {
    client: Arc<BlobContainerClient>,
    name: ContainerName,
    pub(crate) effort: Effort,
}

/// A blob that was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) bytes: Vec<u8>,
    pub(crate) etag: String,
    /// When it was written, in whole seconds.
    pub(crate) modified: Option<Timestamp>,
}

/// A blob in a list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) modified: Option<Timestamp>,
}

/// When a write may be done.
#[derive(Debug, Clone)]
pub(crate) enum When {
    Always,
    /// There is no such blob.
    Absent,
    /// The blob is the one with this entity tag.
    Is(String),
}

/// The metadata of a blob, by lower-case names.
pub(crate) type Metadata = HashMap<String, String>;

impl Container {
    pub(crate) fn new(access: &Access, name: ContainerName, effort: Effort) -> Result<Self> {
        Ok(Self { client: Arc::new(access.container(name.as_str())?), name, effort })
    }

    pub(crate) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// Makes the container, if there is none.
    pub(crate) async fn create(&self) -> Result<()> {
        const OPERATION: &str = "create the container";
        let (each, target) = (self.effort.each, Target::Container(self.name.as_str()));
        let made = self.effort.repeat(OPERATION, each, temporary, || {
            bounded(OPERATION, target, each, self.client.create(None))
        });
        match made.await {
            Ok(_) => Ok(()),
            // It is there.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the container with everything in it.
    pub(crate) async fn destroy(&self) -> Result<()> {
        const OPERATION: &str = "delete the container";
        let (each, target) = (self.effort.each, Target::Container(self.name.as_str()));
        let gone = self.effort.repeat(OPERATION, each, temporary, || {
            bounded(OPERATION, target, each, self.client.delete(None))
        });
        absent_is_gone(gone.await.map(drop))
    }

    /// Fails when the container is not there or not ours to read.
    pub(crate) async fn look(&self) -> Result<()> {
        self.page("look at the container", "", 1).await.map(drop)
    }

    /// The blob's bytes and entity tag, of one moment; `None` when there is no such blob.
    pub(crate) async fn read(&self, operation: &'static str, blob: &str) -> Result<Option<Read>> {
        // A try bounds its parts, whose number is not known before.
        let whole = Duration::from_hours(1);
        let read = || self.read_once(operation, blob);
        missing_is_none(self.effort.repeat(operation, whole, may_be_read, read).await)
    }

    /// The same in at most `limit`.
    pub(crate) async fn read_within(
        &self,
        operation: &'static str,
        blob: &str,
        limit: Duration,
    ) -> Result<Option<Read>> {
        let read = || self.read_once(operation, blob);
        missing_is_none(self.effort.repeat_within(operation, limit, may_be_read, read).await)
    }

    async fn read_once(&self, operation: &'static str, blob: &str) -> Result<Read> {
        let (client, each) = (self.client.blob_client(blob), self.effort.each);
        let target = Target::Blob(blob);
        let found = bounded(operation, target, each, client.download(None)).await?;
        let length = found.properties.content_length.unwrap_or_default();
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        let mut body = found.body;
        // A blob that is replaced in the middle fails with a conflict, and is read again: never a mixture.
        while let Some(chunk) = bounded(operation, target, each, body.try_next()).await? {
            bytes.extend_from_slice(&chunk);
        }
        let modified = found.properties.last_modified.and_then(timestamp);
        Ok(Read { bytes, etag: etag(operation, found.properties.etag)?, modified })
    }

    /// The blob's entity tag and metadata; `None` when there is no such blob.
    pub(crate) async fn inspect(
        &self,
        operation: &'static str,
        blob: &str,
    ) -> Result<Option<(String, Metadata)>> {
        use azure_storage_blob::models::BlobClientGetPropertiesResultHeaders as _;
        let each = self.effort.each;
        let found = self.effort.repeat(operation, each, temporary, || async {
            let client = self.client.blob_client(blob);
            let found = bounded(operation, Target::Blob(blob), each, client.get_properties(None)).await?;
            let unreadable = |error| super::failure::failure(operation, Target::Blob(blob), error);
            let metadata = found.metadata().map_err(unreadable)?;
            Ok((etag(operation, found.etag().map_err(unreadable)?)?, metadata))
        });
        missing_is_none(found.await)
    }

    /// Writes the blob, whole or not at all, and returns its new entity tag. Made again only where it was surely not
    /// applied, unless it may be done always.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when the condition is not met.
    pub(crate) async fn write(
        &self,
        operation: &'static str,
        blob: &str,
        bytes: impl Into<Bytes>,
        metadata: Option<Metadata>,
        when: &When,
    ) -> Result<String> {
        // Shared by all tries, and by the parts of a large one: there is one copy.
        let bytes: Bytes = bytes.into();
        let each = self.effort.transfer(bytes.len());
        let again = if matches!(when, When::Always) { temporary } else { not_applied };
        let write = || self.write_once(operation, blob, bytes.clone(), metadata.clone(), when);
        self.effort.repeat(operation, each, again, write).await
    }

    /// Writes a blob that is not there yet, whole or not at all; false when there is one. Also made again where it may have
    /// been applied: a try that finds the blob of an earlier one answers false, too.
    pub(crate) async fn write_new(
        &self,
        operation: &'static str,
        blob: &str,
        bytes: impl Into<Bytes>,
        metadata: Option<Metadata>,
    ) -> Result<bool> {
        let bytes: Bytes = bytes.into();
        let each = self.effort.transfer(bytes.len());
        let write = || self.write_once(operation, blob, bytes.clone(), metadata.clone(), &When::Absent);
        match self.effort.repeat(operation, each, temporary, write).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn write_once(
        &self,
        operation: &'static str,
        blob: &str,
        bytes: Bytes,
        metadata: Option<Metadata>,
        when: &When,
    ) -> Result<String> {
        let each = self.effort.transfer(bytes.len());
        let client = self.client.blob_client(blob);
        // Boxed where it is made: an upload is twenty kilobytes of state.
        let upload = Box::pin(upload(&client, bytes, metadata, when));
        let written = bounded(operation, Target::Blob(blob), each, upload).await?;
        etag(operation, written.etag)
    }

    /// Removes the blob; succeeds when there is none.
    pub(crate) async fn delete(&self, operation: &'static str, blob: &str) -> Result<()> {
        let each = self.effort.each;
        let deleted = self.effort.repeat(operation, each, temporary, || async {
            let client = self.client.blob_client(blob);
            bounded(operation, Target::Blob(blob), each, client.delete(None)).await
        });
        missing_is_none(deleted.await).map(drop)
    }

    /// Removes the blob that has this entity tag. Made again only where it was surely not applied.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when there is another version of the blob, or none.
    pub(crate) async fn delete_if(&self, operation: &'static str, blob: &str, is: &str) -> Result<()> {
        let each = self.effort.each;
        let deleted = self.effort.repeat(operation, each, not_applied, || async {
            let client = self.client.blob_client(blob);
            let options = BlobClientDeleteOptions { if_match: Some(Etag::from(is)), ..Default::default() };
            bounded(operation, Target::Blob(blob), each, client.delete(Some(options))).await
        });
        match missing_is_none(deleted.await)? {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::Conflict, operation, format!("the blob {blob} is gone"))),
        }
    }

    /// Every blob whose name starts with `prefix`.
    pub(crate) async fn list(&self, operation: &'static str, prefix: &str) -> Result<Vec<Listed>> {
        self.page(operation, prefix, usize::MAX).await
    }

    /// The first blobs whose names start with `prefix`, `max` or a few more.
    async fn page(&self, operation: &'static str, prefix: &str, max: usize) -> Result<Vec<Listed>> {
        let whole = Duration::from_hours(1);
        self.effort
            .repeat(operation, whole, temporary, || async {
                let (target, each) = (Target::Container(self.name.as_str()), self.effort.each);
                let options = BlobContainerClientListBlobsOptions {
                    prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
                    maxresults: i32::try_from(max).ok(),
                    ..Default::default()
                };
                let pager = self.client.list_blobs(Some(options));
                let mut pager = pager.map_err(|error| super::failure::failure(operation, target, error))?;
                let mut listed = Vec::new();
                while let Some(item) = bounded(operation, target, each, pager.try_next()).await? {
                    listed.extend(Listed::of(item));
                    if listed.len() >= max {
                        break;
                    }
                }
                Ok(listed)
            })
            .await
    }
}

impl Listed {
    fn of(item: BlobItem) -> Option<Self> {
        let modified = item.properties.and_then(|properties| properties.last_modified);
        Some(Self { name: item.name?, modified: modified.and_then(timestamp) })
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Container").field(&self.name).finish()
    }
}

async fn upload(
    client: &BlobClient,
    bytes: Bytes,
    metadata: Option<Metadata>,
    when: &When,
) -> azure_core::Result<BlockBlobClientUploadResult> {
    let (if_match, if_none_match) = match when {
        When::Always => (None, None),
        When::Absent => (None, Some(Etag::from("*"))),
        When::Is(etag) => (Some(Etag::from(etag.as_str())), None),
    };
    let options = BlobClientUploadOptions { if_match, if_none_match, metadata, ..Default::default() };
    client.upload(Body::from(bytes).into(), Some(options)).await
}

/// The service's time; it has no parts of seconds.
pub(crate) fn timestamp(at: OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_second(at.unix_timestamp()).ok()
}

fn etag(operation: &'static str, etag: Option<Etag>) -> Result<String> {
    etag.map(|etag| etag.to_string())
        .ok_or_else(|| Error::new(ErrorKind::Internal, operation, "the service's answer has no entity tag"))
}

/// Whether another try may read a blob: one that is replaced in the middle fails with a conflict.
fn may_be_read(error: &Error) -> bool {
    temporary(error) || error.kind() == ErrorKind::Conflict
}

/// What is not there is as good as deleted.
pub(crate) fn absent_is_gone(deleted: Result<()>) -> Result<()> {
    deleted.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// A container that is missing is no blob that is missing.
fn missing_is_none<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound && !super::failure::is_parent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
