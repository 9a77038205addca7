//! An in-memory store of records and payloads.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;

use super::{PAGE, lock};
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, PayloadName};
use crate::ports::{ListedPayload, ListedRecord, Page, Payload, RecordStore, RecordWrite, Stored, Version};

/// An in-memory store of records and payloads.
#[derive(Debug, Default)]
pub struct MemoryRecords {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The records with their notes.
    records: BTreeMap<JobId, (Stored, String)>,
    payloads: BTreeMap<(JobId, PayloadName), StoredPayload>,
    /// The last version given. All jobs share it, so a removal does not restart a job's versions.
    last_version: u64,
}

#[derive(Debug)]
struct StoredPayload {
    bytes: Bytes,
    at_unix_ms: i64,
}

impl MemoryRecords {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns every stored payload, whether a record names it or not.
    #[must_use]
    pub fn payloads(&self) -> Vec<(JobId, PayloadName)> {
        lock(&self.state).payloads.keys().cloned().collect()
    }
}

impl State {
    /// Fails unless the job's record has the version `expected`.
    fn check(&self, operation: &'static str, job: &JobId, expected: Option<&Version>) -> Result<()> {
        if self.records.get(job).map(|(stored, _)| &stored.version) == expected {
            return Ok(());
        }
        let message = format!("the record of job {job} has another version: load it again");
        Err(Error::new(ErrorKind::Conflict, operation, message))
    }

    fn store_payload(&mut self, job: &JobId, Payload { name, bytes }: Payload) {
        self.payloads.insert((job.clone(), name), StoredPayload { bytes, at_unix_ms: unix_millis() });
    }

    fn remove_payloads(&mut self, job: &JobId, names: &[PayloadName]) {
        for name in names {
            self.payloads.remove(&(job.clone(), name.clone()));
        }
    }
}

#[async_trait]
impl RecordStore for MemoryRecords {
    async fn load(&self, job: &JobId) -> Result<Option<Stored>> {
        Ok(lock(&self.state).records.get(job).map(|(stored, _)| stored.clone()))
    }

    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version> {
        let mut state = lock(&self.state);
        state.check("write a record", job, expected)?;
        state.last_version += 1;
        let version = Version::new(state.last_version.to_string());
        let RecordWrite { record: bytes, payload, obsolete, note } = write;
        state.remove_payloads(job, &obsolete);
        if let Some(payload) = payload {
            state.store_payload(job, payload);
        }
        let stored = Stored { bytes, version: version.clone(), modified_unix_ms: unix_millis() };
        state.records.insert(job.clone(), (stored, note));
        Ok(version)
    }

    async fn remove(&self, job: &JobId, expected: &Version, payloads: &[PayloadName]) -> Result<()> {
        let mut state = lock(&self.state);
        state.check("remove a record", job, Some(expected))?;
        state.records.remove(job);
        state.remove_payloads(job, payloads);
        Ok(())
    }

    async fn store_payload(&self, job: &JobId, payload: Payload) -> Result<()> {
        lock(&self.state).store_payload(job, payload);
        Ok(())
    }

    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Bytes>> {
        Ok(lock(&self.state).payloads.get(&(job.clone(), name.clone())).map(|payload| payload.bytes.clone()))
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedRecord>> {
        let state = lock(&self.state);
        let after = |job: &JobId| at.is_none_or(|at| job.as_str() > at);
        let entries: Vec<_> = state
            .records
            .iter()
            .filter(|(job, _)| after(job) && job.as_str().starts_with(prefix))
            .map(|(job, (stored, note))| ListedRecord {
                job: job.clone(),
                modified_unix_ms: stored.modified_unix_ms,
                note: note.clone(),
            })
            .take(PAGE)
            .collect();
        Ok(Page::up_to(entries, PAGE, |last| last.job.to_string()))
    }

    async fn payload_page(&self, at: Option<&str>) -> Result<Page<ListedPayload>> {
        let state = lock(&self.state);
        let at = at.and_then(|at| at.split_once('/'));
        let after = |job: &JobId, name: &PayloadName| at.is_none_or(|at| (job.as_str(), name.as_str()) > at);
        let entries: Vec<_> = state
            .payloads
            .iter()
            .filter(|((job, name), _)| after(job, name))
            .map(|((job, name), payload)| ListedPayload {
                job: job.clone(),
                name: name.clone(),
                bytes: payload.bytes.len() as u64,
                modified_unix_ms: payload.at_unix_ms,
            })
            .take(PAGE)
            .collect();
        Ok(Page::up_to(entries, PAGE, |last| format!("{}/{}", last.job, last.name)))
    }

    async fn remove_payloads(&self, job: &JobId, names: &[PayloadName]) -> Result<()> {
        lock(&self.state).remove_payloads(job, names);
        Ok(())
    }
}
