//! The queue port.

mod lease;

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::ports::{DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release};
use reprieve_core::{ErrorKind, MessageId, Result};

use crate::bell::Listener;
use crate::damaged::{Data, Text};
use crate::failure::Failure;
use crate::maintenance;
use crate::store::{Ports, blocking};
use crate::writer::Tx;
use lease::Key;

/// The largest body. Large arguments are stored as blobs; the megabyte is for bodies from other
/// senders.
const BODY_BYTES_MAX: usize = 1 << 20;

/// How much one transaction sends, about 10 ms of work: a longer one would delay renewals.
const SEND_MESSAGES_MAX: usize = 1_000;
const SEND_BYTES_MAX: usize = 4 << 20;

/// The most messages of one receive, for the same reason.
const RECEIVE_MAX: usize = 1_000;

/// The batch size of a worker's receive. A worker has one receive under way, which takes two
/// commits, and each waits for the disk. At 32 messages this wait limited the throughput of short
/// jobs.
const BATCH_MAX: usize = 128;

#[async_trait]
impl Queue for Ports {
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        const OPERATION: &str = "send messages";
        for message in &messages {
            check_body(&message.body).map_err(|failure| failure.during(OPERATION))?;
        }
        let (queue, all) = (self.queue, messages.len());
        let mut ids = Vec::with_capacity(all);
        for chunk in chunks(messages) {
            let bytes = chunk.iter().map(|message| message.body.len()).sum();
            match self.shared.writer.call(bytes, move |tx| lease::send(tx, queue, &chunk), Ok).await {
                Ok(sent) => ids.extend(sent),
                Err(failure) if ids.is_empty() => return Err(failure.during(OPERATION)),
                Err(failure) => {
                    return Err(failure
                        .after(&format!("{} of {all} were sent", ids.len()))
                        .during(OPERATION));
                }
            }
        }
        Ok(ids)
    }

    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        // Before the receive: a message that arrives during it must end the wait that follows.
        self.rings_seen.store(*self.rings.borrow(), Ordering::Relaxed);
        let (queue, holder, max) = (self.queue, self.holder, max.min(RECEIVE_MAX));
        let received =
            self.shared.writer.call(0, move |tx| lease::receive(tx, queue, holder, max, lease), Ok).await;
        let (deliveries, next_due) = received.map_err(|failure| failure.during("receive messages"))?;
        self.next_due.store(next_due.unwrap_or(i64::MAX), Ordering::Relaxed);
        Ok(deliveries)
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        let key = Key::read(self.queue, receipt);
        let renewed = self.shared.writer.call(0, move |tx| lease::renew(tx, key, lease), Ok).await;
        renewed.map_err(|failure| failure.during("renew a lease"))
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        let key = Key::read(self.queue, receipt);
        let completed = self.shared.writer.call(0, move |tx| lease::complete(tx, key), Ok).await;
        completed.map_err(|failure| failure.during("complete a message"))
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        const OPERATION: &str = "release a message";
        let (release, body) = (release.clone(), release.body.as_deref().unwrap_or_default());
        let bytes = body.len();
        check_body(body).map_err(|failure| failure.during(OPERATION))?;
        let key = Key::read(self.queue, receipt);
        let apply = move |tx: &Tx<'_>| lease::release(tx, key, &release);
        self.shared.writer.call(bytes, apply, Ok).await.map_err(|failure| failure.during(OPERATION))
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        const OPERATION: &str = "dead-letter a message";
        check_body(body).map_err(|failure| failure.during(OPERATION))?;
        let (key, poison) = (Key::read(self.queue, receipt), self.poison);
        let (body, reason) = (body.to_vec(), letter.reason.clone());
        let bytes = body.len();
        let apply = move |tx: &Tx<'_>| lease::dead_letter(tx, key, poison, &body, &reason);
        self.shared.writer.call(bytes, apply, Ok).await.map_err(|failure| failure.during(OPERATION))
    }

    async fn arrived(&self) {
        let bell = self.shared.files.bell();
        self.listener.get_or_init(|| match Listener::start(&bell, self.rings.clone()) {
            Ok(listener) => {
                // The bell may have rung before the listener started, so the first wait ends at
                // once.
                self.rings.send_modify(|rings| *rings += 1);
                Some(listener)
            }
            Err(failure) => {
                let error = failure.during("listen for new messages");
                tracing::warn!(%error, "failed to listen for new messages; polling for them");
                None
            }
        });
        let seen = self.rings_seen.load(Ordering::Relaxed);
        let mut rings = self.rings.subscribe();
        let next_due = self.next_due.load(Ordering::Relaxed);
        let wait = next_due.saturating_sub(self.shared.clock.now()).saturating_add(1);
        tokio::select! {
            // The sender lives in `self`, so this can't fail.
            _ = rings.wait_for(|rings| *rings != seen) => {}
            () = tokio::time::sleep(Duration::from_millis(wait.max(1).unsigned_abs())), if next_due < i64::MAX => {}
        }
    }

    async fn recover(&self) -> Result<u64> {
        let shared = self.shared.clone();
        let recovered = blocking(move || maintenance::end_dead_sessions(&shared)).await;
        recovered.map_err(|failure| failure.during("release the messages of dead workers"))
    }

    async fn depth(&self) -> Result<Depth> {
        let (shared, queue, poison) = (self.shared.clone(), self.queue, self.poison);
        let counted = blocking(move || {
            let now = shared.clock.now();
            shared.reader.read(|snapshot| {
                let count = |sql, params: [i64; 2]| {
                    let counts =
                        snapshot.prepare_cached(sql)?.query_row(params, |row| Ok((row.get(0)?, row.get(1)?)));
                    counts.map(|(a, b): (i64, i64)| (a.unsigned_abs(), b.unsigned_abs()))
                };
                let (ready, _) = count(COUNT_READY, [queue, now])?;
                let (leased, delayed) = count(COUNT_INVISIBLE, [queue, now])?;
                let (poisoned, _) = count(COUNT_READY, [poison, i64::MAX])?;
                Ok(Depth {
                    total: ready + leased + delayed,
                    ready: Some(ready),
                    leased: Some(leased),
                    delayed: Some(delayed),
                    poisoned: Some(poisoned),
                })
            })
        });
        counted.await.map_err(|failure| failure.during("count the messages"))
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        let (shared, poison) = (self.shared.clone(), self.poison);
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let found = blocking(move || {
            shared.reader.rows(
                "SELECT m.id, b.data, b.reason FROM msg m CROSS JOIN body b ON b.id = m.id
                 WHERE m.queue = ?1 ORDER BY m.invisible, m.visible_at, m.id LIMIT ?2",
                [poison, max],
                |row| {
                    Ok(DeadLettered {
                        id: lease::message_id(row.get(0)?),
                        body: row.get::<_, Data>(1)?.0,
                        reason: row.get::<_, Option<Text>>(2)?.map(|Text(reason)| reason),
                    })
                },
            )
        });
        found.await.map_err(|failure| failure.during("look at dead letters"))
    }

    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let (poison, holder, max) = (self.poison, self.holder, max.min(RECEIVE_MAX));
        let apply = move |tx: &Tx<'_>| lease::receive(tx, poison, holder, max, lease);
        let received = self.shared.writer.call(0, apply, Ok).await;
        let (letters, _next_due) = received.map_err(|failure| failure.during("receive dead letters"))?;
        Ok(letters)
    }

    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        let key = Key::read(self.poison, receipt);
        let removed = self.shared.writer.call(0, move |tx| lease::complete(tx, key), Ok).await;
        removed.map_err(|failure| failure.during("remove a dead letter"))
    }

    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        let key = Key::read(self.poison, receipt);
        let apply = move |tx: &Tx<'_>| lease::release(tx, key, &Release::default());
        let returned = self.shared.writer.call(0, apply, Ok).await;
        returned.map_err(|failure| failure.during("return a dead letter"))
    }
}

