//! A Storage queue and its poison queue.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::{RequestContent, XmlFormat, headers::HeaderName};
use azure_storage_queue::QueueClient;
use azure_storage_queue::models::{
    PeekedMessage, QueueClientGetPropertiesResultHeaders as _, QueueClientPeekMessagesOptions,
    QueueClientReceiveMessagesOptions, QueueClientSendMessageOptions, QueueClientUpdateMessageOptions,
    QueueMessage, ReceivedMessage, SentMessage,
};
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt, stream};
use reprieve_core::ports::{DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release};
use reprieve_core::{Error, ErrorKind, MessageId, QueueName, Result};

use super::access::Access;
use super::blob::absent_is_gone;
use super::effort::{Effort, temporary};
use super::failure::{Target, bounded, failure, is_parent, is_speechless};
use super::overflow::{Overflow, Placed};
use super::poison;
use super::receipt::Held;
use super::text::TEXT_BYTES_MAX;

/// The most messages of one receive or peek.
/// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
const BATCH_MAX: usize = 32;

/// How many messages are sent at once: each is a request of its own.
const SENDS_AT_ONCE: usize = 16;

/// Messages never expire: the service would delete after seven days also what is being worked on.
/// <https://learn.microsoft.com/rest/api/storageservices/put-message>
const FOR_EVER: i32 = -1;

/// How long a dead letter stays invisible in the poison queue unless its message is deleted before: when the delete
/// turns out to be another owner's business, the letter is taken back and nobody has seen it.
const HIDDEN: Duration = Duration::from_secs(60);

/// How long a message is put back for whose long body could not be read.
const UNREADABLE_DELAY: Duration = Duration::from_secs(5);

/// How many receives take single messages after a batch could not be read: one message with a character that XML forbids
/// spoils the batch that it is in.
const SINGLE_RECEIVES: u32 = 64;

const SEND: &str = "send a message";

/// What sending one message may take at the most. Its parts bound themselves.
const WHOLE: Duration = Duration::from_hours(1);

/// A queue, its poison queue, and where its long bodies are.
pub(crate) struct AzureQueue {
    name: QueueName,
    main: QueueClient,
    poison: QueueClient,
    overflow: Overflow,
    effort: Effort,
    singly: AtomicU32,
}

impl AzureQueue {
    pub(crate) fn new(access: &Access, name: &QueueName, overflow: Overflow, effort: Effort) -> Result<Self> {
        Ok(Self {
            main: access.queue(name.as_str())?,
            poison: access.queue(name.poison().as_str())?,
            name: name.clone(),
            overflow,
            effort,
            singly: AtomicU32::new(0),
        })
    }

