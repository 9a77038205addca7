//! The store that all processes share, and its final contents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use reprieve_core::ledger::is_entry;
use reprieve_core::memory::{MemoryBlobs, MemoryQueue, MemoryRecords, MemoryRoster};
use reprieve_core::ports::{BlobStore, ListedRecord, NewMessage, Page, Queue, RecordStore, Store};
use reprieve_core::record::{INLINE_BYTES_MAX, Record, Status, named_payloads, open};
use reprieve_core::worker::Escalation;
use reprieve_core::{JobId, MessageId, QueueName, Result, Shards};

use super::blobs::{FarBlobs, FarRoster};
use super::link::Link;
use super::process::Process;
use super::queue::FarQueue;
use super::records::{FarRecords, number};
use super::village::number_in;

/// The most dead letters that are read.
const ALL: usize = 100_000;

/// The name of the calm machine's queue.
pub(super) const CALM: &str = "calm";

/// The shared store.
#[derive(Debug)]
pub(super) struct SharedStore {
    pub(super) shards: Vec<(String, Arc<MemoryQueue>)>,
    /// The queue to which jobs move that are interrupted too often.
    pub(super) calm: Arc<MemoryQueue>,
    records: Arc<MemoryRecords>,
    pub(super) blobs: Arc<MemoryBlobs>,
    roster: Arc<MemoryRoster>,
}

/// The contents of a store.
#[derive(Debug, Default)]
pub struct FinalStore {
    /// Messages in the queue.
    pub messages: u64,
    /// The records, by the job's number in the plan.
    pub records: BTreeMap<usize, Record>,
    /// Payloads that a record names and the store lacks.
    pub missing: Vec<String>,
    /// Payloads that no record names.
    pub unnamed: Vec<String>,
    /// The results.
    pub results: BTreeMap<usize, Vec<u8>>,
    /// The jobs that wrote their output.
    pub outputs: Vec<usize>,
    /// The poison queue.
    pub letters: Vec<Letter>,
}

/// A message of the poison queue.
#[derive(Debug, Clone)]
pub struct Letter {
    /// Its id.
    pub message: MessageId,
    /// The reason for dead-lettering.
    pub reason: String,
}

impl SharedStore {
    pub(super) fn new(shards: usize) -> Self {
        let mut store = Self {
            shards: Vec::new(),
            calm: Arc::new(MemoryQueue::named(CALM)),
            records: Arc::default(),
            blobs: Arc::default(),
            roster: Arc::default(),
        };
        (0..shards).for_each(|_| store.add_shard());
        store
    }

    pub(super) fn add_shard(&mut self) {
        let name = format!("work-{}", self.shards.len());
        let queue = Arc::new(MemoryQueue::named(&name));
        self.shards.push((name, queue));
    }

    /// Returns the store over the link of `process`.
    pub(super) fn of(&self, process: &Arc<Process>, hints: bool) -> Result<Store> {
        let link = || Arc::clone(&process.link);
        let far = |(name, queue): &(String, Arc<MemoryQueue>)| {
            let far = FarQueue { name: name.clone(), queue: Arc::clone(queue), link: link(), hints };
            Ok((QueueName::parse(name.as_str())?, Arc::new(far) as Arc<dyn Queue>))
        };
        let mut shards = self.shards.iter().map(far).collect::<Result<Vec<_>>>()?;
        let queue: Arc<dyn Queue> = match shards.pop() {
            Some((_, only)) if shards.is_empty() => only,
            last => {
                shards.extend(last);
                Arc::new(Shards::new(shards)?)
            }
        };
        Ok(self.with(&process.link, Some(process), queue))
    }

    /// Returns the store over the link of a program that cancels jobs.
    pub(super) fn client(&self, link: &Arc<Link>) -> Store {
        self.with(link, None, Arc::clone(&self.calm) as Arc<dyn Queue>)
    }

    /// Returns the store of the calm machine.
    pub(super) fn calm_of(&self, process: &Arc<Process>) -> Store {
        self.with(&process.link, Some(process), self.far_calm(process))
    }

