//! An in-memory queue.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::lock;
use crate::clock::unix_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MessageId;
use crate::ports::{DeadLetter, DeadLettered, Delivery, Depth, NewMessage, Queue, Receipt, Release};

/// An in-memory queue with its poison queue. Oldest messages are received first, unless it is [by
/// time](Self::by_time).
///
/// A receipt holds its message until another receive gets the message, even after its lease has
/// ended: as on Storage Queues, a late receipt is still valid. [`arrived`](Queue::arrived) also
/// completes at once while a message is receivable, so a message sent between a receive and the
/// wait is not missed.
#[derive(Debug, Default)]
pub struct MemoryQueue {
    /// The prefix of the messages' ids.
    prefix: String,
    /// Whether the message is received first that has been receivable for longest.
    is_by_time: bool,
    state: Mutex<State>,
    /// Notified when the time of the next receivable message may have changed.
    moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: Messages,
    poison: Messages,
    /// The last number given to a message or a receipt. No number is given twice.
    last_number: u64,
}

/// Messages with their indexes: only a count scans all of them.
#[derive(Debug, Default)]
struct Messages {
    /// By number, which is the same for the whole life of a message. The receipts contain the numbers.
    all: BTreeMap<u64, Message>,
    /// Those that are not in the line, by the time from which they are receivable, place and number.
    later: BTreeSet<(Instant, u64, u64)>,
    /// Those that were seen to be receivable, by place and number.
    line: BTreeSet<(u64, u64)>,
}

#[derive(Debug)]
struct Message {
    id: MessageId,
    /// The place in line: the number, or a later one after a release to the back.
    place: u64,
    body: Vec<u8>,
    dequeue_count: u32,
    receivable_at: Instant,
    /// The number of the receipt that holds it; `None` before the first receive and after a
    /// release.
    held_by: Option<u64>,
    inserted_unix_ms: i64,
    /// The reason, for a dead letter.
    reason: Option<String>,
}

impl MemoryQueue {
    /// Creates an empty queue with numbers as message ids.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty queue with message ids of the form `<name>-<number>`, so that several
    /// queues can be joined as [`Shards`](crate::Shards).
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { prefix: format!("{name}-"), ..Self::default() }
    }

    /// Lets the message be received first that has been receivable for longest, as Azurite does: one that returns waits
    /// behind those that were there. A Storage queue promises no order.
    #[must_use]
    pub fn by_time(self) -> Self {
        lock(&self.state).messages.leave_line();
        Self { is_by_time: true, ..self }
    }

    /// Applies `change` to the state and wakes every task that waits for a message.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut lock(&self.state));
        self.moved.notify_waiters();
        result
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        let now = Instant::now();
        let add =
            |state: &mut State| messages.into_iter().map(|one| state.add(&self.prefix, one, now)).collect();
        Ok(self.change(add))
    }

    async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let now = Instant::now();
        let by_time = self.is_by_time;
        let receive = |state: &mut State| {
            state.messages.receive(&mut state.last_number, max, now, now + lease, by_time)
        };
        Ok(self.change(receive))
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        let until = Instant::now() + lease;
        self.change(|state| {
            let number = state.messages.held("renew a lease", receipt)?;
            let token = state.number();
            state.messages.change(number, |message| {
                message.receivable_at = until;
                message.held_by = Some(token);
            });
            Ok(receipt_of(number, token))
        })
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        self.change(|state| state.messages.remove("complete a message", receipt).map(drop))
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        let until = Instant::now() + release.delay;
        self.change(|state| {
            let back = state.number();
            state.messages.release("release a message", receipt, until, |message| {
                if let Some(body) = &release.body {
                    message.body.clone_from(body);
                }
                if release.to_back {
                    message.place = back;
                }
            })
        })
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        let now = Instant::now();
        self.change(|state| {
            let message = state.messages.remove("dead-letter a message", receipt)?;
            let number = state.number();
            let dead = Message {
                body: body.to_vec(),
                reason: Some(letter.reason.clone()),
                ..Message::new(message.id, number, now)
            };
            state.poison.insert(number, dead);
            Ok(())
        })
    }

    async fn arrived(&self) {
        loop {
            // Registers before it reads, so that no change between the two is missed.
            let moved = self.moved.notified();
            let now = Instant::now();
            let next = lock(&self.state).messages.next(now);
            match next {
                Some(at) if at <= now => return,
                Some(at) => tokio::select! { () = sleep_until(at) => {}, () = moved => {} },
                None => moved.await,
            }
        }
    }

    async fn depth(&self) -> Result<Depth> {
        let now = Instant::now();
        let state = lock(&self.state);
        let messages = &state.messages.all;
        let count = |is: fn(&Message, Instant) -> bool| {
            Some(messages.values().filter(|message| is(message, now)).count() as u64)
        };
        Ok(Depth {
            total: messages.len() as u64,
            ready: count(|message, now| message.receivable_at <= now),
            leased: count(|message, now| message.receivable_at > now && message.held_by.is_some()),
            delayed: count(|message, now| message.receivable_at > now && message.held_by.is_none()),
            poisoned: Some(state.poison.all.len() as u64),
        })
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        let state = lock(&self.state);
        let letter = |message: &Message| DeadLettered {
            id: message.id.clone(),
            body: message.body.clone(),
            reason: message.reason.clone(),
        };
        Ok(state.poison.all.values().take(max).map(letter).collect())
    }

    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let now = Instant::now();
        let receive =
            |state: &mut State| state.poison.receive(&mut state.last_number, max, now, now + lease, false);
        Ok(self.change(receive))
    }

    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        self.change(|state| state.poison.remove("remove a dead letter", receipt).map(drop))
    }

    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        let now = Instant::now();
        self.change(|state| state.poison.release("return a dead letter", receipt, now, |_| {}))
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn add(&mut self, prefix: &str, message: NewMessage, now: Instant) -> MessageId {
        let number = self.number();
        let id = MessageId::new(format!("{prefix}{number}"));
        let NewMessage { body, delay } = message;
        let message = Message { body, ..Message::new(id.clone(), number, now + delay) };
        self.messages.insert(number, message);
        id
    }
}

