//! A Storage queue and its poison queue: the queue port.

mod body;
mod calls;
mod poison;
mod receipt;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, stream};
use reprieve_core::clock::unix_millis;
use reprieve_core::ports::{
    DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release, Unreadable,
};
use reprieve_core::{Error, ErrorKind, MessageId, QueueName, Result};

pub(crate) use self::body::{Bodies, encode_body};
use self::body::{Encoded, Fetched, LONG_BODY_MAX, Reference, encode_reference};
pub(crate) use self::calls::{QueueCalls, expiry};
use self::calls::{Received, Sent};
use self::poison::PoisonQueue;
pub(crate) use self::receipt::ReceiptParts;
use crate::storage::call::{Access, Effort, may_be_applied, temporary, within};

/// How many long bodies of a batch are read concurrently: each may have four megabytes, and more are
/// requested only to be refused.
const BODIES_AT_ONCE: usize = 8;

/// How many messages are sent concurrently: each is a request of its own.
const SENDS_AT_ONCE: usize = 16;

const SEND: &str = "send a message";

/// The limit for sending one message. Its calls have limits of their own.
const WHOLE: Duration = Duration::from_hours(1);

/// A queue, its poison queue, and the container of its long bodies.
pub(crate) struct AzureQueue {
    main: Arc<QueueCalls>,
    poison: PoisonQueue,
    bodies: Bodies,
    effort: Effort,
}

impl AzureQueue {
    pub(crate) fn new(access: &Access, name: &QueueName, bodies: Bodies, effort: Effort) -> Result<Self> {
        let main = Arc::new(QueueCalls::new(access, name.clone(), effort)?);
        let poison = QueueCalls::new(access, name.poison(), effort)?;
        Ok(Self { main, poison: PoisonQueue::new(poison, bodies.clone()), bodies, effort })
    }

    /// Creates the queue and its poison queue if they do not exist.
    pub(crate) async fn create(&self) -> Result<()> {
        self.main.create().await?;
        self.poison.queue().create().await
    }

    /// Deletes the queue and its poison queue with their content.
    pub(crate) async fn destroy(&self) -> Result<()> {
        self.main.destroy().await?;
        self.poison.queue().destroy().await
    }

    /// Fails when the queue or its poison queue is missing or not readable.
    pub(crate) async fn look(&self) -> Result<()> {
        self.main.look().await?;
        self.poison.queue().look().await
    }

    pub(crate) fn name(&self) -> &QueueName {
        self.main.name()
    }

    /// Sends one message, and repeats the call where that may help. That may enqueue the message
    /// twice, which is harmless: both have the same job id.
    async fn send_one(&self, message: &NewMessage) -> Result<MessageId> {
        self.effort.repeat(SEND, WHOLE, temporary, || self.send_once(message)).await
    }

    /// Sends one message once. Each try writes a long body to a blob of its own: if two messages
    /// shared one, settling the first would delete the second's body.
    async fn send_once(&self, message: &NewMessage) -> Result<MessageId> {
        self.put(SEND, &message.body, message.delay).await.map(|(sent, _)| MessageId::new(sent.id))
    }

    /// Puts one message, and returns it with the blob of a long body.
    async fn put(
        &self,
        operation: &'static str,
        body: &[u8],
        delay: Duration,
    ) -> Result<(Sent, Option<String>)> {
        let Encoded { text, blob } = self.bodies.encode(operation, body).await?;
        match self.main.put(operation, &text, delay).await {
            Ok(sent) => Ok((sent, blob)),
            Err(error) => {
                // A message that may have been sent may need its blob.
                if !may_be_applied(&error) {
                    self.bodies.remove(blob.as_deref()).await;
                }
                Err(error)
            }
        }
    }

    /// Adds the body to a received message.
    async fn delivery(&self, received: Received) -> Delivery {
        // A slower body would delay the batch's other messages, whose leases are running.
        match self.bodies.fetch("read a long body", &received.text, LONG_BODY_MAX).await {
            Fetched::Body(body, blob) => received.delivery(body, blob.as_deref()),
            Fetched::Unreadable(Reference { blob, unreadable_since }, reason) => {
                let since_unix_ms = unreadable_since.unwrap_or_else(unix_millis);
                let parts = ReceiptParts {
                    blob: Some(&blob),
                    unreadable_since: Some(since_unix_ms),
                    ..ReceiptParts::of(&received.id, &received.pop)
                };
                let receipt = parts.receipt();
                let unreadable = Some(Unreadable { reason, since_unix_ms });
                let body = received.text.clone().into_bytes();
                Delivery { receipt, unreadable, ..received.delivery(body, None) }
            }
        }
    }

