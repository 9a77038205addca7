//! The calls to one Storage queue, with time limits and Reprieve's errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use azure_core::http::{RequestContent, XmlFormat, headers::HeaderName};
use azure_core::time::OffsetDateTime;
use azure_storage_queue::models::{
    PeekedMessage, QueueClientGetPropertiesResultHeaders as _, QueueClientPeekMessagesOptions,
    QueueClientReceiveMessagesOptions, QueueClientSendMessageOptions, QueueClientUpdateMessageOptions,
    QueueMessage, ReceivedMessage, SentMessage,
};
use azure_storage_queue::{QueueClient, QueueClientOptions};
use jiff::Timestamp;
use reprieve_core::ports::Delivery;
use reprieve_core::{Error, ErrorKind, MessageId, QueueName, Result};
use reqwest::{Url, header::HeaderValue};

use super::receipt::ReceiptParts;
use crate::storage::call::{
    Access, Client, Effort, Target, absent_is_gone, bounded, failure, is_speechless, temporary, timestamp,
};

/// Messages never expire: by default the service would delete even a leased message after seven
/// days.
/// <https://learn.microsoft.com/rest/api/storageservices/put-message>
const WITHOUT_EXPIRY: i32 = -1;

/// The year 9000, in seconds since the Unix epoch. For messages that never expire, the service reports
/// the last day of the year 9999.
const NEVER_FROM_UNIX_SECONDS: i64 = 221_845_392_000;

/// The most messages of one receive or peek.
/// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
pub(crate) const BATCH_MAX: usize = 32;

/// How many receives take single messages after a batch could not be read. One message with a
/// character that XML forbids makes its whole batch unreadable.
const SINGLE_RECEIVES: u32 = 64;

/// One queue of the service.
pub(crate) struct QueueCalls {
    client: QueueClient,
    deletions: Deletions,
    name: QueueName,
    effort: Effort,
    /// How many more receives take single messages.
    single_receives: AtomicU32,
}

/// The id and pop receipt of a message that was put.
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) pop: String,
}

impl QueueCalls {
    pub(crate) fn new(access: &Access, name: QueueName, effort: Effort) -> Result<Self> {
        let client = access.queue(name.as_str())?;
        let deletions = Deletions::new(access, &name)?;
        Ok(Self { client, deletions, name, effort, single_receives: AtomicU32::new(0) })
    }

    pub(crate) fn name(&self) -> &QueueName {
        &self.name
    }