    /// Returns where a worker sends jobs that are interrupted too often.
    pub(super) fn escalation_of(&self, process: &Arc<Process>, after: u32) -> Escalation {
        Escalation { queue: self.far_calm(process), name: CALM.to_owned(), after }
    }

    fn far_calm(&self, process: &Arc<Process>) -> Arc<dyn Queue> {
        let (queue, link) = (Arc::clone(&self.calm), Arc::clone(&process.link));
        Arc::new(FarQueue { name: CALM.to_owned(), queue, link, hints: false })
    }

    fn with(&self, link: &Arc<Link>, process: Option<&Arc<Process>>, queue: Arc<dyn Queue>) -> Store {
        let link = || Arc::clone(link);
        Store {
            queue,
            records: Arc::new(FarRecords { records: Arc::clone(&self.records), link: link() }),
            blobs: Arc::new(FarBlobs {
                blobs: Arc::clone(&self.blobs),
                link: link(),
                process: process.map(Arc::clone),
            }),
            roster: Arc::new(FarRoster { roster: Arc::clone(&self.roster), link: link() }),
        }
    }

    /// Returns all queues; the calm machine's is the last.
    pub(super) fn queues(&self) -> Vec<Arc<MemoryQueue>> {
        let shards = self.shards.iter().map(|(_, queue)| queue);
        shards.chain([&self.calm]).map(Arc::clone).collect()
    }

    /// Sends a message to a queue.
    pub(super) async fn send(&self, queue: &MemoryQueue, body: Vec<u8>) -> Result<MessageId> {
        let sent = queue.send(vec![NewMessage { body, delay: Duration::ZERO }]).await?;
        Ok(sent.into_iter().next().unwrap_or_else(|| MessageId::new("")))
    }

    /// Returns the number of messages, without the poison queue.
    pub(super) async fn messages(&self) -> Result<u64> {
        let mut messages = 0;
        for queue in self.queues() {
            messages += queue.depth().await?.total;
        }
        Ok(messages)
    }

    /// Whether the job's record says that it was cancelled.
    pub(super) async fn is_cancelled(&self, job: &JobId) -> Result<bool> {
        let stored = self.records.load(job).await?;
        Ok(stored.is_some_and(|it| open(&it.bytes).is_ok_and(|it| it.status == Status::Cancelled)))
    }

    /// Returns the store's contents.
    pub(super) async fn look(&self) -> Result<FinalStore> {
        let mut found = FinalStore { messages: self.messages().await?, ..FinalStore::default() };
        for queue in self.queues() {
            for letter in queue.dead_letters(ALL).await? {
                let reason = letter.reason.unwrap_or_default();
                found.letters.push(Letter { message: letter.id, reason });
            }
        }
        let mut payloads: BTreeSet<_> = self.records.payloads().into_iter().collect();
        let records = Page::all(|at| async move { self.records.page("", at.as_deref()).await });
        let of_jobs = records.await?.into_iter().filter(|listed| !is_entry(&listed.job));
        for ListedRecord { job, .. } in of_jobs {
            let Some(stored) = self.records.load(&job).await? else { continue };
            let Ok(record) = open(&stored.bytes) else { continue };
            let named = named_payloads(&*self.records, &record).await?;
            for payload in named.into_iter().flatten() {
                if !payloads.remove(&(job.clone(), payload.clone())) {
                    found.missing.push(format!("{job}: {payload}"));
                }
            }
            found.records.insert(number(&job), record);
        }
        for (job, payload) in payloads {
            // A part of an attachment is stored ahead of its record. If its owner died between, it
            // stays until retention removes it.
            let bytes = self.records.payload(&job, &payload).await?.unwrap_or_default();
            if bytes.len() > INLINE_BYTES_MAX {
                found.unnamed.push(format!("{job}: {payload}"));
            }
        }
        for name in self.blobs.list("results/").await? {
            let bytes = self.blobs.get(&name).await?.unwrap_or_default();
            found.results.insert(number_in(&name), bytes);
        }
        found.outputs = self.blobs.list("out/").await?.iter().map(number_in).collect();
        Ok(found)
    }
}
