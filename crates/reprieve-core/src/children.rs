//! Jobs that a job enqueues, and its look at how they ended.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;

use crate::context::JobContext;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::JobId;
use crate::job_end::JobEnd;
use crate::producer::{NewJob, Producer, hash_args};

const OPERATION: &str = "enqueue jobs";

/// What the ids of a job's children depend on besides their own kinds and arguments, so that a step that is
/// run again, at another pace and with saves at other times, enqueues the same ones.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// When the job was enqueued, if it has an id of its producer's own: an earlier job may have had it.
    since_unix_ms: AtomicI64,
    /// How often the job has waited at its own request. It is saved with the state.
    waits: AtomicU64,
    /// The ids that this delivery has given to children since the job waited last.
    given: Mutex<HashSet<JobId>>,
}

impl Children {
    /// Notes when the job was enqueued.
    pub(crate) fn note_since(&self, since_unix_ms: i64) {
        self.since_unix_ms.store(since_unix_ms, Relaxed);
    }

    /// How often the job has waited.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// Begins at a saved state: what was enqueued since is enqueued again, under the same ids.
    pub(crate) fn resume_at(&self, waits: u64) {
        self.waits.store(waits, Relaxed);
        self.given().clear();
    }

    /// The job waits.
    pub(crate) fn note_wait(&self) {
        self.resume_at(self.waits() + 1);
    }

    fn given(&self) -> MutexGuard<'_, HashSet<JobId>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an id to each job without one.
    fn name(&self, parent: &JobId, jobs: &mut [NewJob]) -> Result<Given<'_>> {
        let (since, waits) = (self.since_unix_ms.load(Relaxed), self.waits());
        let (mut seen, mut ids) = (HashMap::<_, u32>::new(), Vec::new());
        for job in jobs.iter_mut().filter(|job| job.id.is_none()) {
            let hash = hash_args(&job.args)?;
            let count = seen.entry((job.kind.clone(), hash)).or_default();
            let id = JobId::of_child(parent, &format!("{since} {waits} {hash} {count} {}", job.kind));
            *count += 1;
            ids.push(id.clone());
            job.id = Some(id);
        }
        let mut given = self.given();
        if let Some(id) = ids.iter().find(|id| given.contains(*id)) {
            let same = jobs.iter().find(|job| job.id.as_ref() == Some(id));
            let kind = same.map_or("", |job| job.kind.as_str());
            let message = format!(
                "this job has enqueued a job of kind {kind:?} with the same arguments before; enqueue both in one call, \
                 or give them ids of their own, so that they are known when the step is run again"
            );
            return Err(Error::new(ErrorKind::Invalid, OPERATION, message));
        }
        given.extend(ids.iter().cloned());
        drop(given);
        Ok(Given { children: self, ids })
    }
}

/// Ids that children have until this is dropped, or for good if they are enqueued.
struct Given<'a> {
    children: &'a Children,
    ids: Vec<JobId>,
}

impl Given<'_> {
    fn keep(mut self) {
        self.ids.clear();
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        let mut given = self.children.given();
        self.ids.iter().for_each(|id| {
            given.remove(id);
        });
    }
}

impl JobContext {
    /// Enqueues jobs into this job's own queue, and returns their ids in the same order. While the store
    /// does not answer, this waits as [`input`](Self::input) does. If the message of this job has a
    /// `traceparent`, those of the children get it, too.
    ///
    /// A step that is run again, after a crash or an eviction, enqueues the same jobs, however many fit into a
    /// step or between two saves then: each has an id of its own ([`NewJob::with_id`]), and one without gets
    /// an id from this job, from how often this job has waited by [`Step::Wait`](crate::Step::Wait), and from
    /// its own kind and arguments. So the order does not matter; arguments that differ when the step is run
    /// again, such as the present time, make other jobs. Jobs that were enqueued before are not run a second
    /// time. Equal jobs in one call are jobs of their own. Those of two calls need ids of their own, unless the
    /// job waits in between.
    ///
    /// To wait for them, return [`Step::Wait`](crate::Step::Wait) and look at
    /// [`results`](Self::results) in the next step: a job that waits needs no slot, so parents can't
    /// keep their children from running.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a job without an id that equals one of an earlier call. Those of
    /// [`Producer::enqueue`]; a temporary one only when the job should yield.
    /// [`Superseded`](ErrorKind::Superseded) when the job has a newer owner: return the error.
    ///
    /// # Cancel safety
    /// A dropped call may have enqueued some of the jobs; the same call enqueues the others.
    pub async fn enqueue(&self, mut jobs: Vec<NewJob>) -> Result<Vec<JobId>> {
        let given = self.run.children.name(&self.run.job, &mut jobs)?;
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

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn named(children: &Children, args: &[u32]) -> Result<Vec<JobId>> {
        let job = |args| NewJob::new("k", to_raw_value(args).unwrap());
        let mut jobs: Vec<_> = args.iter().map(job).collect();
        children.name(&JobId::parse("parent").unwrap(), &mut jobs)?.keep();
        Ok(jobs.into_iter().filter_map(|job| job.id).collect())
    }

    #[test]
    fn what_is_enqueued_again_has_the_same_ids_in_any_order_and_in_any_calls() {
        let children = Children::default();
        let first = named(&children, &[1, 2, 1]).unwrap();
        let second = named(&children, &[3]).unwrap();
        children.note_wait();
        let later = named(&children, &[1]).unwrap();
        let all: HashSet<_> = first.iter().chain(&second).chain(&later).collect();
        assert_eq!(all.len(), 5, "equal children of one call, or after a wait, are jobs of their own");

        let again = Children::default();
        assert_eq!(named(&again, &[3, 2]).unwrap(), [second[0].clone(), first[1].clone()]);
        assert_eq!(named(&again, &[1, 1]).unwrap(), [first[0].clone(), first[2].clone()]);
        again.resume_at(0);
        assert_eq!(named(&again, &[1, 2, 1]).unwrap(), first);
        again.resume_at(1);
        assert_eq!(named(&again, &[1]).unwrap(), later);
    }

    #[test]
    fn an_equal_child_of_another_call_is_refused_unless_that_one_failed() {
        let children = Children::default();
        let mut jobs = [NewJob::new("k", to_raw_value(&1).unwrap())];
        drop(children.name(&JobId::parse("parent").unwrap(), &mut jobs).unwrap());
        named(&children, &[1]).unwrap();
        let error = named(&children, &[2, 1]).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.message().contains("ids of their own"),
            "{error}"
        );
        named(&children, &[2]).unwrap();
    }
}
