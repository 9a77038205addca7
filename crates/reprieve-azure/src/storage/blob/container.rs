//! The blobs of one container: bounded reads, conditional writes, lists and deletes, with
//! Reprieve's errors.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use azure_core::Bytes;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::{Body, Etag};
use azure_storage_blob::models::{
    BlobClientDeleteOptions, BlobClientDownloadOptions, BlobClientUploadOptions,
    BlobContainerClientListBlobsOptions as ListOptions, BlobItem, BlockBlobClientCommitBlockListOptions,
    BlockBlobClientUploadResult, BlockLookupList, HttpRange, ListBlobsIncludeItem,
};
use azure_storage_blob::{BlobClient, BlobContainerClient};
use futures_util::TryStreamExt;
use jiff::Timestamp;
use reprieve_core::clock::{unix_millis, wall_now};
use reprieve_core::ports::Page;
use reprieve_core::{Error, ErrorKind, Result};

use super::container_name::ContainerName;
use crate::storage::call::{
    Access, Effort, Target, absent_is_gone, bounded, date, failure, is_beyond_the_end, is_parent,
    not_applied, temporary, timestamp,
};

/// A container, with the limits of its calls.
#[derive(Clone)]
pub(crate) struct Container {
    client: Arc<BlobContainerClient>,
    name: ContainerName,
    pub(crate) effort: Effort,
    directories: Arc<Directories>,
}

/// What is known of the directories of an account with a hierarchical namespace.
#[derive(Debug, Default)]
struct Directories {
    /// A list contained one.
    exist: AtomicBool,
    /// The service refuses to delete them.
    stay: AtomicBool,
}

/// A blob's content.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) bytes: Vec<u8>,
    pub(crate) etag: String,
    /// The time of its last write, in whole seconds.
    pub(crate) modified: Option<Timestamp>,
}

/// A blob's properties.
#[derive(Debug)]
pub(crate) struct Inspected {
    pub(crate) etag: String,
    /// In bytes.
    pub(crate) length: u64,
    pub(crate) metadata: Metadata,
}

/// A blob in a list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) modified: Option<Timestamp>,
    pub(crate) etag: Option<String>,
    /// By the service's clock; by this machine's if the answer has no `Date`.
    pub(crate) age: Duration,
    pub(crate) metadata: Metadata,
}

/// The condition of a write.
#[derive(Debug, Clone)]
pub(crate) enum When {
    Always,
    /// If the blob does not exist.
    Absent,
    /// If the blob has this ETag.
    Is(String),
}

impl When {
    /// The values of If-Match and If-None-Match.
    fn headers(&self) -> (Option<Etag>, Option<Etag>) {
        match self {
            Self::Always => (None, None),
            Self::Absent => (None, Some(Etag::from("*"))),
            Self::Is(etag) => (Some(Etag::from(etag.as_str())), None),
        }
    }
}

/// The id of a block, before base64.
pub(crate) type BlockId = [u8; 16];

/// The copies of blobs that an account keeps and bills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copies {
    /// Overwritten and deleted blobs stay as versions.
    /// <https://learn.microsoft.com/azure/storage/blobs/versioning-overview>
    pub versions: bool,
    /// Deleted blobs, and overwritten ones without versions, stay for a time.
    /// <https://learn.microsoft.com/azure/storage/blobs/soft-delete-blob-overview>
    pub deleted: bool,
}

/// A blob's metadata, by lower-case name.
pub(crate) type Metadata = HashMap<String, String>;

/// The longest range that is requested, and where the last one may begin: beyond the end of any blob,
/// and no number that overflows.
const RANGE_BYTES_MAX: u64 = 1 << 50;

/// How often a range is read again because the blob has grown in between.
const ROUNDS_MAX: u32 = 20;

/// The metadata of a directory. In an account with a hierarchical namespace, directories are listed and
/// read as blobs without content.
/// <https://learn.microsoft.com/azure/storage/blobs/storage-blobs-list>,
/// <https://learn.microsoft.com/azure/storage/blobs/blob-inventory>
const IS_DIRECTORY: &str = "hdi_isfolder";

impl Container {
    pub(crate) fn new(access: &Access, name: ContainerName, effort: Effort) -> Result<Self> {
        Ok(Self {
            client: Arc::new(access.container(name.as_str())?),
            name,
            effort,
            directories: Arc::default(),
        })
    }

    pub(crate) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// Whether a list has shown that the account has a hierarchical namespace.
    pub(crate) fn has_directories(&self) -> bool {
        self.directories.exist.load(Relaxed)
    }

