//! Jobs that a job enqueues, and its look at how they ended.

use serde::de::DeserializeOwned;

use crate::context::JobContext;
use crate::error::Result;
use crate::ids::JobId;
use crate::job_end::JobEnd;
use crate::producer::{NewJob, Producer, hash_args};

const OPERATION: &str = "enqueue jobs";

impl JobContext {
    /// Enqueues jobs into this job's own queue, and returns their ids in the same order. While the store
    /// does not answer, this waits as [`input`](Self::input) does. If the message of this job has a
    /// `traceparent`, those of the children get it, too.
    ///
    /// A step that is run again, after a crash or an eviction, enqueues the same jobs, however many fit into a
    /// step or between two saves then: each has an id of its own ([`NewJob::with_id`]), and one without gets
    /// an id from this job, from how often this job has waited by [`Step::Wait`](crate::Step::Wait) after it had enqueued
    /// some, and from its own kind and arguments. So the order does not matter; arguments that differ when the step is run
    /// again, such as the present time, make other jobs. Jobs that were enqueued before are not run a second
    /// time. Equal jobs in one call are jobs of their own. Those of two calls need ids of their own, unless the
    /// job waits in between.
    ///
    /// To wait for them, return [`Step::Wait`](crate::Step::Wait) and look at
    /// [`results`](Self::results) in the next step: a job that waits needs no slot, so parents can't
    /// keep their children from running.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a job without an id that equals one of an earlier call. Those of
    /// [`Producer::enqueue`]; a temporary one only when the job should yield.
    /// [`Superseded`](crate::ErrorKind::Superseded) when the job has a newer owner: return the error.
    ///
    /// # Cancel safety
    /// A dropped call may have enqueued some of the jobs; the same call enqueues the others.
    pub async fn enqueue(&self, mut jobs: Vec<NewJob>) -> Result<Vec<JobId>> {
        let unnamed = || jobs.iter().filter(|job| job.id.is_none());
        let wanted = unnamed().map(|job| Ok((job.kind.clone(), hash_args(&job.args)?)));
        let given = self.run.children.give(&self.run.job, wanted.collect::<Result<_>>()?)?;
        for (job, id) in jobs.iter_mut().filter(|job| job.id.is_none()).zip(given.ids()) {
            job.id = Some(id.clone());
        }
        let ids = self.outlast(OPERATION, || async {
            self.run.may_write(OPERATION).await?;
            let store = self.run.store(self.is_interrupted()).clone();
            Producer::new(store).with_trace(self.run.trace.clone()).enqueue(jobs.clone()).await
        });
        let ids = ids.await?;
        given.keep();
        Ok(ids)
    }

    /// Returns how each of these jobs ended, with its result, in their order; `None` for one that waits or
    /// runs. `T` is their [`Job::Output`](crate::Job::Output). A look at 10,000 children takes three requests;
    /// see [`Store::ends_of`](crate::ports::Store::ends_of). While the store does not answer, this waits as
    /// [`input`](Self::input) does.
    ///
    /// # Errors
    /// Those of [`Store::ends_of`](crate::ports::Store::ends_of); a temporary one only when the job should
    /// yield.
    ///
    /// # Example: enqueue a job for each page, and add up their results
    /// ```
    /// # use reprieve_core::{Job, JobContext, JobEnd, JobError, JobId, NewJob, Step};
    /// # use std::time::Duration;
    /// # struct Page;
    /// # #[async_trait::async_trait]
    /// # impl Job for Page {
    /// #     const KIND: &'static str = "page";
    /// #     type Args = u32;
    /// #     type Checkpoint = ();
    /// #     type Output = u64;
    /// #     fn begin(&self, _: &u32) {}
    /// #     async fn step(&self, _: &JobContext, _: &u32, (): ()) -> Result<Step<(), u64>, JobError> {
    /// #         Ok(Step::Done(1))
    /// #     }
    /// # }
    /// # struct Book;
    /// # #[async_trait::async_trait]
    /// # impl Job for Book {
    /// #     const KIND: &'static str = "book";
    /// #     type Args = u32;
    /// type Checkpoint = Vec<JobId>;
    /// #     type Output = u64;
    /// #     fn begin(&self, _: &u32) -> Vec<JobId> { vec![] }
    ///
    /// async fn step(&self, cx: &JobContext, pages: &u32, ids: Vec<JobId>) -> Result<Step<Vec<JobId>, u64>, JobError> {
    ///     if ids.is_empty() {
    ///         let jobs = (0..*pages).map(|page| NewJob::of::<Page>(&page)).collect::<Result<_, _>>()?;
    ///         return Ok(Step::Wait(cx.enqueue(jobs).await?, Duration::from_secs(10)));
    ///     }
    ///     let mut sum = 0;
    ///     for end in cx.results::<u64>(&ids).await? {
    ///         match end {
    ///             None => return Ok(Step::Wait(ids, Duration::from_secs(10))),
    ///             Some(JobEnd::Done(words)) => sum += words,
    ///             Some(other) => return Err(JobError::fatal(format!("a page failed: {other:?}"))),
    ///         }
    ///     }
    ///     Ok(Step::Done(sum))
    /// }
    /// # }
    /// ```
    pub async fn results<T: DeserializeOwned>(&self, jobs: &[JobId]) -> Result<Vec<Option<JobEnd<T>>>> {
        self.outlast("read results", || self.run.store.ends_of(jobs)).await
    }
}
