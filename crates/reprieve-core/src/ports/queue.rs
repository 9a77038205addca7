//! The queue port: at-least-once messages under leases.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::MessageId;
use crate::shorten::shorten;

/// The longest lease: a Storage queue's longest visibility timeout is seven days.
/// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
pub const LEASE_MAX: Duration = Duration::from_hours(7 * 24);

/// The shortest lease: a Storage queue's shortest visibility timeout.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// A message to send.
#[derive(Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The body, as it will be delivered.
    pub body: Vec<u8>,
    /// How long the message stays invisible at first; zero for none.
    pub delay: Duration,
}

/// The proof of a lease. Each renewal returns a new one, and the old one no longer holds the
/// message.
///
/// Opaque to all but the queue that made it. Not `Clone`, so that no stale copy is used to settle.
#[derive(PartialEq, Eq)]
pub struct Receipt(String);

impl Receipt {
    /// Wraps the queue's own receipt.
    pub fn new(receipt: impl Into<String>) -> Self {
        Self(receipt.into())
    }

    /// The receipt, for the queue that made it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A receipt is the right to delete a message, so it must not be logged.
        f.write_str("Receipt(…)")
    }
}

/// One delivery of a message, held until it is settled or its lease ends.
///
/// Not `Clone`: a delivery has one owner. Settling consumes it.
#[derive(PartialEq, Eq)]
pub struct Delivery {
    /// The queue's id of the message.
    pub id: MessageId,
    /// How often the message has been received, including this time: 1 for the first. No two
    /// deliveries of a message share a count.
    pub dequeue_count: u32,
    /// The body as it was sent, or as the last [`Release`] replaced it.
    pub body: Vec<u8>,
    /// The receipt of the lease.
    pub receipt: Receipt,
    /// When the message was sent, in milliseconds since the Unix epoch, by the queue's clock;
    /// `None` where the queue does not know. A message that was sent again has the later time.
    pub inserted_unix_ms: Option<i64>,
    /// When the queue deletes the message, leased or not, because another program sent it with a time
    /// to live, in milliseconds since the Unix epoch; `None` for never.
    pub expires_unix_ms: Option<i64>,
    /// Set when the body is stored apart from the message and can't be read now; `body` is then the
    /// message's own text.
    pub unreadable: Option<Unreadable>,
}

/// Why a message's body could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The reason, in one sentence.
    pub reason: String,
    /// Since when, in milliseconds since the Unix epoch. The queue keeps this time with the message
    /// when such a delivery is released without a new body.
    pub since_unix_ms: i64,
}

/// How to release a message.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Release {
    /// The new body, stored in the same step; `None` keeps the present one.
    pub body: Option<Vec<u8>>,
    /// How long the message stays invisible; zero makes it receivable at once.
    pub delay: Duration,
    /// Whether the message goes behind all that wait by then: its job is not late. Else it may keep its place
    /// in line, where the store knows one.
    pub to_back: bool,
}

/// How to dead-letter a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The reason, in one sentence for the operator.
    pub reason: String,
}

/// The longest reason, in bytes of JSON, since the job's record contains it too. A job's error may
/// be of any length, and its beginning is the informative part.
const REASON_BYTES_MAX: usize = 1000;

impl DeadLetter {
    /// A dead letter with `reason`, cut to at most 1,000 bytes of JSON.
    pub fn because(reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        shorten(&mut reason, REASON_BYTES_MAX);
        Self { reason }
    }
}

/// A message of the poison queue.
#[derive(Clone, PartialEq, Eq)]
pub struct DeadLettered {
    /// The poison queue's id of the message.
    pub id: MessageId,
    /// The body it had when it was dead-lettered.
    pub body: Vec<u8>,
    /// Why it was dead-lettered; `None` when its sender gave no reason.
    pub reason: Option<String>,
}

/// Shows only the length of a body in a log line: its content belongs to the user.
struct Bytes(usize);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = Bytes(self.body.len());
        f.debug_struct("NewMessage").field("body", &body).field("delay", &self.delay).finish()
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("id", &self.id)
            .field("dequeue_count", &self.dequeue_count)
            .field("body", &Bytes(self.body.len()))
            .field("unreadable", &self.unreadable)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.as_ref().map(|body| Bytes(body.len()));
        f.debug_struct("Release")
            .field("body", &body)
            .field("delay", &self.delay)
            .field("to_back", &self.to_back)
            .finish()
    }
}

impl fmt::Debug for DeadLettered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = Bytes(self.body.len());
        f.debug_struct("DeadLettered")
            .field("id", &self.id)
            .field("body", &body)
            .field("reason", &self.reason)
            .finish()
    }
}