    fn target(&self) -> Target<'_> {
        Target::Queue(self.name.as_str())
    }

    /// Makes one call.
    async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = azure_core::Result<T>>,
    ) -> Result<T> {
        bounded(operation, self.target(), self.effort.each, call).await
    }

    fn failure(&self, operation: &'static str, error: azure_core::Error) -> Error {
        failure(operation, self.target(), error)
    }

    /// Creates the queue if it does not exist.
    pub(crate) async fn create(&self) -> Result<()> {
        const OPERATION: &str = "create the queue";
        let make = || self.call(OPERATION, self.client.create(None));
        match self.effort.repeat(OPERATION, self.effort.whole_try(), temporary, make).await {
            Ok(_) => Ok(()),
            // It exists, with other metadata.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes the queue with its content.
    pub(crate) async fn destroy(&self) -> Result<()> {
        const OPERATION: &str = "delete the queue";
        let delete = || self.call(OPERATION, self.client.delete(None));
        let gone = self.effort.repeat(OPERATION, self.effort.whole_try(), temporary, delete).await;
        absent_is_gone(gone.map(drop))
    }

    /// Deletes the queue with one call, within `limit`.
    pub(crate) async fn destroy_within(&self, limit: Duration) -> Result<()> {
        const OPERATION: &str = "delete the queue";
        let gone = bounded(OPERATION, self.target(), limit, self.client.delete(None)).await;
        absent_is_gone(gone.map(drop))
    }

    /// Fails when the queue is missing or not readable.
    pub(crate) async fn look(&self) -> Result<()> {
        const OPERATION: &str = "look at the queue";
        match self.peek_once(OPERATION, 1).await {
            // The queue exists, and a message in it has a character that XML forbids.
            Err(error) if is_speechless(&error) => {
                let queue = self.name.as_str();
                tracing::warn!(queue, "a message in the queue can't be read; the others can be received");
                Ok(())
            }
            Err(error) if error.is_temporary() => self.peek(OPERATION, 1).await.map(drop),
            looked => looked.map(drop),
        }
    }

    /// Puts one message, which never expires.
    pub(crate) async fn put(&self, operation: &'static str, text: &str, delay: Duration) -> Result<Sent> {
        self.put_for(operation, text, delay, WITHOUT_EXPIRY).await
    }

    /// Puts one message, which expires after `lives` seconds.
    pub(crate) async fn put_for(
        &self,
        operation: &'static str,
        text: &str,
        delay: Duration,
        lives: i32,
    ) -> Result<Sent> {
        let options = QueueClientSendMessageOptions {
            message_time_to_live: Some(lives),
            visibility_timeout: Some(whole_seconds(delay)),
            ..Default::default()
        };
        let content = content(operation, text)?;
        let sent = self.call(operation, self.client.send_message(content, Some(options))).await?;
        let sent = sent.into_model().map_err(|error| self.failure(operation, error))?;
        sent.items.into_iter().flatten().next().and_then(Sent::of).ok_or_else(|| {
            Error::new(ErrorKind::Internal, operation, "the service's answer names no message")
        })
    }

    /// Receives up to `max` messages, or [`BATCH_MAX`]. Receives single messages for a while after
    /// a batch could not be read.
    pub(crate) async fn receive(
        &self,
        operation: &'static str,
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Received>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let left = self.single_receives.load(Relaxed);
        self.single_receives.store(left.saturating_sub(1), Relaxed);
        let max = if left > 0 { 1 } else { max.min(BATCH_MAX) };
        self.receive_batch(operation, max, lease).await.inspect_err(|error| {
            let unreadable = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal);
            if max > 1 && (unreadable || is_speechless(error)) {
                self.single_receives.store(SINGLE_RECEIVES, Relaxed);
            }
        })
    }

    async fn receive_batch(
        &self,
        operation: &'static str,
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Received>> {
        let options = QueueClientReceiveMessagesOptions {
            number_of_messages: i32::try_from(max).ok(),
            // The service's minimum for a receive; an update also accepts 0.
            visibility_timeout: Some(whole_seconds(lease).max(1)),
            ..Default::default()
        };
        let received = self.call(operation, self.client.receive_messages(Some(options))).await?;
        let received = received.into_model().map_err(|error| self.failure(operation, error))?;
        Ok(received.items.into_iter().flatten().filter_map(Received::of).collect())
    }

    /// Makes the message invisible for `visibility` from now, and replaces its text if one is
    /// given. Returns the new pop receipt.
    pub(crate) async fn update(
        &self,
        operation: &'static str,
        message: &ReceiptParts<'_>,
        visibility: Duration,
        text: Option<&str>,
    ) -> Result<String> {
        // An update without a body keeps the message's text.
        let queue_message = text.map(|text| content(operation, text)).transpose()?;
        let options = QueueClientUpdateMessageOptions { queue_message, ..Default::default() };
        let seconds = whole_seconds(visibility);
        let updated = self.client.update_message(message.id, message.pop, seconds, Some(options));
        let updated = self.call(operation, updated).await?;
        let receipt = updated.headers().get_optional_string(&HeaderName::from_static("x-ms-popreceipt"));
        receipt.ok_or_else(|| {
            // The update was applied, and the new receipt is lost with the answer.
            Error::new(ErrorKind::TimedOut, operation, "the service's answer has no receipt")
        })
    }

    pub(crate) async fn delete(&self, operation: &'static str, message: &ReceiptParts<'_>) -> Result<()> {
        self.call(operation, self.deletions.delete(message)).await
    }

    /// Peeks at up to `max` messages without receiving them.
    pub(crate) async fn peek(&self, operation: &'static str, max: usize) -> Result<Vec<PeekedMessage>> {
        let peek = || self.peek_once(operation, max);
        self.effort.repeat(operation, self.effort.whole_try(), temporary, peek).await
    }

    async fn peek_once(&self, operation: &'static str, max: usize) -> Result<Vec<PeekedMessage>> {
        let options = QueueClientPeekMessagesOptions {
            number_of_messages: i32::try_from(max).ok(),
            ..Default::default()
        };
        let peeked = self.call(operation, self.client.peek_messages(Some(options))).await?;
        let peeked = peeked.into_model().map_err(|error| self.failure(operation, error))?;
        Ok(peeked.items.unwrap_or_default())
    }

    /// The approximate number of messages, including invisible ones.
    pub(crate) async fn count(&self) -> Result<u64> {
        const OPERATION: &str = "count messages";
        let count = || async {
            let found = self.call(OPERATION, self.client.get_properties(None)).await?;
            let count = found.approximate_messages_count();
            let count = count.map_err(|error| self.failure(OPERATION, error))?;
            Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
        };
        self.effort.repeat(OPERATION, self.effort.whole_try(), temporary, count).await
    }
}

/// Deletes the messages of a queue, past the SDK: see [`Client::delete`].
/// <https://learn.microsoft.com/rest/api/storageservices/delete-message2>
struct Deletions {
    client: Arc<Client>,
    messages: Url,
    version: HeaderValue,
}

impl Deletions {
    fn new(access: &Access, queue: &QueueName) -> Result<Self> {
        let version = HeaderValue::try_from(QueueClientOptions::default().version).map_err(|error| {
            Error::new(ErrorKind::Internal, "use a queue", "the SDK's version is no header")
                .with_source(error)
        })?;
        Ok(Self { client: access.client(), messages: access.messages(queue.as_str()), version })
    }

    async fn delete(&self, message: &ReceiptParts<'_>) -> azure_core::Result<()> {
        let mut url = self.messages.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(message.id);
        }
        url.query_pairs_mut().append_pair("popreceipt", message.pop);
        self.client.delete(url, self.version.clone()).await
    }
}

