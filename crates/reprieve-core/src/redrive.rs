//! Redrive: sends dead-lettered jobs again, which continue from their last checkpoint.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::sleep;

use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::hash::ContentHash;
use crate::ids::{JobId, MessageId};
use crate::ports::{Delivery, NewMessage, Receipt, RecordWrite, Store, Version};
use crate::record::{Record, Status, Unreadable, open};

/// How long a redrive leases the dead letters that it receives. It returns those that it does not
/// redrive earlier than that.
const LEASE: Duration = Duration::from_mins(2);

/// How many dead letters are received at once: the most that a Storage queue returns.
/// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
const BATCH: usize = 32;

/// How often the depth of the poison queue is read before dead letters count as held. A Storage
/// queue's count is approximate, and a dead letter that a worker is writing becomes visible within
/// a moment.
const LOOKS: u32 = 3;

/// The time between two of these reads.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Which dead-lettered jobs to redrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redrive {
    /// All of them.
    All,
    /// One job, with all its dead letters if it has several.
    Job(JobId),
}

/// The result of a redrive.
#[derive(Debug, Default, serde::Serialize)]
pub struct Redriven {
    /// The jobs that were sent again, oldest dead letter first.
    pub jobs: Vec<JobId>,
    /// Messages of the poison queue that contain no readable job; they stay there.
    pub unreadable: u64,
    /// Dead letters in the poison queue that could not be received because another redrive holds
    /// them, for [`RETRY_AFTER`](Self::RETRY_AFTER) at most. `None` where the queue does not count
    /// dead letters, and after a failure that ended the redrive.
    pub held: Option<u64>,
    /// The failures. The dead letters of these jobs stay in the poison queue.
    pub failures: Vec<RedriveFailure>,
}

impl Redriven {
    /// The longest time for which a redrive holds the dead letters that it received, even if its
    /// process dies.
    pub const RETRY_AFTER: Duration = LEASE;
}

/// A failure of a redrive.
#[derive(Debug, serde::Serialize)]
pub struct RedriveFailure {
    /// The job that was not redriven, or of which a dead letter was not removed; `None` when the
    /// poison queue could not be read.
    pub job: Option<JobId>,
    /// Why.
    #[serde(serialize_with = "as_text")]
    pub error: Error,
}

fn as_text<S: serde::Serializer>(error: &Error, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(error)
}

impl Store {
    /// Sends dead-lettered jobs again, each under the next generation. A job keeps its checkpoints
    /// and its history, and starts with a cleared account, that is with all its attempts. Each dead
    /// letter is removed after its job was sent.
    ///
    /// A dead letter carries its next generation, so a dead letter that another tool sends again is
    /// redriven as well.
    ///
    /// A job with a damaged record is sent too, and begins again. A job with a record in a newer
    /// format stays in the poison queue, and is one of the [failures](Redriven::failures).
    ///
    /// # Errors
    /// The store's errors, when no dead letter could be received. A later failure of the store ends
    /// the redrive and is the last of the [failures](Redriven::failures); jobs redriven before it
    /// stay redriven.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a job sent and its dead letter in the poison queue. If that
    /// dead letter is redriven again, it is the same job, and runs once. Dead letters that the
    /// redrive held become visible within two minutes.
    pub async fn redrive(&self, which: &Redrive) -> Result<Redriven> {
        let mut pass = Pass {
            store: self,
            which,
            seen: BTreeSet::new(),
            left: Vec::new(),
            redriven: Redriven::default(),
            sent: HashMap::new(),
            bodies: HashSet::new(),
        };
        // The reason for an early end is among the failures.
        let _ended = pass.run().await;
        for (_, receipt) in pass.left {
            if let Err(error) = self.queue.return_letter(&receipt).await {
                tracing::warn!(%error, "failed to release a dead letter; it becomes visible within two minutes");
            }
        }
        let mut redriven = pass.redriven;
        match redriven.failures.pop() {
            Some(failure) if pass.seen.is_empty() => return Err(failure.error),
            failure => redriven.failures.extend(failure),
        }
        Ok(redriven)
    }