    /// Releases the message with its present body. For a body that could not be read, stores the
    /// time since when.
    async fn release_unchanged(
        &self,
        operation: &'static str,
        message: &ReceiptParts<'_>,
        delay: Duration,
    ) -> Result<()> {
        let text = match *message {
            ReceiptParts { blob: Some(blob), unreadable_since: Some(since), .. } => {
                Some(encode_reference(blob, Some(since)))
            }
            _ => None,
        };
        self.main.update(operation, message, delay, text.as_deref()).await.map(drop)
    }
}

#[async_trait]
impl Queue for AzureQueue {
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        let all = messages.len();
        let sends: Vec<_> = messages.iter().map(|message| self.send_one(message).boxed()).collect();
        let sent: Vec<_> = stream::iter(sends).buffered(SENDS_AT_ONCE).collect().await;
        let done = sent.iter().filter(|sent| sent.is_ok()).count();
        sent.into_iter().collect::<Result<_>>().map_err(|error| {
            if all == 1 {
                return error;
            }
            // `Unavailable` would mean that no message was sent, and the caller might send all of
            // them elsewhere.
            let kind = match error.kind() {
                ErrorKind::Unavailable if done > 0 => ErrorKind::TimedOut,
                kind => kind,
            };
            let message = format!("{done} of {all} messages were sent; {}", error.message());
            Error::new(kind, "send messages", message).with_source(error)
        })
    }

    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let received = self.main.receive("receive messages", max, lease).await?;
        let deliveries: Vec<_> = received.into_iter().map(|one| self.delivery(one).boxed()).collect();
        Ok(stream::iter(deliveries).buffered(BODIES_AT_ONCE).collect().await)
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        let message = ReceiptParts::read(receipt)?;
        let pop = self.main.update("renew a lease", &message, lease, None).await?;
        Ok(ReceiptParts { pop: &pop, ..message }.receipt())
    }

    /// Sends the new message invisible, which is a lease: the answer has its receipt.
    async fn replace(&self, receipt: &Receipt, body: &[u8], lease: Duration) -> Result<Delivery> {
        const OPERATION: &str = "replace a message that expires";
        ReceiptParts::read(receipt)?;
        let (sent, blob) = self.put(OPERATION, body, lease).await?;
        // The lease of the new message counts from now on, whatever the old one's deletion takes.
        let (main, bodies, old) =
            (Arc::clone(&self.main), self.bodies.clone(), Receipt::new(receipt.as_str()));
        tokio::spawn(async move {
            let Ok(old) = ReceiptParts::read(&old) else { return };
            match main.delete(OPERATION, &old).await {
                Ok(()) => bodies.remove(old.blob).await,
                Err(error) => {
                    tracing::warn!(%error, message_id = old.id, "failed to delete a message that was replaced");
                }
            }
        });
        let receipt =
            ReceiptParts { blob: blob.as_deref(), ..ReceiptParts::of(&sent.id, &sent.pop) }.receipt();
        Ok(Delivery {
            id: MessageId::new(sent.id),
            dequeue_count: 0,
            body: body.to_vec(),
            receipt,
            inserted_unix_ms: Some(unix_millis()),
            expires_unix_ms: None,
            unreadable: None,
        })
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        let message = ReceiptParts::read(receipt)?;
        self.main.delete("complete a message", &message).await?;
        self.bodies.remove(message.blob).await;
        Ok(())
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        const OPERATION: &str = "release a message";
        let message = ReceiptParts::read(receipt)?;
        let Some(body) = &release.body else {
            return self.release_unchanged(OPERATION, &message, release.delay).await;
        };
        // The message is worth more than the counters in a new body. If a long new body can't be
        // written to a blob, the message is released with the old one. The write gets half of a
        // try, so that the other half is left for the release.
        let placed = within(self.effort.each / 2, OPERATION, self.bodies.encode(OPERATION, body)).await;
        let Encoded { text, blob } = match placed {
            Ok(placed) => placed,
            Err(error) => {
                tracing::warn!(%error, message_id = message.id, "failed to write a message's new body; it is released with its old counters");
                return self.release_unchanged(OPERATION, &message, release.delay).await;
            }
        };
        match self.main.update(OPERATION, &message, release.delay, Some(&text)).await {
            Ok(_) => self.bodies.remove(message.blob).await,
            Err(error) => {
                // Without an answer it is unknown to which of the two bodies the message refers.
                if !may_be_applied(&error) {
                    self.bodies.remove(blob.as_deref()).await;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        self.poison.dead_letter(&self.main, receipt, body, letter).await
    }

    async fn depth(&self) -> Result<Depth> {
        let (total, poisoned) = tokio::join!(self.main.count(), self.poison.queue().count());
        // The count of this queue is returned even if the poison queue may not be counted.
        Ok(Depth { total: total?, poisoned: poisoned.ok(), ..Depth::default() })
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        self.poison.peek(max).await
    }

    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        self.poison.receive(max, lease).await
    }

    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        self.poison.remove(receipt).await
    }

    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        self.poison.release(receipt).await
    }
}

impl fmt::Debug for AzureQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AzureQueue").field(self.name()).finish()
    }
}