    /// Makes the queue and its poison queue, where they are missing.
    pub(crate) async fn create(&self) -> Result<()> {
        const OPERATION: &str = "create the queue";
        for (client, name) in [(&self.main, self.name.clone()), (&self.poison, self.name.poison())] {
            let (each, target) = (self.effort.each, Target::Queue(name.as_str()));
            let made = self
                .effort
                .repeat(OPERATION, each, temporary, || bounded(OPERATION, target, each, client.create(None)));
            match made.await {
                Ok(_) => {}
                // It is there, with metadata of somebody else.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the queue and its poison queue with everything in them.
    pub(crate) async fn destroy(&self) -> Result<()> {
        const OPERATION: &str = "delete the queue";
        for (client, name) in [(&self.main, self.name.clone()), (&self.poison, self.name.poison())] {
            let (each, target) = (self.effort.each, Target::Queue(name.as_str()));
            let gone = self
                .effort
                .repeat(OPERATION, each, temporary, || bounded(OPERATION, target, each, client.delete(None)));
            absent_is_gone(gone.await.map(drop))?;
        }
        Ok(())
    }

    /// Fails when the queue or its poison queue is not there or not ours to read.
    pub(crate) async fn look(&self) -> Result<()> {
        const OPERATION: &str = "look at the queue";
        for (client, name) in [(&self.main, self.name.clone()), (&self.poison, self.name.poison())] {
            self.peek(OPERATION, client, &name, 1).await?;
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &QueueName {
        &self.name
    }

    fn target(&self) -> Target<'_> {
        Target::Queue(self.name.as_str())
    }

    /// Puts one message, and returns what the service calls it.
    async fn put(
        &self,
        operation: &'static str,
        (client, name): (&QueueClient, &QueueName),
        text: &str,
        delay: Duration,
    ) -> Result<Sent> {
        let target = Target::Queue(name.as_str());
        let options = QueueClientSendMessageOptions {
            message_time_to_live: Some(FOR_EVER),
            visibility_timeout: Some(whole_seconds(delay)),
            ..Default::default()
        };
        let content = content(operation, text)?;
        let sent = client.send_message(content, Some(options));
        let sent = bounded(operation, target, self.effort.each, sent).await?;
        let sent = sent.into_model().map_err(|error| failure(operation, target, error))?;
        sent.items.into_iter().flatten().next().and_then(Sent::of).ok_or_else(|| {
            Error::new(ErrorKind::Internal, operation, "the service's answer names no message")
        })
    }

    /// Sends one message; again where that may help, which may queue it twice: a job has one id however often it is
    /// queued.
    async fn send_one(&self, message: &NewMessage) -> Result<MessageId> {
        self.effort.repeat(SEND, WHOLE, temporary, || self.send_once(message)).await
    }

    /// Every try has a blob of its own for a long body: of two messages that share one, the second would be without when
    /// the first is done.
    async fn send_once(&self, message: &NewMessage) -> Result<MessageId> {
        let Placed { text, blob } = self.overflow.place(SEND, &message.body).await?;
        match self.put(SEND, (&self.main, &self.name), &text, message.delay).await {
            Ok(sent) => Ok(MessageId::new(sent.id)),
            Err(error) => {
                // A message that may have been sent may need it.
                if error.kind() != ErrorKind::TimedOut {
                    self.overflow.forget(blob.as_deref()).await;
                }
                Err(error)
            }
        }
    }

    async fn receive_some(&self, max: usize, lease: Duration) -> Result<Vec<ReceivedMessage>> {
        const OPERATION: &str = "receive messages";
        let options = QueueClientReceiveMessagesOptions {
            number_of_messages: i32::try_from(max).ok(),
            // The shortest that there is; an update knows zero, this does not.
            visibility_timeout: Some(whole_seconds(lease).max(1)),
            ..Default::default()
        };
        let received = self.main.receive_messages(Some(options));
        let received = bounded(OPERATION, self.target(), self.effort.each, received).await?;
        let received = received.into_model().map_err(|error| failure(OPERATION, self.target(), error))?;
        Ok(received.items.unwrap_or_default())
    }

    /// A received message with its body; `None` when that can't be read now, and the message was put back.
    async fn delivery(&self, received: ReceivedMessage) -> Option<Delivery> {
        let (Some(id), Some(pop)) = (received.message_id, received.pop_receipt) else {
            tracing::warn!(
                "the service's answer has a message without an id or a receipt; it comes back later"
            );
            return None;
        };
        let text = received.message_text.unwrap_or_default();
        match self.overflow.fetch("read a long body", &text).await {
            Ok((body, blob)) => {
                let held = Held { id: &id, pop: &pop, overflow: blob.as_deref() };
                Some(Delivery {
                    receipt: held.receipt(),
                    // Beyond what fits nobody counts; zero is no count.
                    dequeue_count: u32::try_from(received.dequeue_count.unwrap_or(1))
                        .unwrap_or(u32::MAX)
                        .max(1),
                    id: MessageId::new(id),
                    body,
                })
            }
            Err(error) => {
                tracing::warn!(%error, message_id = id, "could not read a message's long body; it is put back");
                let held = Held { id: &id, pop: &pop, overflow: None };
                if let Err(error) = self.update("put a message back", &held, UNREADABLE_DELAY, None).await {
                    tracing::warn!(%error, message_id = id, "could not put it back; it comes back when its lease ends");
                }
                None
            }
        }
    }

    /// Makes the message invisible for `visibility` from now, with another text if there is one; returns the pop receipt
    /// that holds it from now on.
    async fn update(
        &self,
        operation: &'static str,
        held: &Held<'_>,
        visibility: Duration,
        text: Option<&str>,
    ) -> Result<String> {
        // Without a text the update has no body, and the service keeps the one that is there.
        let queue_message = text.map(|text| content(operation, text)).transpose()?;
        let options = QueueClientUpdateMessageOptions { queue_message, ..Default::default() };
        let updated = self.main.update_message(held.id, held.pop, whole_seconds(visibility), Some(options));
        let updated = bounded(operation, self.target(), self.effort.each, updated).await?;
        let receipt = updated.headers().get_optional_string(&HeaderName::from_static("x-ms-popreceipt"));
        receipt.ok_or_else(|| {
            // It was applied, and what holds the message now is lost with the answer.
            Error::new(ErrorKind::TimedOut, operation, "the service's answer has no receipt")
        })
    }

    async fn delete(&self, operation: &'static str, held: &Held<'_>) -> Result<()> {
        let deleted = self.main.delete_message(held.id, held.pop, None);
        bounded(operation, self.target(), self.effort.each, deleted).await.map(drop)
    }

    async fn peek(
        &self,
        operation: &'static str,
        client: &QueueClient,
        name: &QueueName,
        max: usize,
    ) -> Result<Vec<PeekedMessage>> {
        let (each, target) = (self.effort.each, Target::Queue(name.as_str()));
        self.effort
            .repeat(operation, each, temporary, || async {
                let options = QueueClientPeekMessagesOptions {
                    number_of_messages: i32::try_from(max).ok(),
                    ..Default::default()
                };
                let peeked = bounded(operation, target, each, client.peek_messages(Some(options))).await?;
                let peeked = peeked.into_model().map_err(|error| failure(operation, target, error))?;
                Ok(peeked.items.unwrap_or_default())
            })
            .await
    }

    async fn count(&self, client: &QueueClient, name: &QueueName) -> Result<u64> {
        const OPERATION: &str = "count messages";
        let (each, target) = (self.effort.each, Target::Queue(name.as_str()));
        self.effort
            .repeat(OPERATION, each, temporary, || async {
                let found = bounded(OPERATION, target, each, client.get_properties(None)).await?;
                let count = found.approximate_messages_count();
                let count = count.map_err(|error| failure(OPERATION, target, error))?;
                Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
            })
            .await
    }

    /// The dead letter of `body`, by a blob when it is too long for a message.
    async fn letter(&self, operation: &'static str, body: &[u8], reason: &str) -> Result<Placed> {
        self.overflow.place(operation, &poison::write(body, reason)).await
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
            // Of what is `Unavailable` nothing was done, so that it may be sent elsewhere.
            let kind = match error.kind() {
                ErrorKind::Unavailable if done > 0 => ErrorKind::TimedOut,
                kind => kind,
            };
            let message = format!("{done} of {all} messages were sent; {}", error.message());
            Error::new(kind, "send messages", message).with_source(error)
        })
    }

    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let single = self.singly.load(Relaxed);
        self.singly.store(single.saturating_sub(1), Relaxed);
        let max = if single > 0 { 1 } else { max.min(BATCH_MAX) };
        let received = self.receive_some(max, lease).await.inspect_err(|error| {
            let unreadable = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal);
            if max > 1 && (unreadable || is_speechless(error)) {
                self.singly.store(SINGLE_RECEIVES, Relaxed);
            }
        })?;
        Ok(join_all(received.into_iter().map(|one| self.delivery(one))).await.into_iter().flatten().collect())
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        let held = Held::read(receipt)?;
        let pop = self.update("renew a lease", &held, lease, None).await?;
        Ok(Held { pop: &pop, ..held }.receipt())
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        let held = Held::read(receipt)?;
        self.delete("complete a message", &held).await?;
        self.overflow.forget(held.overflow).await;
        Ok(())
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        const OPERATION: &str = "release a message";
        let held = Held::read(receipt)?;
        let Some(body) = &release.body else {
            return self.update(OPERATION, &held, release.delay, None).await.map(drop);
        };
        let Placed { text, blob } = self.overflow.place(OPERATION, body).await?;
        match self.update(OPERATION, &held, release.delay, Some(&text)).await {
            Ok(_) => self.overflow.forget(held.overflow).await,
            Err(error) => {
                // Who got no answer does not know which of the two bodies the message refers to.
                if error.kind() != ErrorKind::TimedOut {
                    self.overflow.forget(blob.as_deref()).await;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The letter is put first, invisible; then the message is deleted; then the letter is shown. Whoever dies in between
    /// leaves the message, its letter, or both, and a second try with the same receipt leaves one letter.
    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        const OPERATION: &str = "dead-letter a message";
        let held = Held::read(receipt)?;
        let Placed { text, blob } = self.letter(OPERATION, body, &letter.reason).await?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, OPERATION, "the letter is too long for a message"));
        }
        let poison = self.name.poison();
        let put = self.put(OPERATION, (&self.poison, &poison), &text, HIDDEN).await?;
        if let Err(error) = self.delete(OPERATION, &held).await {
            if error.kind() != ErrorKind::TimedOut {
                let taken_back = self.poison.delete_message(&put.id, &put.pop, None);
                let target = Target::Queue(poison.as_str());
                match bounded(OPERATION, target, self.effort.each, taken_back).await {
                    Ok(_) => self.overflow.forget(blob.as_deref()).await,
                    Err(error) => {
                        tracing::warn!(%error, "could not take a dead letter back; its job goes on elsewhere");
                    }
                }
            }
            return Err(error);
        }
        self.overflow.forget(held.overflow).await;
        let shown = self.poison.update_message(&put.id, &put.pop, 0, None);
        if let Err(error) = bounded(OPERATION, Target::Queue(poison.as_str()), self.effort.each, shown).await
        {
            tracing::debug!(%error, "a dead letter shows only in a minute");
        }
        Ok(())
    }

