//! Redrive: dead-lettered jobs are sent again, and go on from their last checkpoint.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::sleep;

use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, MessageId};
use crate::ports::{Delivery, NewMessage, Receipt, Store};
use crate::record::{Record, Status, Unreadable, open};

/// For how long dead letters are held meanwhile. Those that are not redriven are shown again before.
const LEASE: Duration = Duration::from_mins(2);

/// How many dead letters are received at once: the most that a Storage queue gives.
/// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
const BATCH: usize = 32;

/// How often the poison queue is looked at before letters count as held: a Storage queue's count is approximate, and a
/// letter that a worker is writing shows in a moment.
const LOOKS: u32 = 3;

/// How long between two of these looks.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Which dead-lettered jobs to redrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redrive {
    /// All of them.
    All,
    /// One job; all its letters, if it has several.
    Job(JobId),
}

/// What was redriven, and what was not.
#[derive(Debug, Default, serde::Serialize)]
pub struct Redriven {
    /// The jobs that were sent again, oldest letter first.
    pub jobs: Vec<JobId>,
    /// Messages of the poison queue that are no job that can be read; they stay there.
    pub unreadable: u64,
    /// Letters in the poison queue that could not be received, because another redrive holds them, for
    /// [`RETRY_AFTER`](Self::RETRY_AFTER) at most. `None` where the queue does not count them, and after a failure that
    /// ended the redrive.
    pub held: Option<u64>,
    /// What failed. The letters of these jobs stay in the poison queue.
    pub failures: Vec<RedriveFailure>,
}

impl Redriven {
    /// The longest time for which a redrive holds the letters that it received, also when its process dies.
    pub const RETRY_AFTER: Duration = LEASE;
}

/// A failure of a redrive.
#[derive(Debug, serde::Serialize)]
pub struct RedriveFailure {
    /// The job that was not redriven, or whose letter was not removed; `None` when the poison queue could not be read.
    pub job: Option<JobId>,
    /// Why.
    #[serde(serialize_with = "as_text")]
    pub error: Error,
}

fn as_text<S: serde::Serializer>(error: &Error, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(error)
}

impl Store {
    /// Sends dead-lettered jobs again, each under the next generation: it keeps its checkpoint and its history, and begins
    /// with a clear account, so with all its attempts. Each letter is removed after its job was sent.
    ///
    /// A letter that any other tool sends again is redriven as well, because a letter carries its next generation.
    ///
    /// A job whose record is damaged is sent as well, and begins again. A job whose record has a newer format stays in the
    /// poison queue, and is one of the [failures](Redriven::failures).
    ///
    /// # Errors
    /// The store's own, when no letter could be received. A later failure of the store ends the redrive and is the last of
    /// the [failures](Redriven::failures): what was redriven before stays so.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a job sent and its letter in the poison queue: redriven again it is the same job, and
    /// runs once. Letters that were held show again within two minutes.
    pub async fn redrive(&self, which: &Redrive) -> Result<Redriven> {
        let mut pass = Pass {
            store: self,
            which,
            seen: BTreeSet::new(),
            left: Vec::new(),
            redriven: Redriven::default(),
        };
        // What broke it off is among the failures.
        let _ended = pass.run().await;
        for (_, receipt) in pass.left {
            if let Err(error) = self.queue.return_letter(&receipt).await {
                tracing::warn!(%error, "a dead letter is not shown again at once; its lease ends within two minutes");
            }
        }
        let mut redriven = pass.redriven;
        match redriven.failures.pop() {
            Some(failure) if pass.seen.is_empty() => return Err(failure.error),
            failure => redriven.failures.extend(failure),
        }
        Ok(redriven)
    }

