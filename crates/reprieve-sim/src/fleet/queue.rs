//! One shard over one process's link.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::envelope::Envelope;
use reprieve_core::memory::MemoryQueue;
use reprieve_core::ports::{DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release};
use reprieve_core::record::End;
use reprieve_core::{Error, ErrorKind, MessageId, Result};

use super::history::What;
use super::link::Link;
use super::records::number;

/// A shard at the other end of a [`Link`].
#[derive(Debug)]
pub(crate) struct FarQueue {
    pub(crate) name: String,
    pub(crate) queue: Arc<MemoryQueue>,
    pub(crate) link: Arc<Link>,
    /// Whether the store announces new messages.
    pub(crate) hints: bool,
}

impl FarQueue {
    /// Returns the message that `receipt` belongs to.
    fn message(&self, receipt: &Receipt) -> MessageId {
        let number = receipt.as_str().split('.').next().unwrap_or_default();
        MessageId::new(format!("{}-{number}", self.name))
    }

    /// Performs a call with a receipt, and records the outcome.
    async fn with_receipt<T: Send + 'static, F>(
        &self,
        operation: &'static str,
        receipt: &Receipt,
        work: impl FnOnce(Arc<MemoryQueue>, Receipt) -> F + Send + 'static,
        what: What,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let (queue, link, message) = (Arc::clone(&self.queue), Arc::clone(&self.link), self.message(receipt));
        let receipt = Receipt::new(receipt.as_str());
        let call = async move {
            let done = work(queue, receipt).await;
            match &done {
                Ok(_) => link.note(what),
                Err(_) => link.note(What::LeaseRefused { message, operation }),
            }
            done
        };
        self.link.call(operation, call).await
    }
}

/// Returns the ends of deliveries that a body contains.
pub(crate) fn ends(body: &[u8]) -> Vec<End> {
    Envelope::read(body, &MessageId::new("m"), None).map_or_else(|_| Vec::new(), |it| it.notes.ends)
}

/// Returns the job and the generation that a body names.
pub(crate) fn named(body: &[u8]) -> Option<(usize, u32)> {
    let envelope = Envelope::read(body, &MessageId::new("m"), None).ok()?;
    Some((number(&envelope.job), envelope.notes.generation))
}

/// Fails for calls that no worker makes here; operators make them without a process of their own.
fn unused<T>(operation: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Internal, operation, "a worker does not do this"))
}

#[async_trait]
impl Queue for FarQueue {
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        let (queue, link) = (Arc::clone(&self.queue), Arc::clone(&self.link));
        let work = async move {
            let jobs: Vec<_> = messages.iter().filter_map(|message| named(&message.body)).collect();
            let sent = queue.send(messages).await?;
            for (message, (job, generation)) in sent.iter().cloned().zip(jobs) {
                link.note(What::Sent { job, message, generation });
            }
            Ok(sent)
        };
        self.link.call("send messages", work).await
    }

    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let (queue, link) = (Arc::clone(&self.queue), Arc::clone(&self.link));
        let work = async move {
            let deliveries = queue.receive(max, lease).await?;
            for delivery in &deliveries {
                let (message, count) = (delivery.id.clone(), delivery.dequeue_count);
                link.note(What::Received { message, count, lease });
            }
            Ok(deliveries)
        };
        self.link.call("receive messages", work).await
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        let what = What::Renewed { message: self.message(receipt), lease };
        let work = move |queue: Arc<MemoryQueue>, receipt: Receipt| async move {
            queue.renew(&receipt, lease).await
        };
        self.with_receipt("renew a lease", receipt, work, what).await
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        let what = What::Completed { message: self.message(receipt) };
        let work = |queue: Arc<MemoryQueue>, receipt: Receipt| async move { queue.complete(&receipt).await };
        self.with_receipt("complete a message", receipt, work, what).await
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        let ends = release.body.as_deref().map(ends).unwrap_or_default();
        let what = What::Released { message: self.message(receipt), delay: release.delay, ends };
        let release = release.clone();
        let work = move |queue: Arc<MemoryQueue>, receipt: Receipt| async move {
            queue.release(&receipt, &release).await
        };
        self.with_receipt("release a message", receipt, work, what).await
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        let what = What::DeadLettered { message: self.message(receipt), reason: letter.reason.clone() };
        let (body, letter) = (body.to_vec(), letter.clone());
        let work = move |queue: Arc<MemoryQueue>, receipt: Receipt| async move {
            queue.dead_letter(&receipt, &body, &letter).await
        };
        self.with_receipt("dead-letter a message", receipt, work, what).await
    }

    async fn arrived(&self) {
        if !self.hints {
            return std::future::pending().await;
        }
        self.link.hears().await;
        self.queue.arrived().await;
    }

    async fn recover(&self) -> Result<u64> {
        self.link.call("recover messages", async { Ok(0) }).await
    }

    async fn depth(&self) -> Result<Depth> {
        unused("count messages")
    }

    async fn dead_letters(&self, _: usize) -> Result<Vec<DeadLettered>> {
        unused("look at dead letters")
    }

    async fn receive_letters(&self, _: usize, _: Duration) -> Result<Vec<Delivery>> {
        unused("receive dead letters")
    }

    async fn remove_letter(&self, _: &Receipt) -> Result<()> {
        unused("remove a dead letter")
    }

    async fn return_letter(&self, _: &Receipt) -> Result<()> {
        unused("return a dead letter")
    }
}
