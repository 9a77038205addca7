//! The content of the queues: how many messages, and which of them will expire.

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use reprieve_core::{QueueName, Result};

use crate::storage::call::{Access, Effort};
use crate::storage::queue::{QueueCalls, expiry};

/// How many messages are peeked at: the service's maximum.
/// <https://learn.microsoft.com/rest/api/storageservices/peek-messages>
pub const PEEKED_MAX: u8 = 32;

/// How many queues are queried concurrently.
const AT_ONCE: usize = 8;

/// A queue and its poison queue.
#[derive(Debug)]
pub struct QueueLook {
    /// The queue's name.
    pub name: QueueName,
    /// The approximate number of its messages.
    pub messages: Result<u64>,
    /// The approximate number of messages in its poison queue.
    pub poisoned: Result<u64>,
    /// The messages that come next.
    pub next: Result<Next>,
}

/// The messages that come next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Next {
    /// How many were peeked at, at most [`PEEKED_MAX`].
    pub peeked: usize,
    /// How many of them have an expiry time, which their sender set.
    pub expiring: usize,
    /// The first of those expiry times.
    pub first_end: Option<Timestamp>,
}

pub(super) async fn look(access: &Access, queues: &[QueueName]) -> Vec<QueueLook> {
    let looks: Vec<_> = queues.iter().map(|name| one(access, name)).collect();
    stream::iter(looks).buffered(AT_ONCE).collect().await
}

async fn one(access: &Access, name: &QueueName) -> QueueLook {
    let main = async {
        let calls = QueueCalls::new(access, name.clone(), Effort::CHECK)?;
        Ok(tokio::join!(calls.count(), next(&calls)))
    };
    let poison = async { QueueCalls::new(access, name.poison(), Effort::CHECK)?.count().await };
    let (main, poisoned) = tokio::join!(main, poison);
    let name = name.clone();
    match main {
        Ok((messages, next)) => QueueLook { name, messages, poisoned, next },
        Err(error) => QueueLook { name, messages: Err(error), poisoned, next: Ok(Next::default()) },
    }
}

async fn next(calls: &QueueCalls) -> Result<Next> {
    let peeked = calls.peek("peek at messages", PEEKED_MAX.into()).await?;
    let ends: Vec<_> = peeked.iter().filter_map(|message| expiry(message.expiration_time)).collect();
    Ok(Next { peeked: peeked.len(), expiring: ends.len(), first_end: ends.into_iter().min() })
}
