//! Redrive: dead-lettered jobs are sent again, and go on from their last checkpoint.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{JobId, MessageId};
use crate::ports::{Delivery, NewMessage, Receipt, Store};
use crate::record::{Record, Status, open};

/// For how long dead letters are held meanwhile. Those that are not redriven are shown again before.
const LEASE: Duration = Duration::from_mins(2);

/// How many dead letters are received at once: the most that a Storage queue gives.
/// <https://learn.microsoft.com/rest/api/storageservices/get-messages>
const BATCH: usize = 32;

/// Which dead-lettered jobs to redrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redrive {
    /// All of them.
    All,
    /// One job; all its letters, if it has several.
    Job(JobId),
}

/// What was redriven.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Redriven {
    /// The jobs, oldest letter first.
    pub jobs: Vec<JobId>,
    /// Messages of the poison queue that are no job that can be read; they stay there.
    pub unreadable: u64,
}

impl Store {
    /// Sends dead-lettered jobs again, each under the next generation: it keeps its checkpoint and its history, and begins
    /// with a clear account, so with all its attempts. Each letter is removed after its job was sent.
    ///
    /// A letter that any other tool sends again is redriven as well, because a letter carries its next generation.
    ///
    /// # Errors
    /// The store's own. What was redriven before stays so, and the other letters stay in the poison queue.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a job sent and its letter in the poison queue: redriven again it is the same job, and
    /// runs once. Letters that were held show again within two minutes.
    pub async fn redrive(&self, which: &Redrive) -> Result<Redriven> {
        let (mut redriven, mut others) = (Redriven::default(), Vec::new());
        let done = self.redrive_all(which, &mut redriven, &mut others).await;
        for receipt in others {
            if let Err(error) = self.queue.return_letter(&receipt).await {
                tracing::warn!(%error, "a dead letter is not shown again at once; its lease ends within two minutes");
            }
        }
        done.map(|()| redriven)
    }

    async fn redrive_all(
        &self,
        which: &Redrive,
        redriven: &mut Redriven,
        others: &mut Vec<Receipt>,
    ) -> Result<()> {
        let mut seen: BTreeSet<MessageId> = BTreeSet::new();
        loop {
            let letters = self.queue.receive_letters(BATCH, LEASE).await?;
            if letters.is_empty() {
                return Ok(());
            }
            for letter in letters {
                if !seen.insert(letter.id.clone()) {
                    // Its lease ended before all others were looked at.
                    others.push(letter.receipt);
                    return Ok(());
                }
                let Some(envelope) = job_of(&letter) else {
                    redriven.unreadable += 1;
                    others.push(letter.receipt);
                    continue;
                };
                match which {
                    Redrive::Job(job) if *job != envelope.job => others.push(letter.receipt),
                    Redrive::Job(_) | Redrive::All => {
                        if let Err(error) = self.send_again(&envelope, &letter.receipt).await {
                            others.push(letter.receipt);
                            return Err(error);
                        }
                        if !redriven.jobs.contains(&envelope.job) {
                            redriven.jobs.push(envelope.job);
                        }
                    }
                }
            }
        }
    }

    async fn send_again(&self, envelope: &Envelope, letter: &Receipt) -> Result<()> {
        let record = self.record(&envelope.job).await?;
        // A letter says its next generation; one that another tool put there may say less than the record.
        let next = match &record {
            Some(Record { generation, status: Status::DeadLettered { .. }, .. }) => {
                generation.saturating_add(1)
            }
            _ => 0,
        };
        let body = envelope.to_copy(envelope.notes.generation.max(next));
        self.queue.send(vec![NewMessage { body, delay: Duration::ZERO }]).await?;
        tracing::info!(job = %envelope.job, "redriven");
        match self.queue.remove_letter(letter).await {
            // It shows again, and is the same job if it is redriven once more.
            Err(error) if error.kind() == ErrorKind::LeaseLost => Ok(()),
            removed => removed,
        }
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
                crate::record::Unreadable::Damaged(_) => ErrorKind::Corrupt,
                crate::record::Unreadable::NewerFormat(_) => ErrorKind::Incompatible,
            };
            Error::new(kind, "read a record", format!("job {job}: {unreadable}"))
        })
    }
}

/// The job in a letter; `None` when there is none that can be read.
fn job_of(letter: &Delivery) -> Option<Envelope> {
    if letter.unreadable.is_some() {
        return None;
    }
    Envelope::read(&letter.body, &letter.id, None).ok()
}
