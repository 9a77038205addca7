//! The queue port, over all shards.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::select_all;
use futures_util::stream::{self, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::{AT_ONCE, Shards};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MessageId;
use crate::ports::{DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release};

/// After this time a receive asks no further shard, so that it ends well within the half minute for
/// which a worker waits.
const ASKS_MAX: Duration = Duration::from_secs(15);

#[async_trait]
#[deny(clippy::missing_trait_methods, reason = "what is not passed on would be lost for every shard")]
impl Queue for Shards {
    /// Sends runs of messages to several shards concurrently.
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        let total = messages.len();
        let mut messages = messages.into_iter();
        let runs = self.spread().runs(total);
        let sends: Vec<_> = runs
            .into_iter()
            .map(|(at, run)| self.send_run(at, messages.by_ref().take(run).collect()))
            .collect();
        let answers: Vec<_> = stream::iter(sends).buffered(AT_ONCE).collect().await;
        let (mut ids, mut failed) = (Vec::with_capacity(total), None);
        for answer in answers {
            match answer {
                Ok(sent) => ids.extend(sent),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok(ids),
            Some(error) if ids.is_empty() => Err(error),
            Some(error) => Err(sent_in_part(ids.len(), total, error)),
        }
    }

    fn batch_max(&self) -> usize {
        self.members.iter().map(|shard| shard.queue.batch_max()).min().unwrap_or(1)
    }

    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let began = Instant::now();
        let (mut failed, mut answered) = (None, false);
        let turns = self.turns().next();
        for at in turns {
            match self.ask(at, max, lease).await {
                Ok(deliveries) if deliveries.is_empty() => answered = true,
                Ok(deliveries) => return Ok(deliveries),
                Err(error) => failed = Some(error),
            }
            if began.elapsed() >= ASKS_MAX {
                break;
            }
        }
        match failed {
            Some(error) if !answered => Err(error),
            _ => Ok(Vec::new()),
        }
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        let (shard, receipt) = self.holder("renew a lease", receipt)?;
        let renewed = shard.queue.renew(&receipt, lease).await?;
        Ok(shard.receipt(&renewed))
    }

    async fn replace(&self, receipt: &Receipt, body: &[u8], lease: Duration) -> Result<Delivery> {
        let (shard, receipt) = self.holder("replace a message", receipt)?;
        Ok(shard.named(shard.queue.replace(&receipt, body, lease).await?))
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        let (shard, receipt) = self.holder("complete a message", receipt)?;
        shard.queue.complete(&receipt).await
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        let (shard, receipt) = self.holder("release a message", receipt)?;
        shard.queue.release(&receipt, release).await
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        let (shard, receipt) = self.holder("dead-letter a message", receipt)?;
        shard.queue.dead_letter(&receipt, body, letter).await
    }

    /// Completes when any shard's `arrived` does. The next receive asks that shard first. A failing
    /// shard is not listened to until its rest ends.
    async fn arrived(&self) {
        let waits = self.members.iter().enumerate().map(|(at, shard)| {
            let fails_until = self.turns().fails_until(at);
            Box::pin(async move {
                if let Some(until) = fails_until {
                    sleep_until(until).await;
                }
                shard.queue.arrived().await;
                at
            })
        });
        let (at, ..) = select_all(waits).await;
        self.turns().call(at);
    }

    /// Recovers what it can. A failing shard does not keep a worker from the others: its messages
    /// return when their leases end.
    async fn recover(&self) -> Result<u64> {
        let answers = self.all(|shard| async move { (shard, shard.queue.recover().await) }).await;
        let (mut released, mut answered, mut failed) = (0, false, None);
        for (shard, answer) in answers {
            match answer {
                Ok(count) => (released, answered) = (released + count, true),
                Err(error) => {
                    tracing::warn!(queue = %shard.name, %error, "failed to release the messages of dead workers");
                    failed = Some(shard.blame(error));
                }
            }
        }
        failed.filter(|_| !answered).map_or(Ok(released), Err)
    }

    async fn depth(&self) -> Result<Depth> {
        let depths =
            self.all(|shard| async { shard.queue.depth().await.map_err(|error| shard.blame(error)) }).await;
        let mut sum =
            Depth { total: 0, ready: Some(0), leased: Some(0), delayed: Some(0), poisoned: Some(0) };
        for depth in depths {
            let depth = depth?;
            let both = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
            sum = Depth {
                total: sum.total + depth.total,
                ready: both(sum.ready, depth.ready),
                leased: both(sum.leased, depth.leased),
                delayed: both(sum.delayed, depth.delayed),
                poisoned: both(sum.poisoned, depth.poisoned),
            };
        }
        Ok(sum)
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        let looks = self.all(|shard| async move {
            let letters = shard.queue.dead_letters(max).await.map_err(|error| shard.blame(error))?;
            Ok::<_, Error>(letters.into_iter())
        });
        let mut shards = looks.await.into_iter().collect::<Result<Vec<_>>>()?;
        let mut letters = Vec::new();
        // Dead letters have no time, so the shards take turns, each with its oldest first.
        loop {
            let before = letters.len();
            for shard in &mut shards {
                if letters.len() < max {
                    letters.extend(shard.next());
                }
            }
            if letters.len() == before {
                return Ok(letters);
            }
        }
    }

    /// Receives dead letters from the shards in order, up to `max`. A failing shard does not block
    /// the others' dead letters.
    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let (mut letters, mut failed) = (Vec::new(), None);
        for shard in &self.members {
            if letters.len() >= max {
                break;
            }
            match shard.queue.receive_letters(max - letters.len(), lease).await {
                Ok(received) => letters.extend(received.into_iter().map(|letter| shard.named(letter))),
                Err(error) => {
                    tracing::warn!(queue = %shard.name, %error, "failed to receive dead letters from a queue");
                    failed = Some(shard.blame(error));
                }
            }
        }
        failed.filter(|_| letters.is_empty()).map_or(Ok(letters), Err)
    }

    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        let (shard, receipt) = self.holder("remove a dead letter", receipt)?;
        shard.queue.remove_letter(&receipt).await
    }

    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        let (shard, receipt) = self.holder("return a dead letter", receipt)?;
        shard.queue.return_letter(&receipt).await
    }

    /// Returns the index of the shard.
    fn part(&self, receipt: &Receipt) -> usize {
        self.place(receipt).map_or(0, |(at, _)| at)
    }

    fn parts(&self) -> usize {
        self.members.len()
    }
}

/// The error of a partly successful send: never of a kind that means that nothing was applied.
fn sent_in_part(sent: usize, total: usize, error: Error) -> Error {
    let kind = if error.kind() == ErrorKind::Unavailable { ErrorKind::TimedOut } else { error.kind() };
    let message =
        format!("{sent} of {total} messages were sent; others may have been sent, too: {}", error.message());
    Error::new(kind, "send messages", message).with_source(error)
}
