//! Several queues used as one, for more messages than one queue can carry.

mod queue;
mod spread;
mod turns;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use self::spread::Spread;
use self::turns::{Answer, Turns};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MessageId;
use crate::ports::{Delivery, NewMessage, Queue, Receipt};
use crate::queue_name::QueueName;
use crate::retry::bounded;

/// The time limit for one shard's answer to a receive. Messages that a late receive leased return
/// when their leases end.
const ASK_MAX: Duration = Duration::from_secs(10);

/// The same for a shard that failed when it was last asked, because the other shards wait
/// meanwhile.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// How many shards are called at once by operations on all of them: counting, recovery, a large
/// send.
const AT_ONCE: usize = 16;

/// A queue that consists of several queues, its shards.
///
/// Workers spread over the shards without coordination: each begins at a random shard, and first
/// asks those that recently returned many messages. However busy some shards are, every shard that
/// answers is asked at least once in [`REACHED_IN_RECEIVES`](Self::REACHED_IN_RECEIVES) × n
/// receives, where n is the number of shards, and returns its oldest messages first.
///
/// # Differences from a single queue
/// - A receive returns the messages of the first shard that has any, so that no received message
///   waits for another shard's answer. It asks a limited number of shards: all of them if there are
///   four or fewer. After ten seconds without a message, it asks a third of them, those first that
///   were not asked for longest. So an idle worker does not pay for every shard in every receive,
///   but reaches each within three receives.
/// - A failing shard is asked ever more rarely, down to once a minute, and does not block the
///   messages of the others.
/// - A send distributes its messages over the shards in runs of 32 or more, because messages that
///   are sent together are received together. If a shard is too busy for a run or can't be reached,
///   the run goes to another.
/// - Message ids are those of the shards, so that adding a shard changes no id. No two shards may
///   use the same id: Storage queues create unique ones, and so does
///   `MemoryQueue::named`.
/// - Receipts are `<queue>:<receipt>`. Listed dead letters come from the shards' poison queues in
///   turn, in each shard's own order.
/// - Each shard is a [part](Queue::part) of the queue.
///
/// # Example: two queues
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use reprieve_core::memory::MemoryQueue;
/// use reprieve_core::ports::{NewMessage, Queue};
/// use reprieve_core::{QueueName, Shards};
///
/// let shard = |name| Ok::<_, reprieve_core::Error>((QueueName::parse(name)?, Arc::new(MemoryQueue::named(name)) as Arc<dyn Queue>));
/// let queue = Shards::new(vec![shard("work-0")?, shard("work-1")?])?;
/// queue.send(vec![NewMessage { body: b"hello".to_vec(), delay: Duration::ZERO }]).await?;
///
/// let held = queue.receive(32, Duration::from_mins(1)).await?;
/// queue.complete(&held[0].receipt).await?;
/// # Ok::<(), reprieve_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Shards {
    members: Vec<Shard>,
    turns: Mutex<Turns>,
    spread: Mutex<Spread>,
}

#[derive(Debug)]
struct Shard {
    name: QueueName,
    queue: Arc<dyn Queue>,
}

impl Shards {
    /// In this many receives for each shard, every shard that answers is asked at least once.
    pub const REACHED_IN_RECEIVES: usize = turns::OVERDUE + 1;

    /// Joins `queues` into one queue. Each has a unique name, and message ids that no other one
    /// uses. Every process should use the same names, because they are in receipts, errors and
    /// logs. The order does not matter.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when there is no queue, or when two have the same name.
    pub fn new(queues: Vec<(QueueName, Arc<dyn Queue>)>) -> Result<Self> {
        Self::seeded(queues, crate::chance::number())
    }

