//! The ports with [`Faults`] applied to each call.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::faults::{Faults, Op};
use crate::error::Result;
use crate::ids::{BlobName, JobId, MessageId, PayloadName, WorkerId, Writer};
use crate::ledger::is_entry;
use crate::names::LEDGER_IDS;
use crate::ports::{
    BlobRange, BlobStore, DeadLetter, DeadLettered, Delivery, Depth, ListedBlob, ListedPayload, ListedRecord,
    Member, NewMessage, Page, Payload, Queue, Receipt, RecordStore, RecordWrite, Release, Roster, Store,
    Stored, Upload, Version, WorkerReport,
};

impl Faults {
    /// Wraps `store`. Without faults, the wrapper behaves as `store` does.
    #[must_use]
    pub fn wrap(store: Store) -> (Store, Self) {
        let faults = Self::default();
        let store = Store {
            queue: Arc::new(FaultyQueue { inner: store.queue, faults: faults.clone() }),
            records: Arc::new(FaultyRecords { inner: store.records, faults: faults.clone() }),
            blobs: Arc::new(FaultyBlobs { inner: store.blobs, faults: faults.clone() }),
            roster: Arc::new(FaultyRoster { inner: store.roster, faults: faults.clone() }),
        };
        (store, faults)
    }
}

#[derive(Debug)]
struct FaultyQueue {
    inner: Arc<dyn Queue>,
    faults: Faults,
}

#[async_trait]
#[deny(clippy::missing_trait_methods, reason = "a method that is not passed on would change the queue")]
impl Queue for FaultyQueue {
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        self.faults.call(Op::Send, self.inner.send(messages)).await
    }

    fn batch_max(&self) -> usize {
        self.inner.batch_max()
    }

    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        self.faults.call(Op::Receive, self.inner.receive(max, lease)).await
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        self.faults.call(Op::Renew, self.inner.renew(receipt, lease)).await
    }

    async fn replace(&self, receipt: &Receipt, body: &[u8], lease: Duration) -> Result<Delivery> {
        self.faults.call(Op::Send, self.inner.replace(receipt, body, lease)).await
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        self.faults.call(Op::Complete, self.inner.complete(receipt)).await
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        self.faults.call(Op::Release, self.inner.release(receipt, release)).await
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        self.faults.call(Op::DeadLetter, self.inner.dead_letter(receipt, body, letter)).await
    }

    async fn arrived(&self) {
        self.faults.harmless(Op::Receive).await;
        self.inner.arrived().await;
    }

    async fn recover(&self) -> Result<u64> {
        self.faults.call(Op::Recover, self.inner.recover()).await
    }

    async fn depth(&self) -> Result<Depth> {
        self.faults.call(Op::Depth, self.inner.depth()).await
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        self.faults.call(Op::DeadLetters, self.inner.dead_letters(max)).await
    }

    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        self.faults.call(Op::ReceiveLetters, self.inner.receive_letters(max, lease)).await
    }

    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        self.faults.call(Op::RemoveLetter, self.inner.remove_letter(receipt)).await
    }

    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        self.faults.call(Op::ReturnLetter, self.inner.return_letter(receipt)).await
    }

    fn part(&self, receipt: &Receipt) -> usize {
        self.inner.part(receipt)
    }

    fn parts(&self) -> usize {
        self.inner.parts()
    }
}

#[derive(Debug)]
struct FaultyRecords {
    inner: Arc<dyn RecordStore>,
    faults: Faults,
}

#[async_trait]
#[deny(clippy::missing_trait_methods, reason = "a method that is not passed on would change the store")]
impl RecordStore for FaultyRecords {
    async fn load(&self, job: &JobId) -> Result<Option<Stored>> {
        self.faults.call(Op::Load, self.inner.load(job)).await
    }

    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version> {
        let op = if is_entry(job) { Op::Ledger } else { Op::Save };
        self.faults.call(op, self.inner.put(job, expected, write)).await
    }

    async fn remove(&self, job: &JobId, expected: &Version, payloads: &[PayloadName]) -> Result<()> {
        self.faults.call(Op::Remove, self.inner.remove(job, expected, payloads)).await
    }