    /// Creates the container if it does not exist.
    pub(crate) async fn create(&self) -> Result<()> {
        const OPERATION: &str = "create the container";
        let (each, target) = (self.effort.each, Target::Container(self.name.as_str()));
        let made = self.effort.repeat(OPERATION, each, temporary, || {
            bounded(OPERATION, target, each, self.client.create(None))
        });
        match made.await {
            Ok(_) => Ok(()),
            // It exists already.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes the container with its content.
    pub(crate) async fn destroy(&self) -> Result<()> {
        const OPERATION: &str = "delete the container";
        let (each, target) = (self.effort.each, Target::Container(self.name.as_str()));
        let gone = self.effort.repeat(OPERATION, each, temporary, || {
            bounded(OPERATION, target, each, self.client.delete(None))
        });
        absent_is_gone(gone.await.map(drop))
    }

    /// Fails when the container is missing or not readable.
    pub(crate) async fn look(&self) -> Result<()> {
        self.page_of("look at the container", "", None, Some(1)).await.map(drop)
    }

    /// Reads the blob's bytes and ETag, of one version; `None` when the blob does not exist or is a
    /// directory.
    pub(crate) async fn read(&self, operation: &'static str, blob: &str) -> Result<Option<Read>> {
        // The parts of a try have limits of their own; their number is not known before.
        let whole = Duration::from_hours(1);
        let read = || self.read_once(operation, blob, usize::MAX);
        Ok(missing_is_none(self.effort.repeat(operation, whole, may_be_read, read).await)?.flatten())
    }

    /// Reads the blob like [`read`](Self::read), in at most `limit`.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) for a blob of more than `bytes_max`.
    pub(crate) async fn read_within(
        &self,
        operation: &'static str,
        blob: &str,
        limit: Duration,
        bytes_max: usize,
    ) -> Result<Option<Read>> {
        let read = || self.read_once(operation, blob, bytes_max);
        Ok(missing_is_none(self.effort.repeat_within(operation, limit, may_be_read, read).await)?.flatten())
    }

    async fn read_once(&self, operation: &'static str, blob: &str, bytes_max: usize) -> Result<Option<Read>> {
        let (client, each) = (self.client.blob_client(blob), self.effort.each);
        let target = Target::Blob(blob);
        let found = bounded(operation, target, each, client.download(at_most(bytes_max))).await?;
        if is_directory(&found.properties.metadata) {
            return Ok(None);
        }
        let too_large = || {
            let message = format!("the blob {blob} is larger than {bytes_max} bytes");
            Error::new(ErrorKind::TooLarge, operation, message)
        };
        let length = found.properties.content_length.unwrap_or_default();
        let length =
            usize::try_from(length).ok().filter(|length| *length <= bytes_max).ok_or_else(too_large)?;
        let mut bytes = Vec::with_capacity(length);
        let mut body = found.body;
        // A blob that is replaced midway fails with a conflict and is read again, so versions never
        // mix.
        while let Some(chunk) = bounded(operation, target, each, body.try_next()).await? {
            if bytes.len() + chunk.len() > bytes_max {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        let modified = found.properties.last_modified.and_then(timestamp);
        Ok(Some(Read { bytes, etag: etag(operation, found.properties.etag)?, modified }))
    }

    /// Reads a range of the blob, and its properties; `None` when the blob does not exist or is a
    /// directory. `is` is the ETag that it must have.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when it has another.
    pub(crate) async fn read_range(
        &self,
        operation: &'static str,
        blob: &str,
        range: Range<u64>,
        is: Option<&str>,
    ) -> Result<Option<(Vec<u8>, Inspected)>> {
        // The parts of a try have limits of their own, as in a read of the whole.
        let whole = Duration::from_hours(1);
        let mut refused = None;
        for _ in 0..ROUNDS_MAX {
            if range.start < range.end.min(RANGE_BYTES_MAX) {
                let read = || self.read_range_once(operation, blob, &range, is);
                match self.effort.repeat(operation, whole, temporary, read).await {
                    Err(error) if is_beyond_the_end(&error) => {}
                    // Azurite's answer for an empty blob: a range that ends before it begins, or, under a
                    // condition, that this is not met. The properties tell.
                    Err(error)
                        if refused.is_none()
                            && matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Internal) =>
                    {
                        refused = Some(error);
                    }
                    read => return Ok(missing_is_none(read)?.flatten()),
                }
            }
            let Some(found) = self.inspect(operation, blob).await? else { return Ok(None) };
            if is.is_some_and(|is| is != found.etag) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    operation,
                    format!("the blob {blob} was replaced"),
                ));
            }
            // Otherwise it has grown since.
            if range.is_empty() || range.start >= found.length {
                return Ok(Some((Vec::new(), found)));
            }
        }
        let busy =
            || Error::new(ErrorKind::Unavailable, operation, "other writers keep changing it; try again");
        Err(refused.unwrap_or_else(busy))
    }