impl Message {
    /// A message inserted now, without body or reason.
    fn new(id: MessageId, place: u64, receivable_at: Instant) -> Self {
        Self {
            id,
            place,
            body: Vec::new(),
            dequeue_count: 0,
            receivable_at,
            held_by: None,
            inserted_unix_ms: unix_millis(),
            reason: None,
        }
    }
}

impl Messages {
    fn receive(
        &mut self,
        last_number: &mut u64,
        max: usize,
        now: Instant,
        until: Instant,
        by_time: bool,
    ) -> Vec<Delivery> {
        let numbers: Vec<u64> = if by_time {
            let receivable = self.later.iter().take_while(|(at, ..)| *at <= now);
            receivable.take(max).map(|(.., number)| *number).collect()
        } else {
            while self.later.first().is_some_and(|(at, ..)| *at <= now)
                && let Some((_, place, number)) = self.later.pop_first()
            {
                self.line.insert((place, number));
            }
            self.line.iter().take(max).map(|(_, number)| *number).collect()
        };
        let deliver = |number: u64| {
            *last_number += 1;
            let token = *last_number;
            self.change(number, |message| {
                message.dequeue_count += 1;
                message.receivable_at = until;
                message.held_by = Some(token);
                Delivery {
                    id: message.id.clone(),
                    dequeue_count: message.dequeue_count,
                    body: message.body.clone(),
                    receipt: receipt_of(number, token),
                    inserted_unix_ms: Some(message.inserted_unix_ms),
                    expires_unix_ms: None,
                    unreadable: None,
                }
            })
        };
        numbers.into_iter().map(deliver).collect()
    }

    /// Returns when the next message is receivable.
    fn next(&self, now: Instant) -> Option<Instant> {
        if self.line.is_empty() { self.later.first().map(|(at, ..)| *at) } else { Some(now) }
    }

    /// Moves the messages of the line back among the later ones.
    fn leave_line(&mut self) {
        for (place, number) in mem::take(&mut self.line) {
            let receivable_at = self.all.get(&number).map(|message| message.receivable_at);
            self.later.extend(receivable_at.map(|at| (at, place, number)));
        }
    }

    fn insert(&mut self, number: u64, message: Message) {
        self.later.insert((message.receivable_at, message.place, number));
        self.all.insert(number, message);
    }

    /// Takes a message out.
    fn take(&mut self, number: u64) -> Option<Message> {
        let message = self.all.remove(&number)?;
        self.line.remove(&(message.place, number));
        self.later.remove(&(message.receivable_at, message.place, number));
        Some(message)
    }

    /// Changes a message that [`held`](Self::held) has just found, or that is receivable.
    fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut Message) -> T) -> T {
        let mut message = self.take(number).expect("the message is there");
        let result = change(&mut message);
        self.insert(number, message);
        result
    }

    /// Returns the number of the message that `receipt` holds.
    fn held(&self, operation: &'static str, receipt: &Receipt) -> Result<u64> {
        let parts = receipt.as_str().split_once('.');
        let numbers = parts.and_then(|(number, token)| Some((number.parse().ok()?, token.parse().ok()?)));
        let Some((number, token)) = numbers else {
            return Err(Error::new(ErrorKind::Invalid, operation, "the receipt belongs to another queue"));
        };
        match self.all.get(&number) {
            Some(message) if message.held_by == Some(token) => Ok(number),
            Some(_) => Err(Error::new(
                ErrorKind::LeaseLost,
                operation,
                "the receipt no longer holds the message: use the newest, or stop",
            )),
            None => Err(Error::new(ErrorKind::LeaseLost, operation, "the message is settled already")),
        }
    }

    /// Makes the message that `receipt` holds receivable from `until` on, and applies `change` to it.
    fn release(
        &mut self,
        operation: &'static str,
        receipt: &Receipt,
        until: Instant,
        change: impl FnOnce(&mut Message),
    ) -> Result<()> {
        let number = self.held(operation, receipt)?;
        self.change(number, |message| {
            (message.receivable_at, message.held_by) = (until, None);
            change(message);
        });
        Ok(())
    }

    /// Removes the message that `receipt` holds.
    fn remove(&mut self, operation: &'static str, receipt: &Receipt) -> Result<Message> {
        let number = self.held(operation, receipt)?;
        Ok(self.take(number).expect("a held message is there"))
    }
}