    /// The record of a job; `None` when it has none.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) or [`Incompatible`](ErrorKind::Incompatible) when it can't be read, and the store's
    /// own.
    pub async fn record(&self, job: &JobId) -> Result<Option<Record>> {
        let Some(stored) = self.records.load(job).await? else { return Ok(None) };
        open(&stored.bytes).map(Some).map_err(|unreadable| {
            let kind = match unreadable {
                Unreadable::Damaged(_) => ErrorKind::Corrupt,
                Unreadable::NewerFormat(_) => ErrorKind::Incompatible,
            };
            Error::new(kind, "read a record", format!("job {job}: {unreadable}"))
        })
    }
}

/// One pass over the poison queue.
struct Pass<'a> {
    store: &'a Store,
    which: &'a Redrive,
    /// Every letter that was received.
    seen: BTreeSet<MessageId>,
    /// Those that stay, with their newest receipts.
    left: Vec<(MessageId, Receipt)>,
    redriven: Redriven,
}

impl Pass<'_> {
    /// Redrives what can be received, and counts the letters that can't.
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

    /// Receives letters until there is none that was not seen before, and redrives those that are to be.
    async fn receive_all(&mut self) -> ControlFlow<()> {
        loop {
            let letters = match self.store.queue.receive_letters(BATCH, LEASE).await {
                Ok(letters) => letters,
                Err(error) => return self.fail(None, error),
            };
            let (mut has_new, mut flow) = (false, ControlFlow::Continue(()));
            for letter in letters {
                // One that is seen again had its lease end before all others were looked at.
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

    /// Redrives one letter, or leaves it. Breaks off when the store fails.
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
        if let Err(error) = self.send_again(&envelope, &letter.body).await {
            self.leave(letter);
            return self.fail(Some(envelope.job), error);
        }
        if !self.redriven.jobs.contains(&envelope.job) {
            self.redriven.jobs.push(envelope.job.clone());
        }
        match self.store.queue.remove_letter(&letter.receipt).await {
            Ok(()) => ControlFlow::Continue(()),
            // It shows again, and is the same job if it is redriven once more.
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

    /// Notes a failure. One that is the job's own keeps no other letter back.
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

    async fn send_again(&self, envelope: &Envelope, as_it_came: &[u8]) -> Result<()> {
        let job = &envelope.job;
        let record = match self.store.records.load(job).await?.map(|stored| open(&stored.bytes)) {
            None => None,
            Some(Ok(record)) => Some(record),
            // Its worker begins the job again, under the generation of the message.
            Some(Err(damage @ Unreadable::Damaged(_))) => {
                tracing::warn!(%job, %damage, "the record of a redriven job can't be read; the job begins again");
                None
            }
            Some(Err(newer @ Unreadable::NewerFormat(_))) => {
                let message = format!("{newer}; redrive it with a newer version");
                return Err(Error::new(ErrorKind::Incompatible, "read a record", message));
            }
        };
        // A letter says its next generation; one that another tool put there may say less than the record.
        let next = match &record {
            Some(Record { generation, status: Status::DeadLettered { .. }, .. }) => {
                generation.saturating_add(1)
            }
            _ => 0,
        };
        let own = envelope.notes.generation;
        match self.send(envelope.to_copy(own.max(next))).await {
            // The worker claims a message of the record's generation that was sent after the dead letter: at its first save
            // if the generation is 0, since such a message's first delivery reads no record. It deletes one of an older
            // generation.
            Err(error) if error.kind() == ErrorKind::TooLarge && next <= own.saturating_add(1) => {
                self.send(as_it_came.to_vec()).await?;
            }
            sent => sent?,
        }
        tracing::info!(%job, "redriven");
        Ok(())
    }

    async fn send(&self, body: Vec<u8>) -> Result<()> {
        self.store.queue.send(vec![NewMessage { body, delay: Duration::ZERO }]).await.map(drop)
    }
}

/// The job in a letter; `None` when there is none that can be read.
fn job_of(letter: &Delivery) -> Option<Envelope> {
    if letter.unreadable.is_some() {
        return None;
    }
    Envelope::read(&letter.body, &letter.id, None).ok()
}