/// A message of either queue as the service returned it.
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) pop: String,
    pub(crate) text: String,
    dequeue_count: u32,
    inserted_unix_ms: Option<i64>,
    expires_unix_ms: Option<i64>,
}

/// The time at which a message expires; `None` for never.
pub(crate) fn expiry(at: Option<OffsetDateTime>) -> Option<Timestamp> {
    timestamp(at?).filter(|at| at.as_second() < NEVER_FROM_UNIX_SECONDS)
}

impl Received {
    fn of(received: ReceivedMessage) -> Option<Self> {
        let (Some(id), Some(pop)) = (received.message_id, received.pop_receipt) else {
            tracing::warn!("ignored a received message without an id or a receipt; its lease will end");
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
            expires_unix_ms: expiry(received.expiration_time).map(Timestamp::as_millisecond),
        })
    }

    /// Builds the delivery with this body, which was read from `blob` if there is one.
    pub(crate) fn delivery(self, body: Vec<u8>, blob: Option<&str>) -> Delivery {
        let receipt = ReceiptParts { blob, ..ReceiptParts::of(&self.id, &self.pop) }.receipt();
        Delivery {
            id: MessageId::new(self.id),
            dequeue_count: self.dequeue_count,
            body,
            receipt,
            inserted_unix_ms: self.inserted_unix_ms,
            expires_unix_ms: self.expires_unix_ms,
            unreadable: None,
        }
    }
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

/// Whole seconds, as the service counts, rounded up so that no lease ends at the service before it
/// ends here.
fn whole_seconds(time: Duration) -> i32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_shorter_than_requested() {
        for (millis, seconds) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (60_000, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }
}