/// A message whose lease or delay has ended is receivable before a receive puts it in line.
const COUNT_READY: &str = "SELECT (SELECT count(*) FROM msg WHERE queue = ?1 AND invisible = 0)
    + (SELECT count(*) FROM msg WHERE queue = ?1 AND invisible = 1 AND visible_at <= ?2), 0";
const COUNT_INVISIBLE: &str = "SELECT count(holder), count(*) - count(holder) FROM msg
    WHERE queue = ?1 AND invisible = 1 AND visible_at > ?2";

fn check_body(body: &[u8]) -> Result<(), Failure> {
    if body.len() <= BODY_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::new(
        ErrorKind::TooLarge,
        format!(
            "a body has {} bytes, the most is {BODY_BYTES_MAX}; put it in a blob and send its name",
            body.len()
        ),
    ))
}

/// Divides messages into transactions of limited size.
fn chunks(messages: Vec<NewMessage>) -> Vec<Vec<NewMessage>> {
    let mut chunks: Vec<Vec<NewMessage>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        bytes += message.body.len();
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < SEND_MESSAGES_MAX && bytes <= SEND_BYTES_MAX => chunk.push(message),
            _ => {
                bytes = message.body.len();
                chunks.push(vec![message]);
            }
        }
    }
    chunks
}