    async fn read_range_once(
        &self,
        operation: &'static str,
        blob: &str,
        range: &Range<u64>,
        is: Option<&str>,
    ) -> Result<Option<(Vec<u8>, Inspected)>> {
        let (client, each, target) = (self.client.blob_client(blob), self.effort.each, Target::Blob(blob));
        let bytes = (range.end - range.start).min(RANGE_BYTES_MAX);
        let options = BlobClientDownloadOptions {
            range: Some(HttpRange::new(range.start, bytes)),
            // One request, however long the range.
            partition_size: usize::try_from(bytes).ok().and_then(NonZero::new),
            parallel: NonZero::new(1),
            if_match: is.map(Etag::from),
            ..Default::default()
        };
        let found = bounded(operation, target, each, client.download(Some(options))).await?;
        if is_directory(&found.properties.metadata) {
            return Ok(None);
        }
        let here = found.properties.content_length.unwrap_or_default();
        let length = whole_length(&found.headers).unwrap_or(here);
        let bytes = usize::try_from(bytes.min(here)).unwrap_or(usize::MAX);
        let (mut read, mut body) = (Vec::with_capacity(bytes), found.body);
        // A blob that was empty a moment ago is sent as a whole.
        while read.len() < bytes
            && let Some(chunk) = bounded(operation, target, each, body.try_next()).await?
        {
            let room = bytes - read.len();
            read.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        if read.len() < bytes {
            let message = format!("{target}: the answer ended early");
            return Err(Error::new(ErrorKind::TimedOut, operation, message));
        }
        let etag = etag(operation, found.properties.etag)?;
        Ok(Some((read, Inspected { etag, length, metadata: found.properties.metadata })))
    }

    /// Sends a block of the blob, which becomes a part of it when it is committed. An uncommitted block
    /// vanishes after a week, or with the next write of the blob.
    /// <https://learn.microsoft.com/rest/api/storageservices/put-block>
    pub(crate) async fn stage(
        &self,
        operation: &'static str,
        blob: &str,
        id: BlockId,
        bytes: Bytes,
    ) -> Result<()> {
        let each = self.effort.transfer(bytes.len());
        let staged = self.effort.repeat(operation, each, temporary, || {
            let (bytes, length) = (bytes.clone(), bytes.len() as u64);
            let client = self.client.blob_client(blob).block_blob_client();
            async move {
                let stage = Box::pin(client.stage_block(&id, length, Body::from(bytes).into(), None));
                bounded(operation, Target::Blob(blob), each, stage).await
            }
        });
        staged.await.map(drop)
    }

    /// Makes the blob of these blocks, of which an earlier commit may have made it. A conditional commit
    /// is repeated only if it was certainly not applied.
    /// <https://learn.microsoft.com/rest/api/storageservices/put-block-list>
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when the condition is not met or a block is missing.
    pub(crate) async fn commit(
        &self,
        operation: &'static str,
        blob: &str,
        blocks: &[BlockId],
        metadata: Option<Metadata>,
        when: &When,
    ) -> Result<()> {
        let (each, target) = (self.effort.each, Target::Blob(blob));
        let again = if matches!(when, When::Always) { temporary } else { not_applied };
        let commit = || async {
            let latest = (!blocks.is_empty()).then(|| blocks.iter().map(|id| id.to_vec()).collect());
            let list = BlockLookupList { latest, ..Default::default() };
            let list = list.try_into().map_err(|error| failure(operation, target, error))?;
            let (if_match, if_none_match) = when.headers();
            let metadata = metadata.clone();
            let options = BlockBlobClientCommitBlockListOptions {
                if_match,
                if_none_match,
                metadata,
                ..Default::default()
            };
            let client = self.client.blob_client(blob).block_blob_client();
            bounded(operation, target, each, client.commit_block_list(list, Some(options))).await
        };
        self.effort.repeat(operation, each, again, commit).await.map(drop)
    }

    /// Reads the blob's properties; `None` when the blob does not exist or is a directory.
    pub(crate) async fn inspect(&self, operation: &'static str, blob: &str) -> Result<Option<Inspected>> {
        use azure_storage_blob::models::BlobClientGetPropertiesResultHeaders as _;
        let each = self.effort.each;
        let found = self.effort.repeat(operation, each, temporary, || async {
            let client = self.client.blob_client(blob);
            let found = bounded(operation, Target::Blob(blob), each, client.get_properties(None)).await?;
            let unreadable = |error| failure(operation, Target::Blob(blob), error);
            let metadata = found.metadata().map_err(unreadable)?;
            let length = found.content_length().map_err(unreadable)?.unwrap_or_default();
            Ok(Inspected { etag: etag(operation, found.etag().map_err(unreadable)?)?, length, metadata })
        });
        Ok(missing_is_none(found.await)?.filter(|found| !is_directory(&found.metadata)))
    }

    /// Writes the blob, whole or not at all, and returns its new ETag. A conditional write is
    /// repeated only if it was certainly not applied.
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
        // All tries, and the parts of a large write, share this one copy.
        let bytes: Bytes = bytes.into();
        let each = self.effort.transfer(bytes.len());
        let again = if matches!(when, When::Always) { temporary } else { not_applied };
        let write = || self.write_once(operation, blob, bytes.clone(), metadata.clone(), when);
        self.effort.repeat(operation, each, again, write).await
    }

