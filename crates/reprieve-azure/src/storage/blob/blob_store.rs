//! Inputs and outputs as blobs under their own names. The metadata of an output contains its
//! writer's job and fence.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::Bytes;
use reprieve_core::ports::{BlobRange, BlobStore, ListedBlob, Page, Upload, Version};
use reprieve_core::{BlobName, Error, ErrorKind, Fence, Result, Writer};

use super::container::{BlockId, Container, Inspected, Listed, Metadata, When};
use crate::storage::call::{is_about_blocks, temporary};

/// The prefix of the names of Reprieve's own blobs. [`BlobStore::list`] omits them, and they can't
/// be read or written as inputs or outputs.
pub const RESERVED: &str = ".reprieve/";

/// How often a put checks again because another write came in between.
const ROUNDS_MAX: u32 = 20;

const PUT: &str = "write an output";
const PARTS: &str = "write a blob in parts";

/// The limit of a whole put. Its calls have limits of their own; their number is not known before.
const WHOLE: Duration = Duration::from_hours(1);

const JOB: &str = "reprievejob";
const FENCE: &str = "reprievefence";

/// A change of a blob by an owner of a job.
enum Change {
    Write(Bytes),
    /// Commits these blocks.
    Commit(Vec<BlockId>),
    Delete,
}

/// The blobs of a container.
pub(crate) struct AzureBlobs(Container);

impl AzureBlobs {
    pub(crate) fn new(container: Container) -> Self {
        Self(container)
    }

    /// Changes a blob unless a later owner of the same job wrote it. If a change may or may not have been
    /// applied, the whole is repeated: the same owner may write the same bytes twice, and the new check
    /// shows whether it still is the owner.
    async fn fenced(
        &self,
        operation: &'static str,
        name: &BlobName,
        change: Change,
        writer: &Writer,
    ) -> Result<()> {
        let rounds = || self.in_rounds(operation, name, &change, writer);
        self.0.effort.repeat(operation, WHOLE, temporary, rounds).await
    }

    /// Changes the blob under a condition that holds while no later owner has written it. If it was
    /// changed meanwhile, checks again. The first round of a write is without a check, because most
    /// outputs are new.
    async fn in_rounds(
        &self,
        operation: &'static str,
        name: &BlobName,
        change: &Change,
        writer: &Writer,
    ) -> Result<()> {
        let mut when = match change {
            Change::Write(_) | Change::Commit(_) => When::Absent,
            Change::Delete => self.admit(operation, name, writer).await?,
        };
        let (mut lacks_parts, mut in_a_block) = (false, None);
        for _ in 0..ROUNDS_MAX {
            let change = in_a_block.as_ref().unwrap_or(change);
            match self.change(operation, name, change, writer, &when).await {
                Ok(()) => return Ok(()),
                Err(error) if lacks_parts && is_about_blocks(&error) => {
                    let message = "another write of the blob has discarded its parts; write it again";
                    return Err(Error::new(ErrorKind::Conflict, operation, message));
                }
                // A commit that lacks blocks is made once more: only the check tells whether a later
                // owner has taken them.
                Err(error) if error.kind() == ErrorKind::Conflict => lacks_parts = is_about_blocks(&error),
                Err(error) => return Err(error),
            }
            let before = std::mem::replace(&mut when, self.admit(operation, name, writer).await?);
            if let (When::Absent, When::Absent, Change::Write(bytes)) = (before, &when, change) {
                // A blob that consists of uncommitted blocks is none, but Azurite refuses to write it if it
                // must be absent. It does commit one.
                let id = block_id(&Upload::new(), 0);
                self.0.stage(operation, name.as_str(), id, bytes.clone()).await?;
                in_a_block = Some(Change::Commit(vec![id]));
            }
        }
        Err(Error::new(ErrorKind::Unavailable, operation, "other writers keep changing it; try again"))
    }

    async fn change(
        &self,
        operation: &'static str,
        name: &BlobName,
        change: &Change,
        writer: &Writer,
        when: &When,
    ) -> Result<()> {
        let (blob, metadata) = (name.as_str(), Some(signed(writer)));
        match (change, when) {
            (Change::Write(bytes), when) => {
                self.0.write(operation, blob, bytes.clone(), metadata, when).await.map(drop)
            }
            (Change::Commit(blocks), when) => self.0.commit(operation, blob, blocks, metadata, when).await,
            (Change::Delete, When::Is(etag)) => self.0.delete_if(operation, blob, etag).await,
            (Change::Delete, When::Absent | When::Always) => Ok(()),
        }
    }

    /// The condition under which the writer may change the blob as it is now.
    ///
    /// # Errors
    /// [`Superseded`](ErrorKind::Superseded) when a later owner of its job wrote the blob.
    async fn admit(&self, operation: &'static str, name: &BlobName, writer: &Writer) -> Result<When> {
        match self.0.inspect(operation, name.as_str()).await? {
            None => Ok(When::Absent),
            Some(found) if later_owner(&found.metadata, writer) => Err(superseded(operation, writer)),
            Some(found) => Ok(When::Is(found.etag)),
        }
    }
}

