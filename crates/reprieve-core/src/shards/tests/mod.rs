//! Tests of shards: the promises of any queue, and the properties of shards.

mod receive;
mod send;

use async_trait::async_trait;

use super::*;
use crate::conformance::Fixture;
use crate::memory::{self, Fault, Faults, MemoryQueue, Op};
use crate::ports::{DeadLetter, DeadLettered, Depth, Release, Store};

const LEASE: Duration = Duration::from_mins(1);

fn name(at: usize) -> QueueName {
    QueueName::parse(format!("work-{at}")).unwrap()
}

/// The in-memory queue with this number.
fn shard(at: usize) -> Arc<dyn Queue> {
    Arc::new(MemoryQueue::named(name(at).as_str()))
}

/// The same, with fault injection.
fn faulty(at: usize) -> (Arc<dyn Queue>, Faults) {
    let (store, faults) = Faults::wrap(Store { queue: shard(at), ..memory::store() });
    (store.queue, faults)
}

fn join(queues: impl IntoIterator<Item = Arc<dyn Queue>>, seed: u64) -> Shards {
    let named = queues.into_iter().enumerate().map(|(at, queue)| (name(at), queue)).collect();
    Shards::seeded(named, seed).unwrap()
}

fn in_memory(shards: usize) -> Vec<Arc<dyn Queue>> {
    (0..shards).map(shard).collect()
}

fn messages(count: usize) -> Vec<NewMessage> {
    let numbered = |n: usize| NewMessage { body: n.to_string().into_bytes(), delay: Duration::ZERO };
    (0..count).map(numbered).collect()
}

async fn total(queue: &dyn Queue) -> u64 {
    queue.depth().await.unwrap().total
}

mod of_one {
    use super::{Fixture, fixture_of};

    async fn fixture() -> Fixture {
        fixture_of(1)
    }

    crate::queue_conformance!(fixture, start_paused = true);
}

mod of_three {
    use super::{Fixture, fixture_of};

    async fn fixture() -> Fixture {
        fixture_of(3)
    }

    crate::queue_conformance!(fixture, start_paused = true);
}

/// The same queues, joined by two processes in different orders.
fn fixture_of(shards: usize) -> Fixture {
    let queues = in_memory(shards);
    let named = || queues.iter().cloned().enumerate().map(|(at, queue)| (name(at), queue));
    let join = |named| Store { queue: Arc::new(Shards::new(named).unwrap()), ..memory::store() };
    Fixture::new(join(named().collect()), join(named().rev().collect()))
}