    /// Returns the record of a job; `None` when it has none.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) or [`Incompatible`](ErrorKind::Incompatible) when the record
    /// can't be read, and the store's errors.
    pub async fn record(&self, job: &JobId) -> Result<Option<Record>> {
        Ok(self.versioned_record(job).await?.map(|(record, _)| record))
    }

    /// Returns the record of a job with its version; `None` when it has none.
    pub(crate) async fn versioned_record(&self, job: &JobId) -> Result<Option<(Record, Version)>> {
        let Some(stored) = self.records.load(job).await? else { return Ok(None) };
        let record = open(&stored.bytes).map_err(|unreadable| {
            let kind = match unreadable {
                Unreadable::Damaged(_) => ErrorKind::Corrupt,
                Unreadable::NewerFormat(_) => ErrorKind::Incompatible,
            };
            Error::new(kind, "read a record", format!("job {job}: {unreadable}"))
        })?;
        Ok(Some((record, stored.version)))
    }
}

/// A message that was sent.
struct Sent {
    generation: u32,
    body: ContentHash,
}

/// One pass over the poison queue.
struct Pass<'a> {
    store: &'a Store,
    which: &'a Redrive,
    /// Every dead letter that was received.
    seen: BTreeSet<MessageId>,
    /// The dead letters that stay, with their newest receipts.
    left: Vec<(MessageId, Receipt)>,
    redriven: Redriven,
    /// The generations under which jobs were sent.
    sent: HashMap<JobId, u32>,
    /// The bodies that were sent.
    bodies: HashSet<ContentHash>,
}

