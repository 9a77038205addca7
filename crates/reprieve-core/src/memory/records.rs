//! An in-memory store of records and payloads.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;

use super::lock;
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, PayloadName};
use crate::ports::{Payload, RecordStore, RecordWrite, Stored, Version};

/// An in-memory store of records and payloads.
#[derive(Debug, Default)]
pub struct MemoryRecords {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<JobId, Stored>,
    payloads: BTreeMap<(JobId, PayloadName), Bytes>,
    /// The last version given. All jobs share it, so a removal does not restart a job's versions.
    last_version: u64,
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
        if self.records.get(job).map(|stored| &stored.version) == expected {
            return Ok(());
        }
        let message = format!("the record of job {job} has another version: load it again");
        Err(Error::new(ErrorKind::Conflict, operation, message))
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
        Ok(lock(&self.state).records.get(job).cloned())
    }

    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version> {
        let mut state = lock(&self.state);
        state.check("write a record", job, expected)?;
        state.last_version += 1;
        let version = Version::new(state.last_version.to_string());
        let RecordWrite { record: bytes, payload, obsolete } = write;
        state.remove_payloads(job, &obsolete);
        if let Some(payload) = payload {
            state.payloads.insert((job.clone(), payload.name), payload.bytes);
        }
        let stored = Stored { bytes, version: version.clone(), modified_unix_ms: unix_millis() };
        state.records.insert(job.clone(), stored);
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
        lock(&self.state).payloads.insert((job.clone(), payload.name), payload.bytes);
        Ok(())
    }

    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Bytes>> {
        Ok(lock(&self.state).payloads.get(&(job.clone(), name.clone())).cloned())
    }

    async fn stale(&self, before_unix_ms: i64, max: usize) -> Result<Vec<JobId>> {
        let state = lock(&self.state);
        let old = state.records.iter().filter(|(_, stored)| stored.modified_unix_ms < before_unix_ms);
        Ok(old.map(|(job, _)| job.clone()).take(max).collect())
    }
}
