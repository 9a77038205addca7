//! Inputs and outputs as blobs under their own names. The metadata of an output contains its
//! writer's job and fence.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::Bytes;
use reprieve_core::ports::{BlobStore, ListedBlob, Page, Version};
use reprieve_core::{BlobName, Error, ErrorKind, Fence, Result, Writer};

use super::container::{Container, Listed, Metadata, When};
use crate::storage::call::temporary;

/// The prefix of the names of Reprieve's own blobs. [`BlobStore::list`] omits them, and they can't
/// be read or written as inputs or outputs.
pub const RESERVED: &str = ".reprieve/";

/// How often a put checks again because another write came in between.
const ROUNDS_MAX: u32 = 20;

const PUT: &str = "write an output";

/// The limit of a whole put. Its calls have limits of their own; their number is not known before.
const WHOLE: Duration = Duration::from_hours(1);

const JOB: &str = "reprievejob";
const FENCE: &str = "reprievefence";

/// The blobs of a container.
pub(crate) struct AzureBlobs(Container);

impl AzureBlobs {
    pub(crate) fn new(container: Container) -> Self {
        Self(container)
    }

    /// Writes an output unless a later owner of the same job has. If a write may or may not have
    /// been applied, the whole put is repeated: the same owner may write the same bytes twice, and
    /// the new check shows whether it still is the owner.
    async fn put_fenced(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<()> {
        let bytes = Bytes::from(bytes);
        self.0.effort.repeat(PUT, WHOLE, temporary, || self.put_in_rounds(name, bytes.clone(), writer)).await
    }

    /// The first round writes without a check, because most outputs are new.
    async fn put_in_rounds(&self, name: &BlobName, bytes: Bytes, writer: &Writer) -> Result<()> {
        let mut when = When::Absent;
        for _ in 0..ROUNDS_MAX {
            let write = self.0.write(PUT, name.as_str(), bytes.clone(), Some(signed(writer)), &when);
            match write.await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
            when = match self.0.inspect(PUT, name.as_str()).await? {
                None => When::Absent,
                Some((_, metadata)) if later_owner(&metadata, writer) => return Err(superseded(writer)),
                Some((etag, _)) => When::Is(etag),
            };
        }
        Err(Error::new(ErrorKind::Unavailable, PUT, "other writers keep changing it; try again"))
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
            Some(writer) => self.put_fenced(name, bytes, writer).await,
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

    async fn delete(&self, name: &BlobName) -> Result<()> {
        allowed("delete a blob", name)?;
        self.0.delete("delete a blob", name.as_str()).await
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

fn superseded(writer: &Writer) -> Error {
    let Writer { job, fence } = writer;
    let message = format!("a newer owner of job {job} than {fence} has written it");
    Error::new(ErrorKind::Superseded, "write an output", message)
}
