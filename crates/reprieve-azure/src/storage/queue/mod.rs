//! The queue port on a Storage queue and its poison queue.

mod calls;
mod letters;
mod overflow;
mod poison;
mod receipt;
mod text;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use azure_storage_queue::models::ReceivedMessage;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use reprieve_core::clock::unix_millis;
use reprieve_core::ports::{
    DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release, Unreadable,
};
use reprieve_core::{Error, ErrorKind, MessageId, QueueName, Result};

pub(crate) use self::calls::Messages;
use self::letters::is_missing_queue;
pub(crate) use self::overflow::Overflow;
use self::overflow::{Fetched, Placed};
pub(crate) use self::receipt::Held;
pub(crate) use self::text::of_body;
use self::text::{Reference, of_reference};
use crate::storage::blob::timestamp;
use crate::storage::call::{Access, Effort, is_speechless, temporary, within};

/// The most messages of one receive or peek.
/// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
pub(super) const BATCH_MAX: usize = 32;

/// How many messages are sent concurrently: each is a request of its own.
const SENDS_AT_ONCE: usize = 16;

/// The limit for reading the long bodies of a batch.
const LONG_BODY_MAX: Duration = Duration::from_secs(3);

/// How many receives take single messages after a batch could not be read. One message with a
/// character that XML forbids makes its whole batch unreadable.
const SINGLE_RECEIVES: u32 = 64;

const SEND: &str = "send a message";

/// The limit for sending one message. Its calls have limits of their own.
const WHOLE: Duration = Duration::from_hours(1);

/// A queue, its poison queue, and the container of its long bodies.
pub(crate) struct AzureQueue {
    pub(super) main: Messages,
    pub(super) poison: Messages,
    pub(super) overflow: Overflow,
    effort: Effort,
    /// How many more receives take single messages.
    singly: AtomicU32,
    /// The same for the poison queue.
    letters_singly: AtomicU32,
}

impl AzureQueue {
    pub(crate) fn new(access: &Access, name: &QueueName, overflow: Overflow, effort: Effort) -> Result<Self> {
        let (main, poison) = (name.clone(), name.poison());
        let (main, poison) = (Messages::new(access, main, effort)?, Messages::new(access, poison, effort)?);
        let (singly, letters_singly) = (AtomicU32::new(0), AtomicU32::new(0));
        Ok(Self { main, poison, overflow, effort, singly, letters_singly })
    }

    /// Creates the queue and its poison queue if they do not exist.
    pub(crate) async fn create(&self) -> Result<()> {
        self.main.create().await?;
        self.poison.create().await
    }

    /// Deletes the queue and its poison queue with their content.
    pub(crate) async fn destroy(&self) -> Result<()> {
        self.main.destroy().await?;
        self.poison.destroy().await
    }

    /// Fails when the queue or its poison queue is missing or not readable.
    pub(crate) async fn look(&self) -> Result<()> {
        self.main.look().await?;
        self.poison.look().await
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
        let Placed { text, blob } = self.overflow.place(SEND, &message.body).await?;
        match self.main.put(SEND, &text, message.delay).await {
            Ok(sent) => Ok(MessageId::new(sent.id)),
            Err(error) => {
                // A message that may have been sent may need its blob.
                if !may_be_applied(&error) {
                    self.overflow.forget(blob.as_deref()).await;
                }
                Err(error)
            }
        }
    }

    /// Receives messages from one of the two queues.
    async fn take(
        &self,
        from: &Messages,
        singly: &AtomicU32,
        operation: &'static str,
        max: usize,
        lease: Duration,
    ) -> Result<Vec<ReceivedMessage>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let left = singly.load(Relaxed);
        singly.store(left.saturating_sub(1), Relaxed);
        let max = if left > 0 { 1 } else { max.min(BATCH_MAX) };
        from.receive(operation, max, lease).await.inspect_err(|error| {
            let unreadable = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal);
            if max > 1 && (unreadable || is_speechless(error)) {
                singly.store(SINGLE_RECEIVES, Relaxed);
            }
        })
    }

    /// Adds the body to a received message.
    async fn delivery(&self, received: ReceivedMessage) -> Option<Delivery> {
        let received = Received::of(received)?;
        // A slower body would delay the batch's other messages, whose leases are running.
        match self.overflow.fetch("read a long body", &received.text, LONG_BODY_MAX).await {
            Fetched::Body(body, blob) => Some(received.delivery(body, blob.as_deref())),
            Fetched::Unreadable(Reference { blob, unreadable_since }, reason) => {
                let since_unix_ms = unreadable_since.unwrap_or_else(unix_millis);
                let held = Held {
                    overflow: Some(&blob),
                    unreadable_since: Some(since_unix_ms),
                    ..Held::of(&received.id, &received.pop)
                };
                let receipt = held.receipt();
                let unreadable = Some(Unreadable { reason, since_unix_ms });
                let body = received.text.clone().into_bytes();
                Some(Delivery { receipt, unreadable, ..received.delivery(body, None) })
            }
        }
    }

    /// A received dead letter, without its reason.
    async fn letter_delivery(&self, received: ReceivedMessage) -> Option<Delivery> {
        let received = Received::of(received)?;
        let letter = self.open_letter("read a dead letter", &received.text, LONG_BODY_MAX).await;
        let since_unix_ms = unix_millis();
        let unreadable = letter.unreadable.map(|reason| Unreadable { reason, since_unix_ms });
        Some(Delivery { unreadable, ..received.delivery(letter.body, letter.blob.as_deref()) })
    }

    /// Releases the message with its present body. For a body that could not be read, stores the
    /// time since when.
    async fn release_unchanged(
        &self,
        operation: &'static str,
        held: &Held<'_>,
        delay: Duration,
    ) -> Result<()> {
        let text = match *held {
            Held { overflow: Some(blob), unreadable_since: Some(since), .. } => {
                Some(of_reference(blob, Some(since)))
            }
            _ => None,
        };
        self.main.update(operation, held, delay, text.as_deref()).await.map(drop)
    }
}