impl Pass<'_> {
    /// Redrives the dead letters that can be received, and counts those that can't.
    async fn run(&mut self) -> ControlFlow<()> {
        for look in 1..=LOOKS {
            self.receive_all().await?;
            let depth = match self.store.queue.depth().await {
                Ok(depth) => depth,
                Err(error) => return self.fail(None, error),
            };
            let own = self.left.len() as u64;
            let held = depth.poisoned.map(|poisoned| poisoned.saturating_sub(own));
            if look == LOOKS || held.unwrap_or(0) == 0 {
                self.redriven.held = held;
                break;
            }
            sleep(BETWEEN_LOOKS).await;
        }
        ControlFlow::Continue(())
    }

    /// Receives dead letters until a batch contains no new one, and redrives those that were asked
    /// for.
    async fn receive_all(&mut self) -> ControlFlow<()> {
        loop {
            let letters = match self.store.queue.receive_letters(BATCH, LEASE).await {
                Ok(letters) => letters,
                Err(error) => return self.fail(None, error),
            };
            let (mut has_new, mut flow) = (false, ControlFlow::Continue(()));
            for letter in letters {
                // A dead letter that is received twice: its lease ended before the pass had
                // received all others.
                let is_new = self.seen.insert(letter.id.clone());
                has_new |= is_new;
                if is_new && flow.is_continue() {
                    flow = self.take(letter).await;
                } else {
                    self.leave(letter);
                }
            }
            flow?;
            if !has_new {
                return ControlFlow::Continue(());
            }
        }
    }

    /// Redrives one dead letter, or leaves it. Breaks when the store fails.
    async fn take(&mut self, letter: Delivery) -> ControlFlow<()> {
        let Some(envelope) = job_of(&letter) else {
            self.redriven.unreadable += 1;
            self.leave(letter);
            return ControlFlow::Continue(());
        };
        if matches!(self.which, Redrive::Job(job) if *job != envelope.job) {
            self.leave(letter);
            return ControlFlow::Continue(());
        }
        let is_later = |sent: &u32| envelope.notes.generation > *sent;
        if self.sent.get(&envelope.job).is_some_and(is_later)
            || self.bodies.contains(&ContentHash::of(&letter.body))
        {
            // It was sent again in this pass, and has failed again. A worker raises the generation in the dead
            // letter, unless the message is another job's or the letter would be too large.
            self.leave(letter);
            return ControlFlow::Continue(());
        }
        match self.send_again(&envelope, &letter.body).await {
            Ok(Sent { generation, body }) => {
                self.sent.insert(envelope.job.clone(), generation);
                self.bodies.insert(body);
            }
            Err(error) => {
                self.leave(letter);
                return self.fail(Some(envelope.job), error);
            }
        }
        if !self.redriven.jobs.contains(&envelope.job) {
            self.redriven.jobs.push(envelope.job.clone());
        }
        match self.store.queue.remove_letter(&letter.receipt).await {
            Ok(()) => ControlFlow::Continue(()),
            // The dead letter becomes visible again. If it is redriven once more, it is the same
            // job.
            Err(error) if error.kind() == ErrorKind::LeaseLost => ControlFlow::Continue(()),
            Err(error) => {
                self.leave(letter);
                self.fail(Some(envelope.job), error)
            }
        }
    }

    fn leave(&mut self, letter: Delivery) {
        self.left.retain(|(id, _)| *id != letter.id);
        self.left.push((letter.id, letter.receipt));
    }

    /// Records a failure. An error of one job does not stop the redrive of the other dead letters.
    fn fail(&mut self, job: Option<JobId>, error: Error) -> ControlFlow<()> {
        let kind = error.kind();
        self.redriven.failures.push(RedriveFailure { job, error });
        match kind {
            ErrorKind::Incompatible | ErrorKind::Corrupt | ErrorKind::TooLarge | ErrorKind::Invalid => {
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(()),
        }
    }

    async fn send_again(&self, envelope: &Envelope, as_it_came: &[u8]) -> Result<Sent> {
        let job = &envelope.job;
        let found = self.store.records.load(job).await?.map(|stored| (open(&stored.bytes), stored.version));
        let failed = match found {
            None => None,
            Some((Ok(record), version)) => {
                matches!(record.status, Status::DeadLettered { .. }).then_some((record, version))
            }
            // The worker begins the job again, under the generation of the message.
            Some((Err(damage @ Unreadable::Damaged(_)), _)) => {
                tracing::warn!(%job, %damage, "the record of a redriven job can't be read; the job begins again");
                None
            }
            Some((Err(newer @ Unreadable::NewerFormat(_)), _)) => {
                let message = format!("{newer}; redrive it with a newer version");
                return Err(Error::new(ErrorKind::Incompatible, "read a record", message));
            }
        };
        // A dead letter carries its next generation, but one that another tool put there may carry
        // less than the record.
        let next = failed.as_ref().map_or(0, |(record, _)| record.generation.saturating_add(1));
        let own = envelope.notes.generation;
        let generation = own.max(next);
        if failed.is_some() {
            // It failed before it could be cancelled.
            self.store.forget_cancel(job).await?;
        }
        let copy = envelope.to_copy(generation);
        let mut body = ContentHash::of(&copy);
        match self.send(copy).await {
            Ok(()) => {
                if let Some((record, version)) = failed {
                    self.note_sent(record, &version, generation).await;
                }
            }
            // The body with a raised generation is too large, so the dead letter is sent as it is.
            // The worker claims a message of the record's generation that was sent after the dead
            // letter, but deletes one of an older generation. If the generation is 0, the claim
            // comes only at the first save, since a first delivery of generation 0 reads no record.
            Err(error) if error.kind() == ErrorKind::TooLarge && next <= own.saturating_add(1) => {
                body = ContentHash::of(as_it_came);
                self.send(as_it_came.to_vec()).await?;
            }
            Err(error) => return Err(error),
        }
        tracing::info!(%job, "redriven");
        Ok(Sent { generation, body })
    }

    /// Records that the job waits again. After its message: a job that has none would wait for ever. Without
    /// the record, it counts as failed until a worker begins it.
    async fn note_sent(&self, mut record: Record, version: &Version, generation: u32) {
        record.enqueue_again(generation);
        let written =
            self.store.records.put(&record.job, Some(version), RecordWrite::of(&record, None)).await;
        if let Err(error) = written {
            tracing::debug!(job = %record.job, %error, "failed to record that a job was sent again");
        }
    }

    async fn send(&self, body: Vec<u8>) -> Result<()> {
        self.store.queue.send(vec![NewMessage { body, delay: Duration::ZERO }]).await.map(drop)
    }
}

/// The job in a dead letter; `None` when the dead letter can't be read.
fn job_of(letter: &Delivery) -> Option<Envelope> {
    if letter.unreadable.is_some() {
        return None;
    }
    Envelope::read(&letter.body, &letter.id, None).ok()
}
