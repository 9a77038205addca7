//! Several queues as one, for more messages than one queue carries.

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

/// The longest that one shard may take to answer a receive. What it leased unheard comes back when the leases end.
const ASK_MAX: Duration = Duration::from_secs(10);

/// The same for one that failed when it was asked before: the others wait meanwhile.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// How many shards are asked at once where all are asked: for counting, for recovery, in a large send.
const AT_ONCE: usize = 16;

/// A queue made of several, which are its shards.
///
/// Workers spread over the shards without knowing of each other: each begins at a random one and asks first what gave
/// much lately. However busy some are, every shard that answers is asked at least once in
/// [`REACHED_IN_RECEIVES`](Self::REACHED_IN_RECEIVES) receives for each shard there is, and its oldest message is what
/// it gives first.
///
/// # What differs from one queue
/// - A receive returns what the first shard that has something gives, so that nothing received waits for an answer of
///   another shard. It asks a bounded number of shards: all of them where there are four or fewer. After ten seconds
///   without a message it asks a third of them, the longest unasked first, so that an idle worker does not pay for
///   every shard at every look, and looks at each within three receives.
/// - A shard that fails is asked ever more rarely, once a minute at last, and does not hide the messages of the others.
/// - Sending goes round the shards in runs of 32 messages or more, because what is sent together is received together.
///   A run that a shard is too busy for, or that can't reach it, goes to another.
/// - Message ids are those that the shards gave, so that adding a shard renames no message. No two shards may give the
///   same id: Storage queues give unique ones, and [`MemoryQueue::named`](crate::memory::MemoryQueue::named) does.
/// - Receipts are `<queue>:<receipt>`. Dead letters come in turn from each shard's poison queue, each in its own order.
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
    /// A shard that answers is asked at least once in this many receives for each shard there is.
    pub const REACHED_IN_RECEIVES: usize = turns::OVERDUE + 1;

    /// One queue of `queues`, each of which has a name of its own and message ids that no other one gives. Every process
    /// should name them alike: the names are in receipts, errors and logs. Their order does not matter.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when there is none, or when two have one name.
    pub fn new(queues: Vec<(QueueName, Arc<dyn Queue>)>) -> Result<Self> {
        Self::seeded(queues, crate::chance::number())
    }

    /// The same with the random choices that `seed` makes.
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

    /// Locks, also after a panic with the lock held: no operation leaves the order half changed.
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spread(&self) -> MutexGuard<'_, Spread> {
        self.spread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of the shard that gave `receipt`, and the receipt that it gave.
    fn place<'a>(&self, receipt: &'a Receipt) -> Option<(usize, &'a str)> {
        let (name, receipt) = receipt.as_str().split_once(':')?;
        let at = self.members.iter().position(|shard| shard.name.as_str() == name)?;
        Some((at, receipt))
    }

    /// The shard that gave `receipt`, and the receipt that it gave.
    fn holder(&self, operation: &'static str, receipt: &Receipt) -> Result<(&Shard, Receipt)> {
        let holder = self.place(receipt).map(|(at, receipt)| (&self.members[at], Receipt::new(receipt)));
        holder.ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                operation,
                "the receipt is of none of the queues that are joined here",
            )
        })
    }

    /// Asks one shard, and remembers how it answered.
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
                    tracing::info!(queue = %shard.name, "a queue answers again");
                }
                Ok(deliveries.into_iter().map(|delivery| shard.named(delivery)).collect())
            }
            Err(error) => {
                if news {
                    tracing::warn!(queue = %shard.name, %error, "could not receive from one of the queues; it is asked more rarely");
                }
                Err(shard.blame(error))
            }
        }
    }

    /// Sends one run to the shard at `first`, or to another where that one did not take it.
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

    /// Does the same with every shard, a few at a time, and returns what came of it in their order.
    async fn all<'a, F: Future>(&'a self, call: impl Fn(&'a Shard) -> F) -> Vec<F::Output> {
        let calls: Vec<_> = self.members.iter().map(call).collect();
        stream::iter(calls).buffered(AT_ONCE).collect().await
    }
}

impl Shard {
    /// The delivery with a receipt that names the shard.
    fn named(&self, delivery: Delivery) -> Delivery {
        let receipt = self.receipt(&delivery.receipt);
        Delivery { receipt, ..delivery }
    }

    /// The shard's receipt after its name, in which there can be no `:`.
    fn receipt(&self, receipt: &Receipt) -> Receipt {
        Receipt::new(format!("{}:{}", self.name, receipt.as_str()))
    }

    async fn send(&self, run: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        self.queue.send(run).await.map_err(|error| self.blame(error))
    }

    /// The error, with which queue it is of.
    fn blame(&self, error: Error) -> Error {
        let message = format!("queue {}: {}", self.name, error.message());
        Error::new(error.kind(), error.operation(), message).with_source(error)
    }
}
