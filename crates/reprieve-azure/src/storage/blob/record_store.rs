//! Records as blobs that are replaced if their ETag matches, and payloads as blobs that never
//! change.

use std::fmt;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::{FutureExt, StreamExt, stream};
use reprieve_core::ports::{
    ListedPayload, ListedRecord, Page, Payload, RecordStore, RecordWrite, Stored, Version,
};
use reprieve_core::{Bytes, Error, ErrorKind, JobId, PayloadName, Result};

use super::blob_store::RESERVED;
use super::container::{Container, Listed, Metadata, When};

/// The name of a record's note in its metadata.
const NOTE: &str = "note";

/// How many payloads are deleted concurrently.
const REMOVALS_AT_ONCE: usize = 8;

/// The records and payloads of a container.
pub(crate) struct AzureRecords(Container);

impl AzureRecords {
    pub(crate) fn new(container: Container) -> Self {
        Self(container)
    }

    /// Writes a payload. If its blob exists, an earlier try of the same write created it, because
    /// every write uses a new name.
    async fn store(&self, job: &JobId, payload: Payload) -> Result<()> {
        let blob = payload_blob(job, &payload.name);
        if !self.0.write_new("write a payload", &blob, payload.bytes, None).await? {
            tracing::debug!(%job, payload = %payload.name, "a payload was already written by an earlier try");
        }
        Ok(())
    }
}

fn records() -> String {
    format!("{RESERVED}records/")
}

fn payloads() -> String {
    format!("{RESERVED}payloads/")
}

fn record_blob(job: &JobId) -> String {
    format!("{RESERVED}records/{job}")
}

fn payload_blob(job: &JobId, name: &PayloadName) -> String {
    format!("{RESERVED}payloads/{job}/{name}")
}

/// Deletes payloads that no record names. After an error it still deletes the others.
async fn remove_payloads(container: &Container, job: &JobId, names: &[PayloadName]) -> Result<()> {
    let removals: Vec<_> = names
        .iter()
        .map(|name| payload_blob(job, name))
        .map(|blob| async move { container.delete("remove a payload", &blob).await }.boxed())
        .collect();
    let removed: Vec<_> = stream::iter(removals).buffer_unordered(REMOVALS_AT_ONCE).collect().await;
    removed.into_iter().collect()
}

/// Deletes payloads like [`remove_payloads`]. Retention deletes those that are left after an error.
async fn try_to_remove_payloads(container: &Container, job: &JobId, names: &[PayloadName]) {
    if let Err(error) = remove_payloads(container, job, names).await {
        tracing::debug!(%job, %error, "failed to remove payloads that are no longer needed");
    }
}

#[async_trait]
impl RecordStore for AzureRecords {
    async fn load(&self, job: &JobId) -> Result<Option<Stored>> {
        const OPERATION: &str = "load a record";
        let Some(read) = self.0.read(OPERATION, &record_blob(job)).await? else { return Ok(None) };
        let Some(modified) = read.modified else {
            let message = "the service's answer has no time of the last write";
            return Err(Error::new(ErrorKind::Internal, OPERATION, message));
        };
        let (version, modified_unix_ms) = (Version::new(read.etag), modified.as_millisecond());
        Ok(Some(Stored { bytes: read.bytes, version, modified_unix_ms }))
    }

    /// Sends two requests at most before it returns: a separate task deletes obsolete payloads.
    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version> {
        let RecordWrite { record, payload, obsolete, note } = write;
        if let Some(payload) = payload {
            self.store(job, payload).await?;
        }
        let when = expected.map_or(When::Absent, |version| When::Is(version.as_str().to_owned()));
        // Base64, because metadata are headers.
        let note = (!note.is_empty()).then(|| Metadata::from([(NOTE.to_owned(), BASE64.encode(note))]));
        let written = self.0.write("write a record", &record_blob(job), record, note, &when).await?;
        if !obsolete.is_empty() {
            let (container, job) = (self.0.clone(), job.clone());
            tokio::spawn(async move { try_to_remove_payloads(&container, &job, &obsolete).await });
        }
        Ok(Version::new(written))
    }

    async fn remove(&self, job: &JobId, expected: &Version, named: &[PayloadName]) -> Result<()> {
        self.0.delete_if("remove a record", &record_blob(job), expected.as_str()).await?;
        try_to_remove_payloads(&self.0, job, named).await;
        self.0.delete_directories_of("remove a record", &format!("{}{job}/", payloads())).await;
        Ok(())
    }

    async fn store_payload(&self, job: &JobId, payload: Payload) -> Result<()> {
        self.store(job, payload).await
    }

    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Bytes>> {
        let read = self.0.read("read a payload", &payload_blob(job, name)).await?;
        Ok(read.map(|read| read.bytes.into()))
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedRecord>> {
        let page = self.0.page("list records", &format!("{}{prefix}", records()), at).await?;
        // A name that is no job id was not written by Reprieve.
        let entry = |listed: Listed| {
            let job = JobId::parse(listed.name.strip_prefix(&records())?).ok()?;
            let note = listed.metadata.get(NOTE).and_then(|note| BASE64.decode(note).ok());
            let note = note.and_then(|note| String::from_utf8(note).ok()).unwrap_or_default();
            Some(ListedRecord { job, modified_unix_ms: listed.modified?.as_millisecond(), note })
        };
        Ok(page.filter_map(entry))
    }

    async fn payload_page(&self, at: Option<&str>) -> Result<Page<ListedPayload>> {
        let page = self.0.page("list payloads", &payloads(), at).await?;
        let entry = |listed: Listed| {
            let (job, name) = listed.name.strip_prefix(&payloads())?.split_once('/')?;
            let (job, name) = (JobId::parse(job).ok()?, PayloadName::parse(name).ok()?);
            let modified_unix_ms = listed.modified?.as_millisecond();
            Some(ListedPayload { job, name, bytes: listed.bytes, modified_unix_ms })
        };
        Ok(page.filter_map(entry))
    }

    async fn remove_payloads(&self, job: &JobId, names: &[PayloadName]) -> Result<()> {
        remove_payloads(&self.0, job, names).await?;
        self.0.delete_directories_of("remove payloads", &format!("{}{job}/", payloads())).await;
        Ok(())
    }
}

impl fmt::Debug for AzureRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AzureRecords").field(self.0.name()).finish()
    }
}