    /// Writes a blob that does not exist yet, whole or not at all; returns false when it exists.
    /// The write is repeated even if it may have been applied: a try that finds the blob of an
    /// earlier try also returns false.
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
        // Boxed at once: an upload is twenty kilobytes of state.
        let upload = Box::pin(upload(&client, bytes, metadata, when));
        let written = bounded(operation, Target::Blob(blob), each, upload).await?;
        etag(operation, written.etag)
    }

    /// Writes the blob and deletes it, and returns what the account keeps of it.
    pub(crate) async fn copies(
        &self,
        operation: &'static str,
        blob: &str,
        bytes: &'static [u8],
    ) -> Result<Copies> {
        let (client, each, target) = (self.client.blob_client(blob), self.effort.each, Target::Blob(blob));
        let upload = Box::pin(upload(&client, Bytes::from_static(bytes), None, &When::Always));
        let written = bounded(operation, target, each, upload).await?;
        let deleted = bounded(operation, target, each, client.delete(None)).await?;
        let permanent = HeaderName::from_static("x-ms-delete-type-permanent");
        Ok(Copies {
            versions: written.version_id.is_some(),
            deleted: deleted.headers().get_optional_str(&permanent) == Some("false"),
        })
    }

    /// Deletes the blob; succeeds when it does not exist.
    pub(crate) async fn delete(&self, operation: &'static str, blob: &str) -> Result<()> {
        let each = self.effort.each;
        let deleted = self.effort.repeat(operation, each, temporary, || async {
            let client = self.client.blob_client(blob);
            bounded(operation, Target::Blob(blob), each, client.delete(None)).await
        });
        missing_is_none(deleted.await).map(drop)
    }

    /// Deletes the directories that this blob was in and that are empty now, but not those which every
    /// store has. The service refuses to delete one that is not empty.
    pub(crate) async fn delete_directories_of(&self, operation: &'static str, blob: &str) {
        let mut path = blob;
        while let Some((directory, _)) = path.rsplit_once('/') {
            let fixed_depth = usize::from(directory.starts_with('.'));
            let stays = !self.has_directories() || self.directories.stay.load(Relaxed);
            if stays || directory.matches('/').count() <= fixed_depth {
                return;
            }
            let client = self.client.blob_client(directory);
            let target = Target::Blob(directory);
            match bounded(operation, target, self.effort.each, client.delete(None)).await {
                Ok(_) => path = directory,
                // It is not empty, or another worker has deleted it.
                Err(error) if [ErrorKind::Conflict, ErrorKind::NotFound].contains(&error.kind()) => return,
                Err(error) => {
                    // Some accounts refuse this for every directory.
                    if error.kind() == ErrorKind::Invalid {
                        self.directories.stay.store(true, Relaxed);
                    }
                    tracing::debug!(%error, "failed to delete an empty directory; it stays");
                    return;
                }
            }
        }
    }

    /// Deletes the blob with this ETag. Repeated only if it was certainly not applied.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) when the blob has another version or does not exist.
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

    /// Lists every blob with a name that starts with `prefix`.
    pub(crate) async fn list(&self, operation: &'static str, prefix: &str) -> Result<Vec<Listed>> {
        Page::all(|marker| async move { self.page(operation, prefix, marker.as_deref()).await }).await
    }

    /// Lists a part of the blobs with names that start with `prefix`: the first part, or the one that
    /// begins at the marker that came with the part before.
    pub(crate) async fn page(
        &self,
        operation: &'static str,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<Page<Listed>> {
        self.page_of(operation, prefix, marker, None).await
    }

    async fn page_of(
        &self,
        operation: &'static str,
        prefix: &str,
        marker: Option<&str>,
        at_most: Option<i32>,
    ) -> Result<Page<Listed>> {
        let each = self.effort.each;
        self.effort
            .repeat(operation, each, temporary, || async {
                let target = Target::Container(self.name.as_str());
                let options = ListOptions {
                    include: Some(vec![ListBlobsIncludeItem::Metadata]),
                    // A parameter without a value is signed as another request than the one that is
                    // sent.
                    prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
                    marker: marker.map(str::to_owned),
                    maxresults: at_most,
                    ..ListOptions::default()
                };
                let unlisted = |error| failure(operation, target, error);
                let mut pages = self.client.list_blobs(Some(options)).map_err(unlisted)?.into_pages();
                let Some(page) = bounded(operation, target, each, pages.try_next()).await? else {
                    return Ok(Page { entries: Vec::new(), next: None, now_unix_ms: unix_millis() });
                };
                // By this machine's clock if the answer does not tell.
                let now = date(page.headers()).and_then(timestamp);
                let now = now.or_else(|| Timestamp::try_from(wall_now()).ok()).unwrap_or_default();
                let next = pages.continuation().map(|marker| marker.as_ref().to_owned());
                let items = page.into_model().map_err(unlisted)?.blob_items;
                let mut entries: Vec<_> =
                    items.into_iter().filter_map(|item| Listed::of(item, now)).collect();
                let all = entries.len();
                entries.retain(|listed| !is_directory(&listed.metadata));
                if entries.len() < all {
                    self.directories.exist.store(true, Relaxed);
                }
                Ok(Page { entries, next, now_unix_ms: now.as_millisecond() })
            })
            .await
    }
}

