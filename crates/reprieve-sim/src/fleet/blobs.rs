//! The blobs and the roster over one process's link.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory::{MemoryBlobs, MemoryRoster};
use reprieve_core::ports::{BlobRange, BlobStore, ListedBlob, Page, Roster, Upload, Version, WorkerReport};
use reprieve_core::{BlobName, Bytes, Result, WorkerId, Writer};

use super::history::What;
use super::link::Link;
use super::process::Process;
use super::records::number;

/// How often a worker may report at most, as in a storage account.
pub(crate) const PACE: Duration = Duration::from_secs(5);

/// The blobs at the other end of a [`Link`].
#[derive(Debug)]
pub(crate) struct FarBlobs {
    pub(crate) blobs: Arc<MemoryBlobs>,
    pub(crate) link: Arc<Link>,
    /// The worker's process, if it is one; reading some arguments kills it.
    pub(crate) process: Option<Arc<Process>>,
}

impl FarBlobs {
    /// Makes a write, and notes that its owner sent it and whether it was taken.
    async fn write(
        &self,
        writer: Option<&Writer>,
        work: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Result<()> {
        let (link, writer) = (Arc::clone(&self.link), writer.cloned());
        if let Some(Writer { job, fence }) = writer.as_ref().filter(|_| !link.has_ended()) {
            link.note(What::Sends { job: number(job), fence: *fence });
        }
        let work = async move {
            let done = work.await;
            if let Some(Writer { job, fence }) = writer {
                link.note(What::Output { job: number(&job), fence, taken: done.is_ok() });
            }
            done
        };
        self.link.call("write a blob", work).await
    }
}

#[async_trait]
impl BlobStore for FarBlobs {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        let (blobs, wanted) = (Arc::clone(&self.blobs), name.clone());
        let bytes = self.link.call("read a blob", async move { blobs.get(&wanted).await }).await;
        if let (Ok(Some(_)), Some(process)) = (&bytes, &self.process) {
            process.read(name).await;
        }
        bytes
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        let (blobs, name, of) = (Arc::clone(&self.blobs), name.clone(), writer.cloned());
        self.write(writer, async move { blobs.put(&name, bytes, of.as_ref()).await }).await
    }

    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool> {
        let (blobs, link) = (Arc::clone(&self.blobs), Arc::clone(&self.link));
        let (name, writer) = (name.clone(), writer.clone());
        let work = async move {
            let taken = blobs.create(&name, bytes.clone(), &writer).await?;
            link.note(What::Result { job: number(&writer.job), taken, value: bytes });
            Ok(taken)
        };
        self.link.call("create a blob", work).await
    }

    async fn exists(&self, name: &BlobName) -> Result<bool> {
        let (blobs, name) = (Arc::clone(&self.blobs), name.clone());
        self.link.call("look for a blob", async move { blobs.exists(&name).await }).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>> {
        let (blobs, prefix) = (Arc::clone(&self.blobs), prefix.to_owned());
        self.link.call("list blobs", async move { blobs.list(&prefix).await }).await
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>> {
        let (blobs, prefix, at) = (Arc::clone(&self.blobs), prefix.to_owned(), at.map(str::to_owned));
        self.link.call("list blobs", async move { blobs.page(&prefix, at.as_deref()).await }).await
    }

    async fn get_range(
        &self,
        name: &BlobName,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Option<BlobRange>> {
        let (blobs, name, version) = (Arc::clone(&self.blobs), name.clone(), version.cloned());
        let work = async move { blobs.get_range(&name, range, version.as_ref()).await };
        self.link.call("read a blob", work).await
    }

    async fn put_part(&self, name: &BlobName, upload: &Upload, number: u32, bytes: Bytes) -> Result<()> {
        let (blobs, name, upload) = (Arc::clone(&self.blobs), name.clone(), upload.clone());
        let work = async move { blobs.put_part(&name, &upload, number, bytes).await };
        self.link.call("write a part of a blob", work).await
    }

    async fn put_parts(
        &self,
        name: &BlobName,
        upload: &Upload,
        length: u64,
        writer: Option<&Writer>,
    ) -> Result<()> {
        let (blobs, name, upload) = (Arc::clone(&self.blobs), name.clone(), upload.clone());
        let of = writer.cloned();
        let work = async move { blobs.put_parts(&name, &upload, length, of.as_ref()).await };
        self.write(writer, work).await
    }

    async fn delete(&self, name: &BlobName, writer: Option<&Writer>) -> Result<()> {
        let (blobs, link, name) = (Arc::clone(&self.blobs), Arc::clone(&self.link), name.clone());
        let writer = writer.cloned();
        let work = async move {
            blobs.delete(&name, writer.as_ref()).await?;
            link.note(What::BlobDeleted { name: name.as_str().to_owned() });
            Ok(())
        };
        self.link.call("delete a blob", work).await
    }

    async fn delete_version(&self, name: &BlobName, version: &Version) -> Result<bool> {
        let (blobs, link) = (Arc::clone(&self.blobs), Arc::clone(&self.link));
        let (name, version) = (name.clone(), version.clone());
        let work = async move {
            let deleted = blobs.delete_version(&name, &version).await?;
            if deleted {
                link.note(What::BlobDeleted { name: name.as_str().to_owned() });
            }
            Ok(deleted)
        };
        self.link.call("delete a blob", work).await
    }
}

/// The roster at the other end of a [`Link`].
#[derive(Debug)]
pub(crate) struct FarRoster {
    pub(crate) roster: Arc<MemoryRoster>,
    pub(crate) link: Arc<Link>,
}

#[async_trait]
impl Roster for FarRoster {
    async fn publish(&self, report: &WorkerReport) -> Result<()> {
        let (roster, report) = (Arc::clone(&self.roster), report.clone());
        self.link.call("publish a report", async move { roster.publish(&report).await }).await
    }

    async fn withdraw(&self, worker: &WorkerId) -> Result<()> {
        let (roster, worker) = (Arc::clone(&self.roster), worker.clone());
        self.link.call("withdraw a report", async move { roster.withdraw(&worker).await }).await
    }

    async fn reports(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        let roster = Arc::clone(&self.roster);
        self.link.call("read reports", async move { roster.reports(max_age).await }).await
    }

    fn pace(&self) -> Duration {
        PACE
    }
}