/// A message of either queue as the service returned it.
struct Received {
    id: String,
    pop: String,
    text: String,
    dequeue_count: u32,
    inserted_unix_ms: Option<i64>,
}

impl Received {
    fn of(received: ReceivedMessage) -> Option<Self> {
        let (Some(id), Some(pop)) = (received.message_id, received.pop_receipt) else {
            tracing::warn!(
                "the service's answer has a message without an id or a receipt; it comes back later"
            );
            return None;
        };
        // Saturates; 0 is treated as 1.
        let dequeue_count = u32::try_from(received.dequeue_count.unwrap_or(1)).unwrap_or(u32::MAX).max(1);
        let inserted = received.insertion_time.and_then(timestamp);
        Some(Self {
            id,
            pop,
            text: received.message_text.unwrap_or_default(),
            dequeue_count,
            inserted_unix_ms: inserted.map(Timestamp::as_millisecond),
        })
    }

    /// Builds the delivery with this body, which was read from `blob` if there is one.
    fn delivery(self, body: Vec<u8>, blob: Option<&str>) -> Delivery {
        let held = Held { overflow: blob, ..Held::of(&self.id, &self.pop) };
        let receipt = held.receipt();
        Delivery {
            id: MessageId::new(self.id),
            dequeue_count: self.dequeue_count,
            body,
            receipt,
            inserted_unix_ms: self.inserted_unix_ms,
            unreadable: None,
        }
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
        let received = self.take(&self.main, &self.singly, "receive messages", max, lease).await?;
        Ok(join_all(received.into_iter().map(|one| self.delivery(one))).await.into_iter().flatten().collect())
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        let held = Held::read(receipt)?;
        let pop = self.main.update("renew a lease", &held, lease, None).await?;
        Ok(Held { pop: &pop, ..held }.receipt())
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        let held = Held::read(receipt)?;
        self.main.delete("complete a message", &held).await?;
        self.overflow.forget(held.overflow).await;
        Ok(())
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        const OPERATION: &str = "release a message";
        let held = Held::read(receipt)?;
        let Some(body) = &release.body else {
            return self.release_unchanged(OPERATION, &held, release.delay).await;
        };
        // The message is worth more than the counters in a new body. If a long new body can't be
        // written to a blob, the message is released with the old one. The write gets half of a
        // try, so that the other half is left for the release.
        let placed = within(self.effort.each / 2, OPERATION, self.overflow.place(OPERATION, body)).await;
        let Placed { text, blob } = match placed {
            Ok(placed) => placed,
            Err(error) => {
                tracing::warn!(%error, message_id = held.id, "a message goes back without its new counters");
                return self.release_unchanged(OPERATION, &held, release.delay).await;
            }
        };
        match self.main.update(OPERATION, &held, release.delay, Some(&text)).await {
            Ok(_) => self.overflow.forget(held.overflow).await,
            Err(error) => {
                // Without an answer it is unknown to which of the two bodies the message refers.
                if !may_be_applied(&error) {
                    self.overflow.forget(blob.as_deref()).await;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        self.bury(receipt, body, letter).await
    }

    async fn depth(&self) -> Result<Depth> {
        let (total, poisoned) = tokio::join!(self.main.count(), self.poison.count());
        // The count of this queue is returned even if the poison queue may not be counted.
        Ok(Depth { total: total?, poisoned: poisoned.ok(), ..Depth::default() })
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        self.letters(max).await
    }

    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        const OPERATION: &str = "receive dead letters";
        let received = match self.take(&self.poison, &self.letters_singly, OPERATION, max, lease).await {
            Err(error) if is_missing_queue(&error) => return Ok(Vec::new()),
            received => received?,
        };
        let letters = join_all(received.into_iter().map(|one| self.letter_delivery(one))).await;
        Ok(letters.into_iter().flatten().collect())
    }

    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        let held = Held::read(receipt)?;
        self.poison.delete("remove a dead letter", &held).await?;
        self.overflow.forget(held.overflow).await;
        Ok(())
    }

    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        let held = Held::read(receipt)?;
        self.poison.update("return a dead letter", &held, Duration::ZERO, None).await.map(drop)
    }
}

impl fmt::Debug for AzureQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AzureQueue").field(self.name()).finish()
    }
}

/// Whether the failed call may have been applied.
pub(super) fn may_be_applied(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Internal)
}