/// The numbers of messages, each counted once; `None` where the backend can't count cheaply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Depth {
    /// All messages in the queue, whatever their state.
    pub total: u64,
    /// Receivable now.
    pub ready: Option<u64>,
    /// Held under a lease.
    pub leased: Option<u64>,
    /// Invisible until later, and not leased.
    pub delayed: Option<u64>,
    /// In the poison queue.
    pub poisoned: Option<u64>,
}

/// A queue with visibility-timeout leases, and its poison queue.
///
/// # Promises, each a function of `conformance::queue`
/// - A message that was sent is delivered until it is completed or dead-lettered: at least once,
///   never lost.
/// - While a lease holds, no other receiver gets the message; when the lease ends, one can.
/// - The dequeue count rises by one with every delivery, and is never the same twice for one
///   message.
/// - Renewing returns a new receipt. Older ones are refused with
///   [`LeaseLost`](crate::ErrorKind::LeaseLost), as are the receipts of a settled message, and
///   those of a message that another receiver got after the lease had ended.
/// - Releasing with a new body is one step: no receiver sees only one of its two effects.
/// - A body is returned byte for byte. The poison queue keeps the body and the reason given to it.
/// - A dead letter that is received stays in the poison queue until it is removed.
///
/// # Cancel safety
/// Dropping a future may or may not apply its operation. A dropped `receive` that was applied
/// leaves messages leased until their leases end, so callers let it finish.
#[async_trait]
pub trait Queue: fmt::Debug + Send + Sync + 'static {
    /// Sends messages and returns their ids in the same order. All or none are sent where the
    /// backend can do that; elsewhere the error has the number that were.
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>>;

    /// The largest useful batch of one receive; the worker never asks for more. A larger batch
    /// costs less per message, and takes longer.
    ///
    /// The default is 32, the most that a Storage queue returns.
    /// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
    fn batch_max(&self) -> usize {
        32
    }

    /// Receives up to `max` messages under leases of length `lease`. Returns at once, also when
    /// there are none.
    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>>;

    /// Sets the end of the lease to `lease` from now and returns the new receipt.
    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt>;

    /// Replaces a message that [expires](Delivery::expires_unix_ms) by one with `body` that does not, and
    /// returns the delivery of that, with a lease of this length. Its dequeue count is 0, and rises from
    /// there. If the old message can't be deleted, it stays, and is received again.
    ///
    /// Fails where no message expires, which is the default.
    async fn replace(&self, receipt: &Receipt, body: &[u8], lease: Duration) -> Result<Delivery> {
        let _ = (receipt, body, lease);
        Err(Error::new(ErrorKind::Internal, "replace a message", "no message of this queue expires"))
    }

    /// Deletes the message, because its job is finished.
    async fn complete(&self, receipt: &Receipt) -> Result<()>;

    /// Releases the message.
    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()>;

    /// Moves the message to the poison queue, with `body` in place of the delivered one.
    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()>;

    /// Completes when a message may have become receivable; a hint that ends an idle wait early.
    /// Never completes on backends without such a signal. Cancel-safe.
    async fn arrived(&self) {
        std::future::pending::<()>().await;
    }

    /// Releases the messages of dead workers and returns how many there were, on backends that can
    /// detect dead workers. Called in Resume. Does nothing where only the end of a lease shows that
    /// a worker died.
    async fn recover(&self) -> Result<u64> {
        Ok(0)
    }

    /// Counts the messages.
    async fn depth(&self) -> Result<Depth>;

    /// Reads up to `max` messages of the poison queue, oldest first, without receiving them.
    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>>;

    /// Receives up to `max` messages of the poison queue under leases, to redrive them. The bodies
    /// are those that were dead-lettered, without the reasons. A letter that is neither
    /// [removed](Self::remove_letter) nor [returned](Self::return_letter) becomes visible again
    /// when its lease ends.
    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>>;

    /// Deletes a message of the poison queue that [`receive_letters`](Self::receive_letters)
    /// returned.
    async fn remove_letter(&self, receipt: &Receipt) -> Result<()>;

    /// Makes a message of the poison queue visible again, unchanged.
    async fn return_letter(&self, receipt: &Receipt) -> Result<()>;

    /// The index, less than [`parts`](Self::parts), of the part of the queue that holds the
    /// receipt's message. Parts fail independently, so a drain gives each its own share of the
    /// concurrent releases.
    fn part(&self, receipt: &Receipt) -> usize {
        let _ = receipt;
        0
    }

    /// The number of parts: the shards of a queue that is made of several.
    fn parts(&self) -> usize {
        1
    }
}