#[test]
fn a_name_means_one_queue() {
    let twice = Shards::new(vec![(name(1), shard(1)), (name(1), shard(2))]).unwrap_err();
    assert!(twice.to_string().contains("work-1 is named twice"), "{twice}");
    assert_eq!(Shards::new(Vec::new()).unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_receipt_of_another_queue_is_invalid() {
    let queue = join(in_memory(2), 1);
    for foreign in ["", "1.2", "work-2:1.2", "work-1", "work-0:", "work-0:1"] {
        let error = queue.complete(&Receipt::new(foreign)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{foreign:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_are_sums_and_unknown_where_one_is() {
    let queues = in_memory(3);
    let joined = join(queues.clone(), 1);
    for (at, queue) in queues.iter().enumerate() {
        queue.send(messages(at + 1)).await.unwrap();
    }
    let held = joined.receive(1, LEASE).await.unwrap();
    let depth = joined.depth().await.unwrap();
    assert_eq!((depth.total, depth.ready, depth.leased), (6, Some(5), Some(1)));
    joined.dead_letter(&held[0].receipt, &held[0].body, &DeadLetter::because("bad")).await.unwrap();
    let letters = joined.dead_letters(9).await.unwrap();
    assert_eq!((letters.len(), letters[0].reason.as_deref()), (1, Some("bad")));
    assert_eq!(letters[0].id, held[0].id);

    let blind = join([Arc::new(Deaf(Arc::clone(&queues[0]))) as Arc<dyn Queue>, Arc::clone(&queues[1])], 1);
    assert_eq!(blind.depth().await.unwrap().ready, None);
}

#[tokio::test(start_paused = true)]
async fn recovery_gives_back_what_it_can() {
    let (queues, faults): (Vec<_>, Vec<_>) = (0..3).map(faulty).unzip();
    let joined = join(queues, 1);
    faults[0].every_call(Op::Recover, Fault::Fail(ErrorKind::Unavailable));
    assert_eq!(joined.recover().await.unwrap(), 0);
    for faults in &faults {
        faults.every_call(Op::Recover, Fault::Fail(ErrorKind::Unavailable));
    }
    assert_eq!(joined.recover().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// A queue that fails to receive although it signals messages, and that has no parts.
#[derive(Debug)]
struct Deaf(Arc<dyn Queue>);

#[async_trait]
impl Queue for Deaf {
    async fn send(&self, messages: Vec<NewMessage>) -> Result<Vec<MessageId>> {
        self.0.send(messages).await
    }

    async fn receive(&self, _: usize, _: Duration) -> Result<Vec<Delivery>> {
        Err(Error::new(ErrorKind::Unavailable, "receive messages", "the call was made to fail"))
    }

    async fn renew(&self, receipt: &Receipt, lease: Duration) -> Result<Receipt> {
        self.0.renew(receipt, lease).await
    }

    async fn complete(&self, receipt: &Receipt) -> Result<()> {
        self.0.complete(receipt).await
    }

    async fn release(&self, receipt: &Receipt, release: &Release) -> Result<()> {
        self.0.release(receipt, release).await
    }

    async fn dead_letter(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        self.0.dead_letter(receipt, body, letter).await
    }

    async fn arrived(&self) {
        self.0.arrived().await;
    }

    async fn depth(&self) -> Result<Depth> {
        Ok(Depth { ready: None, ..self.0.depth().await? })
    }

    async fn dead_letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        self.0.dead_letters(max).await
    }

    async fn receive_letters(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        self.0.receive_letters(max, lease).await
    }

    async fn remove_letter(&self, receipt: &Receipt) -> Result<()> {
        self.0.remove_letter(receipt).await
    }

    async fn return_letter(&self, receipt: &Receipt) -> Result<()> {
        self.0.return_letter(receipt).await
    }
}

#[tokio::test(start_paused = true)]
async fn adding_a_shard_renames_no_message() {
    let queues = in_memory(3);
    let ids = join(queues[..2].iter().cloned(), 1).send(messages(200)).await.unwrap();
    let joined = join(queues.clone(), 1);
    let mut received = Vec::new();
    while received.len() < ids.len() {
        received.extend(joined.receive(32, LEASE).await.unwrap());
    }
    let mut own = Vec::new();
    for delivery in &received {
        let part = joined.part(&delivery.receipt);
        assert!(part < 2 && joined.parts() == 3, "{part}");
        assert!(delivery.id.as_str().starts_with(name(part).as_str()), "{:?} in part {part}", delivery.id);
        own.push(delivery.id.clone());
    }
    own.sort();
    let mut sent = ids;
    sent.sort();
    assert_eq!(own, sent);
}

#[tokio::test(start_paused = true)]
async fn letters_of_all_shards_are_received_also_when_one_fails() {
    let (queues, faults): (Vec<_>, Vec<_>) = (0..3).map(faulty).unzip();
    let joined = join(queues.clone(), 1);
    for queue in &queues {
        queue.send(messages(2)).await.unwrap();
        for delivery in queue.receive(2, LEASE).await.unwrap() {
            let letter = DeadLetter::because("bad");
            queue.dead_letter(&delivery.receipt, &delivery.body, &letter).await.unwrap();
        }
    }
    faults[1].every_call(Op::ReceiveLetters, Fault::Fail(ErrorKind::Unavailable));
    let letters = joined.receive_letters(3, LEASE).await.unwrap();
    assert_eq!(letters.iter().map(|one| joined.part(&one.receipt)).collect::<Vec<_>>(), [0, 0, 2]);
    for letter in &letters {
        joined.remove_letter(&letter.receipt).await.unwrap();
    }
    assert_eq!(joined.receive_letters(3, LEASE).await.unwrap().len(), 1);
    let error = joined.receive_letters(3, LEASE).await.unwrap_err();
    assert!(error.to_string().contains("queue work-1"), "{error}");
    faults[1].clear_all();
    for letter in joined.receive_letters(3, LEASE).await.unwrap() {
        joined.return_letter(&letter.receipt).await.unwrap();
    }
    assert_eq!(joined.depth().await.unwrap().poisoned, Some(3));
}