    async fn depth(&self) -> Result<Depth> {
        let poison = self.name.poison();
        let (total, poisoned) =
            tokio::join!(self.count(&self.main, &self.name), self.count(&self.poison, &poison));
        // Who may not count the poison queue may still count this one.
        Ok(Depth { total: total?, poisoned: poisoned.ok(), ..Depth::default() })
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        const OPERATION: &str = "look at the poison queue";
        if max == 0 {
            return Ok(Vec::new());
        }
        let peeked = self.peek(OPERATION, &self.poison, &self.name.poison(), max.min(BATCH_MAX)).await;
        let peeked = match peeked {
            // Nothing was ever put there.
            Err(error) if error.kind() == ErrorKind::NotFound && is_parent(&error) => return Ok(Vec::new()),
            peeked => peeked?,
        };
        let mut letters = Vec::with_capacity(peeked.len());
        for message in peeked {
            let text = message.message_text.unwrap_or_default();
            let (letter, _) = self.overflow.fetch(OPERATION, &text).await?;
            let (body, reason) =
                poison::read(&letter).map_or((letter, None), |(body, reason)| (body, Some(reason)));
            letters.push(DeadLettered {
                id: MessageId::new(message.message_id.unwrap_or_default()),
                body,
                reason,
            });
        }
        Ok(letters)
    }
}

impl fmt::Debug for AzureQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AzureQueue").field(&self.name).finish()
    }
}

/// A message that was put.
struct Sent {
    id: String,
    pop: String,
}

impl Sent {
    fn of(message: SentMessage) -> Option<Self> {
        Some(Self { id: message.message_id?, pop: message.pop_receipt? })
    }
}

fn content(operation: &'static str, text: &str) -> Result<RequestContent<QueueMessage, XmlFormat>> {
    let message = QueueMessage { message_text: Some(text.to_owned()) };
    message.try_into().map_err(|error: azure_core::Error| {
        Error::new(ErrorKind::Internal, operation, "the message has no XML form").with_source(error)
    })
}

/// The service counts in seconds: rounded up, so that nothing ends at the service before it ends here.
fn whole_seconds(time: Duration) -> i32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_shorter_than_asked_for() {
        for (millis, seconds) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (60_000, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }
}