fn receipt_of(number: u64, token: u64) -> Receipt {
    Receipt::new(format!("{number}.{token}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_mins(1);

    fn message(delay: Duration) -> NewMessage {
        NewMessage { body: b"body".to_vec(), delay }
    }

    /// How long `arrived` does not complete.
    async fn quiet_for(queue: &MemoryQueue) -> Duration {
        let begun = Instant::now();
        queue.arrived().await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_there_has_arrived() {
        let queue = MemoryQueue::new();
        queue.send(vec![message(Duration::ZERO)]).await.unwrap();
        assert_eq!(quiet_for(&queue).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_message_arrives_when_its_delay_is_over() {
        let queue = MemoryQueue::new();
        queue.send(vec![message(Duration::from_secs(7))]).await.unwrap();
        assert_eq!(quiet_for(&queue).await, Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leased_message_arrives_when_its_lease_ends_as_last_renewed() {
        let queue = MemoryQueue::new();
        queue.send(vec![message(Duration::ZERO)]).await.unwrap();
        let delivery = queue.receive(1, LEASE).await.unwrap().remove(0);
        let half = LEASE / 2;
        let renew = async {
            tokio::time::sleep(half).await;
            queue.renew(&delivery.receipt, LEASE).await.unwrap();
        };
        let (quiet, ()) = tokio::join!(quiet_for(&queue), renew);
        assert_eq!(quiet, half + LEASE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_send_and_a_release_wake_everyone_who_waits() {
        let queue = MemoryQueue::new();
        let send = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            queue.send(vec![message(Duration::ZERO)]).await.unwrap();
        };
        let (one, other, ()) = tokio::join!(quiet_for(&queue), quiet_for(&queue), send);
        assert_eq!((one, other), (Duration::from_secs(1), Duration::from_secs(1)));

        let delivery = queue.receive(1, LEASE).await.unwrap().remove(0);
        let release = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            queue.release(&delivery.receipt, &Release::default()).await.unwrap();
        };
        let (quiet, ()) = tokio::join!(quiet_for(&queue), release);
        assert_eq!(quiet, Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn by_time_a_message_that_returns_waits_behind_those_that_were_there() {
        for (queue, expected) in [(MemoryQueue::new(), "1"), (MemoryQueue::new().by_time(), "2")] {
            queue.send(vec![message(Duration::ZERO), message(Duration::ZERO)]).await.unwrap();
            let first = queue.receive(1, LEASE).await.unwrap().remove(0);
            tokio::time::sleep(Duration::from_secs(1)).await;
            queue.release(&first.receipt, &Release::default()).await.unwrap();
            assert_eq!(queue.receive(1, LEASE).await.unwrap()[0].id.as_str(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_was_used_can_be_by_time_from_then_on() {
        let queue = MemoryQueue::new();
        queue.send(vec![message(Duration::ZERO), message(Duration::ZERO)]).await.unwrap();
        assert_eq!(queue.receive(1, LEASE).await.unwrap()[0].id.as_str(), "1");
        let queue = queue.by_time();
        assert_eq!(queue.receive(2, LEASE).await.unwrap()[0].id.as_str(), "2");
        assert_eq!(quiet_for(&queue).await, LEASE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_queue_stays_quiet() {
        let queue = MemoryQueue::new();
        assert!(tokio::time::timeout(LEASE, queue.arrived()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_receipt_is_valid_until_another_receive() {
        let queue = MemoryQueue::new();
        queue.send(vec![message(Duration::ZERO)]).await.unwrap();
        let delivery = queue.receive(1, LEASE).await.unwrap().remove(0);
        tokio::time::sleep(LEASE * 2).await;
        queue.renew(&delivery.receipt, LEASE).await.unwrap();
    }

    #[tokio::test]
    async fn a_foreign_receipt_is_invalid() {
        let queue = MemoryQueue::new();
        for foreign in ["", "1", "a.b", "1.2.3"] {
            let error = queue.complete(&Receipt::new(foreign)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{foreign:?}");
        }
    }
}
