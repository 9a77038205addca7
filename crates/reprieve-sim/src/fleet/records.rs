//! The records over one process's link.

use std::sync::Arc;

use async_trait::async_trait;
use reprieve_core::codec::decode_state;
use reprieve_core::ledger::is_entry;
use reprieve_core::memory::MemoryRecords;
use reprieve_core::ports::{
    ListedPayload, ListedRecord, Page, Payload, RecordStore, RecordWrite, Stored, Version,
};
use reprieve_core::record::{Place, open};
use reprieve_core::{Bytes, JobId, PayloadName, Result};
use serde::Deserialize;

use super::history::What;
use super::link::Link;

/// The records at the other end of a [`Link`].
#[derive(Debug)]
pub(crate) struct FarRecords {
    pub(crate) records: Arc<MemoryRecords>,
    pub(crate) link: Arc<Link>,
}

/// The part of a saved state that the checker reads.
#[derive(Deserialize)]
struct Step {
    at: u32,
}

/// Returns the job's number in the plan.
pub(crate) fn number(job: &JobId) -> usize {
    job.as_str().rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
}

/// Returns the step of a saved state.
pub(crate) fn step(state: &[u8]) -> Option<u32> {
    decode_state(state).ok().map(|Step { at }| at)
}

#[async_trait]
impl RecordStore for FarRecords {
    async fn load(&self, job: &JobId) -> Result<Option<Stored>> {
        let (records, job) = (Arc::clone(&self.records), job.clone());
        self.link.call("load a record", async move { records.load(&job).await }).await
    }

    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version> {
        let (records, link, name) = (Arc::clone(&self.records), Arc::clone(&self.link), job.clone());
        let (call, issued) = (link.number(), link.history.now());
        let expected = expected.cloned();
        if is_entry(job) {
            let work = async move { records.put(&name, expected.as_ref(), write).await };
            return self.link.call("write an entry of the ledger", work).await;
        }
        let work = async move {
            let (record, payload) = (open(&write.record).ok(), write.payload.clone());
            let done = records.put(&name, expected.as_ref(), write).await;
            let job = number(&name);
            let (Ok(_), Some(record)) = (&done, record) else {
                link.note(What::WriteRefused { job });
                return done;
            };
            let newest = record.checkpoints.first();
            let state = match newest.map(|checkpoint| &checkpoint.place) {
                None => None,
                Some(Place::Inside(state)) => step(state),
                Some(Place::Payload(payload)) => {
                    records.payload(&name, payload).await?.as_deref().and_then(step)
                }
            };
            let saved = payload.is_some() || newest.is_some_and(|newest| newest.sequence == record.sequence);
            let record = Box::new(record);
            link.note(What::Written { job, call, record, state, saved, issued });
            done
        };
        let written = self.link.call("write a record", work).await;
        if written.is_ok() {
            self.link.note(What::Acknowledged { job: number(job), call });
        }
        written
    }

    async fn remove(&self, job: &JobId, expected: &Version, payloads: &[PayloadName]) -> Result<()> {
        let (records, link) = (Arc::clone(&self.records), Arc::clone(&self.link));
        let (job, expected, payloads) = (job.clone(), expected.clone(), payloads.to_vec());
        let work = async move {
            let done = records.remove(&job, &expected, &payloads).await;
            let job = number(&job);
            link.note(if done.is_ok() { What::Removed { job } } else { What::WriteRefused { job } });
            done
        };
        self.link.call("remove a record", work).await
    }

    async fn store_payload(&self, job: &JobId, payload: Payload) -> Result<()> {
        let (records, job) = (Arc::clone(&self.records), job.clone());
        self.link.call("write a payload", async move { records.store_payload(&job, payload).await }).await
    }

    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Bytes>> {
        let (records, job, name) = (Arc::clone(&self.records), job.clone(), name.clone());
        self.link.call("read a payload", async move { records.payload(&job, &name).await }).await
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedRecord>> {
        let (records, prefix, at) = (Arc::clone(&self.records), prefix.to_owned(), at.map(str::to_owned));
        self.link.call("list records", async move { records.page(&prefix, at.as_deref()).await }).await
    }

    async fn payload_page(&self, at: Option<&str>) -> Result<Page<ListedPayload>> {
        let (records, at) = (Arc::clone(&self.records), at.map(str::to_owned));
        self.link.call("list payloads", async move { records.payload_page(at.as_deref()).await }).await
    }

    async fn remove_payloads(&self, job: &JobId, names: &[PayloadName]) -> Result<()> {
        let (records, job, names) = (Arc::clone(&self.records), job.clone(), names.to_vec());
        let removed = async move { records.remove_payloads(&job, &names).await };
        self.link.call("remove payloads", removed).await
    }
}