impl Listed {
    /// `now` is the service's time.
    fn of(item: BlobItem, now: Timestamp) -> Option<Self> {
        let properties = item.properties.unwrap_or_default();
        let modified = properties.last_modified.and_then(timestamp);
        let age = modified.map(|at| now.duration_since(at).try_into().unwrap_or_default());
        Some(Self {
            name: item.name?,
            bytes: properties.content_length.unwrap_or_default(),
            modified,
            etag: properties.etag.map(|etag| quoted(etag.as_ref())),
            age: age.unwrap_or_default(),
            metadata: item.metadata.and_then(|metadata| metadata.values).unwrap_or_default(),
        })
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Container").field(&self.name).finish()
    }
}

/// The options of a download that needs no more than `bytes_max`. One more byte is requested, in one
/// request, so that a larger blob shows by the length of the answer and none of its content is read.
fn at_most(bytes_max: usize) -> Option<BlobClientDownloadOptions<'static>> {
    let end = NonZero::new(bytes_max.checked_add(1)?)?;
    let range = Some((0..end.get()).into());
    Some(BlobClientDownloadOptions { range, partition_size: Some(end), ..Default::default() })
}

async fn upload(
    client: &BlobClient,
    bytes: Bytes,
    metadata: Option<Metadata>,
    when: &When,
) -> azure_core::Result<BlockBlobClientUploadResult> {
    let (if_match, if_none_match) = when.headers();
    let options = BlobClientUploadOptions { if_match, if_none_match, metadata, ..Default::default() };
    client.upload(Body::from(bytes).into(), Some(options)).await
}

/// The length of the whole blob in the answer to a request for a range.
fn whole_length(headers: &Headers) -> Option<u64> {
    let range = headers.get_optional_str(&HeaderName::from_static("content-range"))?;
    range.rsplit_once('/')?.1.parse().ok()
}

/// The ETag as conditions take it: a list has it without the quotes of a header.
fn quoted(etag: &str) -> String {
    if etag.starts_with('"') { etag.to_owned() } else { format!("\"{etag}\"") }
}

fn etag(operation: &'static str, etag: Option<Etag>) -> Result<String> {
    etag.map(|etag| etag.to_string())
        .ok_or_else(|| Error::new(ErrorKind::Internal, operation, "the service's answer has no ETag"))
}

fn is_directory(metadata: &Metadata) -> bool {
    let mut named = metadata.iter().filter(|(name, _)| name.eq_ignore_ascii_case(IS_DIRECTORY));
    named.any(|(_, value)| value.eq_ignore_ascii_case("true"))
}

/// Whether reading again may succeed: a blob that is replaced midway fails with a conflict.
fn may_be_read(error: &Error) -> bool {
    temporary(error) || error.kind() == ErrorKind::Conflict
}

/// A missing container is an error; a missing blob is `None`.
fn missing_is_none<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound && !is_parent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