    /// The same, with the random choices that follow from `seed`.
    fn seeded(queues: Vec<(QueueName, Arc<dyn Queue>)>, seed: u64) -> Result<Self> {
        let invalid = |why: String| Err(Error::new(ErrorKind::Invalid, "join queues", why));
        if queues.is_empty() {
            return invalid("there is no queue: name at least one".to_owned());
        }
        for (at, (name, _)) in queues.iter().enumerate() {
            if queues[..at].iter().any(|(earlier, _)| earlier == name) {
                return invalid(format!("the queue {name} is named twice: name each once"));
            }
        }
        let members: Vec<_> = queues.into_iter().map(|(name, queue)| Shard { name, queue }).collect();
        let turns = Mutex::new(Turns::new(members.len(), seed));
        let spread = Mutex::new(Spread::new(members.len(), seed));
        Ok(Self { members, turns, spread })
    }

    /// Locks, even after a panic while the lock was held: no operation leaves the order half
    /// changed.
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spread(&self) -> MutexGuard<'_, Spread> {
        self.spread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of the shard that issued `receipt`, and the shard's own receipt.
    fn place<'a>(&self, receipt: &'a Receipt) -> Option<(usize, &'a str)> {
        let (name, receipt) = receipt.as_str().split_once(':')?;
        let at = self.members.iter().position(|shard| shard.name.as_str() == name)?;
        Some((at, receipt))
    }

    /// The shard that issued `receipt`, and the shard's own receipt.
    fn holder(&self, operation: &'static str, receipt: &Receipt) -> Result<(&Shard, Receipt)> {
        let holder = self.place(receipt).map(|(at, receipt)| (&self.members[at], Receipt::new(receipt)));
        holder.ok_or_else(|| {
            Error::new(ErrorKind::Invalid, operation, "the receipt belongs to none of these queues")
        })
    }

    /// Receives from one shard, and records how it answered.
    async fn ask(&self, at: usize, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let shard = &self.members[at];
        let limit = if self.turns().is_failing(at) { PROBE_MAX } else { ASK_MAX };
        let given = bounded("receive messages", limit, shard.queue.receive(max, lease)).await;
        let answer = match &given {
            Ok(deliveries) => Answer::Gave { asked: max, given: deliveries.len() },
            Err(_) => Answer::Failed,
        };
        let news = self.turns().note(at, answer);
        match given {
            Ok(deliveries) => {
                if news {
                    tracing::info!(queue = %shard.name, "the queue works again");
                }
                Ok(deliveries.into_iter().map(|delivery| shard.named(delivery)).collect())
            }
            Err(error) => {
                if news {
                    tracing::warn!(queue = %shard.name, %error, "failed to receive from a queue; polling it less often");
                }
                Err(shard.blame(error))
            }
        }
    }

    /// Sends one run to the shard at `first`, or to another if that one is unavailable.
    async fn send_run(&self, first: usize, run: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        let choices = self.spread().choices(first);
        let (last, others) = choices.split_last().expect("there is at least one shard");
        for &at in others {
            match self.members[at].send(run.clone()).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tracing::debug!(%error, "sending to another queue instead");
                    self.spread().avoid(at);
                }
                sent => return sent,
            }
        }
        self.members[*last].send(run).await
    }

    /// Calls every shard, a few at a time, and returns the results in the order of the shards.
    async fn all<'a, F: Future>(&'a self, call: impl Fn(&'a Shard) -> F) -> Vec<F::Output> {
        let calls: Vec<_> = self.members.iter().map(call).collect();
        stream::iter(calls).buffered(AT_ONCE).collect().await
    }
}

impl Shard {
    /// Adds the shard's name to the delivery's receipt.
    fn named(&self, delivery: Delivery) -> Delivery {
        let receipt = self.receipt(&delivery.receipt);
        Delivery { receipt, ..delivery }
    }

    /// Prefixes the shard's receipt with the shard's name, which contains no `:`.
    fn receipt(&self, receipt: &Receipt) -> Receipt {
        Receipt::new(format!("{}:{}", self.name, receipt.as_str()))
    }

    async fn send(&self, run: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        self.queue.send(run).await.map_err(|error| self.blame(error))
    }

    /// Adds the queue's name to the error.
    fn blame(&self, error: Error) -> Error {
        let message = format!("queue {}: {}", self.name, error.message());
        Error::new(error.kind(), error.operation(), message).with_source(error)
    }
}
