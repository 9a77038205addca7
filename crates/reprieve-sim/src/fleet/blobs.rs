//! The blobs and the roster over one process's link.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::memory::{MemoryBlobs, MemoryRoster};
use reprieve_core::ports::{BlobStore, ListedBlob, Page, Roster, Version, WorkerReport};
use reprieve_core::{BlobName, Result, WorkerId, Writer};

use super::history::What;
use super::link::Link;
use super::process::Process;
use super::records::number;

/// The blobs at the other end of a [`Link`].
#[derive(Debug)]
pub(super) struct FarBlobs {
    pub(super) blobs: Arc<MemoryBlobs>,
    pub(super) link: Arc<Link>,
    /// The process; reading some arguments kills it.
    pub(super) process: Arc<Process>,
}

#[async_trait]
impl BlobStore for FarBlobs {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        let (blobs, wanted) = (Arc::clone(&self.blobs), name.clone());
        let bytes = self.link.call("read a blob", async move { blobs.get(&wanted).await }).await;
        if let Ok(Some(_)) = &bytes {
            self.process.read(name).await;
        }
        bytes
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        let (blobs, link) = (Arc::clone(&self.blobs), Arc::clone(&self.link));
        let (name, writer) = (name.clone(), writer.cloned());
        if let Some(Writer { job, fence }) = writer.as_ref().filter(|_| !link.has_ended()) {
            link.note(What::Sends { job: number(job), fence: *fence });
        }
        let work = async move {
            let done = blobs.put(&name, bytes, writer.as_ref()).await;
            if let Some(Writer { job, fence }) = writer {
                link.note(What::Output { job: number(&job), fence, taken: done.is_ok() });
            }
            done
        };
        self.link.call("write a blob", work).await
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

    async fn delete(&self, name: &BlobName) -> Result<()> {
        let (blobs, link, name) = (Arc::clone(&self.blobs), Arc::clone(&self.link), name.clone());
        let work = async move {
            blobs.delete(&name).await?;
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
pub(super) struct FarRoster {
    pub(super) roster: Arc<MemoryRoster>,
    pub(super) link: Arc<Link>,
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
        Duration::from_secs(5)
    }
}