    async fn store_payload(&self, job: &JobId, payload: Payload) -> Result<()> {
        self.faults.call(Op::StorePayload, self.inner.store_payload(job, payload)).await
    }

    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Bytes>> {
        self.faults.call(Op::Payload, self.inner.payload(job, name)).await
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedRecord>> {
        let op = if prefix.starts_with(LEDGER_IDS) { Op::LedgerPage } else { Op::RecordPage };
        self.faults.call(op, self.inner.page(prefix, at)).await
    }

    async fn payload_page(&self, at: Option<&str>) -> Result<Page<ListedPayload>> {
        self.faults.call(Op::PayloadPage, self.inner.payload_page(at)).await
    }

    async fn remove_payloads(&self, job: &JobId, names: &[PayloadName]) -> Result<()> {
        self.faults.call(Op::RemovePayloads, self.inner.remove_payloads(job, names)).await
    }
}

#[derive(Debug)]
struct FaultyBlobs {
    inner: Arc<dyn BlobStore>,
    faults: Faults,
}

#[async_trait]
#[deny(clippy::missing_trait_methods, reason = "a method that is not passed on would change the store")]
impl BlobStore for FaultyBlobs {
    async fn get(&self, name: &BlobName) -> Result<Option<Vec<u8>>> {
        self.faults.call(Op::Get, self.inner.get(name)).await
    }

    async fn put(&self, name: &BlobName, bytes: Vec<u8>, writer: Option<&Writer>) -> Result<()> {
        self.faults.call(Op::Put, self.inner.put(name, bytes, writer)).await
    }

    async fn create(&self, name: &BlobName, bytes: Vec<u8>, writer: &Writer) -> Result<bool> {
        self.faults.call(Op::Put, self.inner.create(name, bytes, writer)).await
    }

    async fn exists(&self, name: &BlobName) -> Result<bool> {
        self.faults.call(Op::Exists, self.inner.exists(name)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>> {
        self.faults.call(Op::List, self.inner.list(prefix)).await
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedBlob>> {
        self.faults.call(Op::BlobPage, self.inner.page(prefix, at)).await
    }

    async fn get_range(
        &self,
        name: &BlobName,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Option<BlobRange>> {
        self.faults.call(Op::GetRange, self.inner.get_range(name, range, version)).await
    }

    async fn put_part(&self, name: &BlobName, upload: &Upload, number: u32, bytes: Bytes) -> Result<()> {
        self.faults.call(Op::PutPart, self.inner.put_part(name, upload, number, bytes)).await
    }

    async fn put_parts(
        &self,
        name: &BlobName,
        upload: &Upload,
        length: u64,
        writer: Option<&Writer>,
    ) -> Result<()> {
        self.faults.call(Op::PutParts, self.inner.put_parts(name, upload, length, writer)).await
    }

    async fn delete(&self, name: &BlobName, writer: Option<&Writer>) -> Result<()> {
        self.faults.call(Op::Delete, self.inner.delete(name, writer)).await
    }

    async fn delete_version(&self, name: &BlobName, version: &Version) -> Result<bool> {
        self.faults.call(Op::DeleteVersion, self.inner.delete_version(name, version)).await
    }
}

#[derive(Debug)]
struct FaultyRoster {
    inner: Arc<dyn Roster>,
    faults: Faults,
}

#[async_trait]
#[deny(clippy::missing_trait_methods, reason = "a method that is not passed on would change the roster")]
impl Roster for FaultyRoster {
    fn pace(&self) -> Duration {
        self.inner.pace()
    }

    async fn publish(&self, report: &WorkerReport) -> Result<()> {
        self.faults.call(Op::Publish, self.inner.publish(report)).await
    }

    async fn withdraw(&self, worker: &WorkerId) -> Result<()> {
        self.faults.call(Op::Withdraw, self.inner.withdraw(worker)).await
    }

    async fn reports(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        self.faults.call(Op::Reports, self.inner.reports(max_age)).await
    }

    async fn departed(&self, max_age: Duration) -> Result<Vec<WorkerReport>> {
        self.faults.call(Op::Reports, self.inner.departed(max_age)).await
    }

    async fn members(&self, max_age: Duration) -> Result<Vec<Member>> {
        self.faults.call(Op::Reports, self.inner.members(max_age)).await
    }
}
