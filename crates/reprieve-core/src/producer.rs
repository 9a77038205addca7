//! Enqueueing jobs.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::codec;
use crate::envelope::{Data, Envelope, INLINE_ARGS_BYTES_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, JobId};
use crate::job::Job;
use crate::names::{args_blob, check_own};
use crate::ports::LEASE_MAX;
use crate::ports::{NewMessage, Store};

/// A job to be enqueued, by the name of its kind.
#[derive(Debug)]
pub struct NewJob {
    /// The kind.
    pub kind: String,
    /// The arguments.
    pub args: Box<RawValue>,
    /// How long the message stays invisible; zero for none.
    pub delay: Duration,
}

impl NewJob {
    /// A job of type `J`, to be run as soon as possible.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when the arguments have no JSON form, such as NaN.
    pub fn of<J: Job>(args: &J::Args) -> Result<Self>
    where
        J::Args: serde::Serialize,
    {
        let invalid = |why| Error::new(ErrorKind::Invalid, "enqueue a job", format!("the arguments: {why}"));
        let args = codec::encode_json(args).map_err(invalid)?;
        Ok(Self { kind: J::KIND.to_owned(), args, delay: Duration::ZERO })
    }
}

/// Enqueues jobs.
#[derive(Debug, Clone)]
pub struct Producer {
    store: Store,
}

impl Producer {
    /// A producer for the store's queue.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Enqueues jobs and returns their ids in the same order.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when a delay is over seven days, the longest that a Storage
    /// queue allows. The store's errors; where the store sends all messages or none, no job is
    /// enqueued then.
    ///
    /// # Cancel safety
    /// Dropping the future may or may not enqueue the jobs.
    pub async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<JobId>> {
        let mut ids = Vec::with_capacity(jobs.len());
        let mut messages = Vec::with_capacity(jobs.len());
        for job in jobs {
            if job.delay > LEASE_MAX {
                let message = format!("a delay of {:?} is over seven days; enqueue the job later", job.delay);
                return Err(Error::new(ErrorKind::Invalid, "enqueue a job", message));
            }
            let id = JobId::unique();
            let data = self.place(&id, job.args).await?;
            messages.push(NewMessage {
                body: Envelope::new(id.clone(), &job.kind, data).to_body(),
                delay: job.delay,
            });
            ids.push(id);
        }
        self.store.queue.send(messages).await?;
        Ok(ids)
    }

    /// Stores an input blob for jobs to read.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a bad name, also one that begins with `results/`,
    /// `args/`, `drains/` or `ready/`, and `cleaning.json`; the store's own.
    pub async fn put_input(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let name = BlobName::parse(name)?;
        check_own("write an input", &name)?;
        self.store.blobs.put(&name, bytes, None).await
    }

    /// Stores long arguments in a blob, before the message that names it exists.
    async fn place(&self, job: &JobId, args: Box<RawValue>) -> Result<Data> {
        if args.get().len() <= INLINE_ARGS_BYTES_MAX {
            return Ok(Data::Inline(args));
        }
        let name = args_blob(job)?;
        self.store.blobs.put(&name, args.get().as_bytes().to_vec(), None).await?;
        Ok(Data::Blob(name))
    }
}