#[async_trait]
impl BlobStore for AzureBlobs {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        allowed("read a blob", name)?;
        Ok(self.0.read("read a blob", name.as_str()).await?.map(|read| read.bytes))
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        allowed("write a blob", name)?;
        match writer {
            Some(writer) => self.fenced(PUT, name, Change::Write(bytes.into()), writer).await,
            None => self.0.write("write a blob", name.as_str(), bytes, None, &When::Always).await.map(drop),
        }
    }

    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool> {
        const OPERATION: &str = "create an output";
        allowed(OPERATION, name)?;
        self.0.write_new(OPERATION, name.as_str(), bytes, Some(signed(writer))).await
    }

    async fn exists(&self, name: &BlobName) -> Result<bool> {
        const OPERATION: &str = "look for a blob";
        allowed(OPERATION, name)?;
        Ok(self.0.inspect(OPERATION, name.as_str()).await?.is_some())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>> {
        let listed = self.0.list("list blobs", prefix).await?;
        let names = listed.into_iter().map(|listed| listed.name).filter(|name| !name.starts_with(RESERVED));
        // A name that is no valid blob name was written by another program, and no job can read it.
        let mut names: Vec<_> = names.filter_map(|name| BlobName::parse(name).ok()).collect();
        names.sort();
        Ok(names)
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>> {
        let page = self.0.page("list blobs", prefix, at).await?;
        // As in a list of names. The service lists no blob without a time or an ETag.
        let entry = |Listed { name, bytes, modified, etag, .. }: Listed| {
            if name.starts_with(RESERVED) {
                return None;
            }
            let name = BlobName::parse(name).ok()?;
            let (modified, version) = (modified?, Version::new(etag?));
            Some(ListedBlob { name, bytes, modified_unix_ms: modified.as_millisecond(), version })
        };
        Ok(page.filter_map(entry))
    }

    async fn get_range(
        &self,
        name: &BlobName,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Option<BlobRange>> {
        const OPERATION: &str = "read a blob";
        allowed(OPERATION, name)?;
        let etag = version.map(Version::as_str);
        let read = self.0.read_range(OPERATION, name.as_str(), range, etag).await?;
        Ok(read.map(|(bytes, Inspected { etag, length, .. })| BlobRange {
            bytes: bytes.into(),
            length,
            version: Version::new(etag),
        }))
    }

    async fn put_part(&self, name: &BlobName, upload: &Upload, number: u32, bytes: Bytes) -> Result<()> {
        const OPERATION: &str = "write a part of a blob";
        allowed(OPERATION, name)?;
        self.0.stage(OPERATION, name.as_str(), block_id(upload, number), bytes).await
    }

    async fn put_parts(
        &self,
        name: &BlobName,
        upload: &Upload,
        length: u64,
        writer: Option<&Writer>,
    ) -> Result<()> {
        allowed(PARTS, name)?;
        let ids: Vec<_> = (0..Upload::parts(length)?).map(|number| block_id(upload, number)).collect();
        match writer {
            Some(writer) => self.fenced(PARTS, name, Change::Commit(ids), writer).await,
            None => self.0.commit(PARTS, name.as_str(), &ids, None, &When::Always).await,
        }
    }

    async fn delete(&self, name: &BlobName, writer: Option<&Writer>) -> Result<()> {
        const OPERATION: &str = "delete a blob";
        allowed(OPERATION, name)?;
        let Some(writer) = writer else { return self.0.delete(OPERATION, name.as_str()).await };
        self.fenced(OPERATION, name, Change::Delete, writer).await?;
        self.0.delete_directories_of(OPERATION, name.as_str()).await;
        Ok(())
    }

    async fn delete_version(&self, name: &BlobName, version: &Version) -> Result<bool> {
        allowed("delete a blob", name)?;
        match self.0.delete_if("delete a blob", name.as_str(), version.as_str()).await {
            Ok(()) => {
                self.0.delete_directories_of("delete a blob", name.as_str()).await;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for AzureBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AzureBlobs").field(self.0.name()).finish()
    }
}

fn allowed(operation: &'static str, name: &BlobName) -> Result<()> {
    if name.as_str().starts_with(RESERVED) {
        let message = format!("names that begin with {RESERVED} are Reprieve's own; use another");
        return Err(Error::new(ErrorKind::Invalid, operation, message));
    }
    Ok(())
}

fn signed(writer: &Writer) -> Metadata {
    [(JOB, writer.job.to_string()), (FENCE, writer.fence.as_u64().to_string())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// Whether a later owner of the writer's job wrote the blob with this metadata.
fn later_owner(metadata: &Metadata, writer: &Writer) -> bool {
    let value = |name: &str| metadata.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v);
    let fence = value(FENCE).and_then(|fence| fence.parse().ok()).map(Fence::from_u64);
    value(JOB).is_some_and(|job| job == writer.job.as_str())
        && fence.is_some_and(|fence| fence > writer.fence)
}

fn superseded(operation: &'static str, writer: &Writer) -> Error {
    let Writer { job, fence } = writer;
    let message = format!("a newer owner of job {job} than {fence} has written it");
    Error::new(ErrorKind::Superseded, operation, message)
}

/// The id of a block: all ids of a blob must have the same length, and the SDK's have 16 bytes.
fn block_id(upload: &Upload, number: u32) -> BlockId {
    ((u128::from(upload.id()) << 64) | u128::from(number)).to_be_bytes()
}
