//! The ports with [`Faults`] in front of each call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::faults::{Faults, Op};
use crate::error::Result;
use crate::ids::{BlobName, MessageId, WorkerId, Writer};
use crate::ports::{
    BlobStore, CheckpointStore, DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt,
    Release, Roster, Stored, Version, WorkerReport,
};

#[derive(Debug)]
pub(super) struct FaultyQueue {
    pub(super) inner: Arc<dyn Queue>,
    pub(super) faults: Faults,
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
}

#[derive(Debug)]
pub(super) struct FaultyCheckpoints {
    pub(super) inner: Arc<dyn CheckpointStore>,
    pub(super) faults: Faults,
}

#[async_trait]
#[deny(clippy::missing_trait_methods, reason = "a method that is not passed on would change the store")]
impl CheckpointStore for FaultyCheckpoints {
    async fn load(&self, key: &str) -> Result<Option<Stored>> {
        self.faults.call(Op::Load, self.inner.load(key)).await
    }

    async fn save(&self, key: &str, expected: Option<&Version>, bytes: Vec<u8>) -> Result<Version> {
        self.faults.call(Op::Save, self.inner.save(key, expected, bytes)).await
    }

    async fn clear(&self, key: &str) -> Result<()> {
        self.faults.call(Op::Clear, self.inner.clear(key)).await
    }
}

#[derive(Debug)]
pub(super) struct FaultyBlobs {
    pub(super) inner: Arc<dyn BlobStore>,
    pub(super) faults: Faults,
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

    async fn list(&self, prefix: &str) -> Result<Vec<BlobName>> {
        self.faults.call(Op::List, self.inner.list(prefix)).await
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.faults.call(Op::Delete, self.inner.delete(name)).await
    }
}

#[derive(Debug)]
pub(super) struct FaultyRoster {
    pub(super) inner: Arc<dyn Roster>,
    pub(super) faults: Faults,
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
}
