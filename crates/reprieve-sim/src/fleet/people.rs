//! The operators of a world: they send jobs and redrive dead letters.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rand::Rng;
use reprieve_core::envelope::{Data, Envelope};
use reprieve_core::memory::MemoryQueue;
use reprieve_core::ports::{BlobStore, Queue};
use reprieve_core::{BlobName, Cancel, Error, ErrorKind, JobId, Result};
use serde_json::value::to_raw_value;
use tokio::time::{sleep, timeout};

use super::history::What;
use super::jobs::KINDS;
use super::link::Link;
use super::plan::{Nature, Trouble};
use super::queue::named;
use super::world::World;

/// How long a program that cancels a job waits before it tries again.
const AGAIN: Duration = Duration::from_secs(1);

/// Longer than any world lasts.
const FOREVER: Duration = Duration::from_hours(1_000);

/// The lease of a dead letter while it is redriven.
const LETTER_LEASE: Duration = Duration::from_mins(1);

/// The most dead letters that are received at once.
const LETTERS: usize = 100;

impl World<'_> {
    /// Sends the job's message, with the same body each time.
    pub(super) async fn send(&mut self, job: usize) -> Result<()> {
        let plan = &self.plan.jobs[job];
        let no_json = |error| Error::new(ErrorKind::Internal, "send a job", "no JSON").with_source(error);
        let args = to_raw_value(plan).map_err(no_json)?;
        let data = if plan.args_in_blob {
            let name = BlobName::parse(format!("args/{}.json", plan.id()))?;
            if !std::mem::replace(&mut self.prepared[job], true) {
                self.store.blobs.put(&name, args.get().as_bytes().to_vec(), None).await?;
            }
            Data::Blob(name)
        } else {
            Data::Inline(args)
        };
        let body = Envelope::new(JobId::parse(plan.id())?, KINDS[plan.kind], data).to_body();
        self.post(body, None).await
    }

    /// Sends a body to this queue, or to a random shard.
    async fn post(&mut self, body: Vec<u8>, queue: Option<&MemoryQueue>) -> Result<()> {
        let shard = self.dice.random_range(0..self.store.shards.len());
        let (job, generation) = named(&body).unwrap_or((usize::MAX, 0));
        let message = self.store.send(queue.unwrap_or(&self.store.shards[shard].1), body).await?;
        self.history.note(None, What::Sent { job, message, generation });
        Ok(())
    }

    /// Redrives every dead letter.
    pub(super) async fn redrive(&mut self, times: usize, forget: bool) -> Result<()> {
        self.redrive_those(|_| true, times, forget).await
    }

    /// Redrives the dead letters of cured jobs.
    pub(super) async fn redrive_cured(&mut self) -> Result<()> {
        let plan = self.plan;
        let is_curable =
            |job: usize| plan.jobs.get(job).is_some_and(|job| matches!(job.nature, Nature::Curable(_)));
        self.redrive_those(is_curable, 1, false).await
    }

    async fn redrive_those(
        &mut self,
        chosen: impl Fn(usize) -> bool,
        times: usize,
        forget: bool,
    ) -> Result<()> {
        for (number, queue) in self.store.queues().into_iter().enumerate() {
            let calm = (number == self.store.shards.len()).then(|| Arc::clone(&queue));
            for letter in queue.receive_letters(LETTERS, LETTER_LEASE).await? {
                let job = named(&letter.body).map_or(usize::MAX, |(job, _)| job);
                if !chosen(job) {
                    queue.return_letter(&letter.receipt).await?;
                    continue;
                }
                for _ in 0..times {
                    self.post(letter.body.clone(), calm.as_deref()).await?;
                }
                if !forget {
                    queue.remove_letter(&letter.receipt).await?;
                    self.history.note(None, What::LetterRemoved { message: letter.id });
                }
            }
        }
        Ok(())
    }

    /// Sends copies of all dead letters, which stay in the poison queue.
    pub(super) async fn copy_letters(&mut self) -> Result<()> {
        for (number, queue) in self.store.queues().into_iter().enumerate() {
            let calm = (number == self.store.shards.len()).then(|| Arc::clone(&queue));
            for letter in queue.dead_letters(LETTERS).await? {
                self.post(letter.body, calm.as_deref()).await?;
            }
        }
        Ok(())
    }

    /// Starts a program that cancels the job, and tries until it is told that the job is cancelled or over.
    /// `trouble` disturbs its first try.
    pub(super) fn cancel(&mut self, job: usize, trouble: Trouble, dies: Option<Duration>) -> Result<()> {
        let id = JobId::parse(self.plan.jobs[job].id())?;
        let link = Link::new(self.next_process(), self.plan.seed, self.history.clone());
        let (store, cancelling) = (self.store.client(&link), Arc::clone(&self.cancelling));
        link.note(What::CancelAsked { job });
        link.set(trouble);
        cancelling.fetch_add(1, Relaxed);
        tokio::spawn(async move {
            let cancel = async {
                loop {
                    match store.cancel(std::slice::from_ref(&id)).await.as_deref() {
                        Ok([Cancel::Over(_)]) => break,
                        Ok(_) => {
                            link.note(What::Cancelled { job });
                            break;
                        }
                        Err(_) => link.set(Trouble::default()),
                    }
                    sleep(AGAIN).await;
                }
            };
            if timeout(dies.unwrap_or(FOREVER), cancel).await.is_err() {
                link.end();
            }
            cancelling.fetch_sub(1, Relaxed);
        });
        Ok(())
    }

    /// Returns whether every cured job that was sent has its result or output, or was cancelled.
    pub(super) async fn cured_are_done(&self) -> Result<bool> {
        for job in self.plan.jobs.iter().filter(|job| matches!(job.nature, Nature::Curable(_))) {
            let name =
                if job.result { format!("results/{}.json", job.id()) } else { format!("out/{}", job.id()) };
            let is_done = self.store.blobs.exists(&BlobName::parse(name)?).await?;
            if !is_done && !self.store.is_cancelled(&JobId::parse(job.id())?).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
