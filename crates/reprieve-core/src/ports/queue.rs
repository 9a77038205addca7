//! The queue port: at-least-once messages under leases.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::ids::MessageId;
use crate::shorten::shorten;

/// A message to be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The body, as it will be received.
    pub body: Vec<u8>,
    /// How long it stays invisible first; zero for none.
    pub delay: Duration,
}

/// What holds a message for the owner of its lease. Each renewal gives a new one; the old one no longer holds.
///
/// Opaque to all but the queue that made it. It is not `Clone`, so that nobody settles with a copy that is stale.
#[derive(PartialEq, Eq)]
pub struct Receipt(String);

impl Receipt {
    /// Takes the queue's own receipt.
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
        // A receipt is the right to delete a message: it does not belong in a log.
        f.write_str("Receipt(…)")
    }
}

/// One receipt of a message, held until it is settled or its lease runs out.
///
/// Not `Clone`: one delivery has one owner. Settling consumes it.
#[derive(PartialEq, Eq)]
pub struct Delivery {
    /// The queue's name for the message.
    pub id: MessageId,
    /// How often the message has been received, this time included: 1 the first time, and never the same again.
    pub dequeue_count: u32,
    /// The body as it was sent, or as the last [`Release`] or renewal left it.
    pub body: Vec<u8>,
    /// What holds it.
    pub receipt: Receipt,
    /// When the message was sent, in milliseconds since the Unix epoch, by the queue's clock; `None` where the queue
    /// does not know. A message that was sent again has the later time.
    pub inserted_unix_ms: Option<i64>,
    /// Set when the body is kept apart from the message and can't be read now; `body` is then the message's own text.
    pub unreadable: Option<Unreadable>,
}

/// Why a message's body could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// One sentence.
    pub reason: String,
    /// Since when, in milliseconds since the Unix epoch. The queue keeps this with the message when such a delivery is
    /// released without a new body.
    pub since_unix_ms: i64,
}

/// How a message goes back to its queue.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Release {
    /// The body to put in place of the present one, in the same step; `None` leaves it.
    pub body: Option<Vec<u8>>,
    /// How long it stays invisible; zero makes it receivable at once.
    pub delay: Duration,
}

/// How a message goes to the poison queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// One sentence for the person who finds it.
    pub reason: String,
}

/// The longest reason, in bytes of JSON, since the job's record holds it, too. A job's error may hold anything; a person
/// reads the beginning.
const REASON_BYTES_MAX: usize = 1000;

impl DeadLetter {
    /// A letter with `reason`, cut off where nobody would read on.
    pub fn because(reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        shorten(&mut reason, REASON_BYTES_MAX);
        Self { reason }
    }
}

/// A message in the poison queue.
#[derive(Clone, PartialEq, Eq)]
pub struct DeadLettered {
    /// The poison queue's name for the message.
    pub id: MessageId,
    /// The body it had when it was dead-lettered.
    pub body: Vec<u8>,
    /// Why it is there; `None` when whoever put it there did not say.
    pub reason: Option<String>,
}

/// A body in a log line: how long it is. What is in it is the user's.
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
        f.debug_struct("Release").field("body", &body).field("delay", &self.delay).finish()
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

/// How many messages there are, each counted once. `None` where the backend can't tell cheaply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Depth {
    /// All messages in the queue, whatever their state.
    pub total: u64,
    /// Receivable now.
    pub ready: Option<u64>,
    /// Held under a lease.
    pub leased: Option<u64>,
    /// Invisible until later, and held by nobody.
    pub delayed: Option<u64>,
    /// In the poison queue.
    pub poisoned: Option<u64>,
}

/// A queue with visibility-timeout leases, and the poison queue that belongs to it.
///
/// # Promises, each a function of [`crate::conformance::queue`]
/// - A message that was sent is received until it is completed or dead-lettered: at least once, never lost.
/// - While a lease holds, nobody else receives the message; when it ends, somebody can.
/// - The dequeue count rises by one with every receipt, and is never the same twice for one message.
/// - Renewing gives a new receipt; any older one is refused with [`LeaseLost`](crate::ErrorKind::LeaseLost), as
///   is every receipt of a message that is settled, or whose lease ended and that somebody else received since.
/// - Releasing with a new body is one step: nobody sees the message with only one of the two done.
/// - The body comes back byte for byte, and the poison queue keeps the one given for it, with the reason.
/// - A dead letter that is received stays in the poison queue until it is removed.
///
/// # Cancel safety
/// Dropping a future may or may not apply what it asked for. A dropped `receive` that was applied leaves messages
/// leased until their leases end, so callers let it finish.
#[async_trait]
pub trait Queue: fmt::Debug + Send + Sync + 'static {
    /// Sends messages and returns their ids in the same order. All or none are sent where the backend can; else the
    /// error says how many were.
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>>;

    /// The most messages that are worth asking for in one receive; the worker never asks for more. A larger batch costs
    /// less for each message, and takes longer.
    ///
    /// The default is 32, the most that a Storage queue gives.
    /// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
    fn batch_max(&self) -> usize {
        32
    }

    /// Receives up to `max` messages under leases of length `lease`; returns at once, with none when none is there.
    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>>;

    /// Makes the lease end `lease` from now and returns the receipt that holds it from now on.
    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt>;

    /// Deletes the message: its job is finished.
    async fn complete(&self, receipt: &Receipt) -> Result<()>;

    /// Gives the message back.
    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()>;

    /// Moves the message to the poison queue, with `body` in place of the one it was delivered with.
    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()>;

    /// Completes when a message may have become receivable, as a hint that ends an idle wait early. Never completes
    /// where the backend has no such signal. Cancel-safe.
    async fn arrived(&self) {
        std::future::pending::<()>().await;
    }

    /// Gives back what dead workers held, where the backend can tell that they are dead, and returns how many
    /// messages that were. Called in Recover. Does nothing where only the end of a lease tells.
    async fn recover(&self) -> Result<u64> {
        Ok(0)
    }

    /// Counts the messages.
    async fn depth(&self) -> Result<Depth>;

    /// Looks at up to `max` messages of the poison queue, the oldest first, without receiving them.
    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>>;

    /// Receives up to `max` messages of the poison queue under leases, to redrive them. The bodies are those that were
    /// dead-lettered, without the reasons. What is neither [removed](Self::remove_letter) nor
    /// [returned](Self::return_letter) shows again when its lease ends.
    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>>;

    /// Deletes a message of the poison queue that [`receive_letters`](Self::receive_letters) gave.
    async fn remove_letter(&self, receipt: &Receipt) -> Result<()>;

    /// Shows a message of the poison queue again, as it was.
    async fn return_letter(&self, receipt: &Receipt) -> Result<()>;

    /// Which part of the queue holds the receipt's message: parts fail independently of each other, so a drain gives each
    /// its own share of the releases under way. Less than [`parts`](Self::parts).
    fn part(&self, receipt: &Receipt) -> usize {
        let _ = receipt;
        0
    }

    /// How many parts there are: the shards of a queue that is made of several.
    fn parts(&self) -> usize {
        1
    }
}
