//! Jobs that a job enqueues, and its look at how they ended.

use serde::de::DeserializeOwned;

use crate::context::JobContext;
use crate::error::Result;
use crate::ids::JobId;
use crate::job_end::JobEnd;
use crate::producer::{NewJob, Producer, hash_args};
use crate::turns::Turn;

/// Gives an id to each job without one, the same whenever `parent` enqueues it in this turn.
fn name(parent: &JobId, turn: &mut Turn, jobs: &mut [NewJob]) -> Result<()> {
    for job in jobs.iter_mut().filter(|job| job.id.is_none()) {
        let hash = hash_args(&job.args)?;
        let count = turn.seen.entry((job.kind.clone(), hash)).or_default();
        job.id = Some(JobId::of_child(parent, &format!("{} {hash} {count} {}", turn.number, job.kind)));
        *count += 1;
    }
    Ok(())
}

impl JobContext {
    /// Enqueues jobs into this job's own queue, and returns their ids in the same order. While the store
    /// does not answer, this waits as [`input`](Self::input) does. If the message of this job has a
    /// `traceparent`, those of the children get it, too.
    ///
    /// A step that is run again, after a crash or an eviction, enqueues the same jobs: each has an id of
    /// its own ([`NewJob::with_id`]), and one without gets an id from this job, its step, and its own kind
    /// and arguments. So the order of `jobs` does not matter; arguments that differ when the step is run
    /// again, such as the present time, make other jobs. Jobs that were enqueued before are not run a second
    /// time.
    ///
    /// To wait for them, return [`Step::Wait`](crate::Step::Wait) and look at
    /// [`results`](Self::results) in the next step: a job that waits needs no slot, so parents can't
    /// keep their children from running.
    ///
    /// # Errors
    /// Those of [`Producer::enqueue`]; a temporary one only when the job should yield.
    /// [`Superseded`](crate::ErrorKind::Superseded) when the job has a newer owner: return the error.
    ///
    /// # Cancel safety
    /// A dropped call may have enqueued some of the jobs; the same call enqueues the others.
    pub async fn enqueue(&self, mut jobs: Vec<NewJob>) -> Result<Vec<JobId>> {
        const OPERATION: &str = "enqueue jobs";
        let mut turn = self.run.turns.present();
        name(&self.run.job, &mut turn, &mut jobs)?;
        let ids = self.outlast(OPERATION, || async {
            self.run.may_write(OPERATION).await?;
            let store = self.run.store(self.is_interrupted()).clone();
            Producer::new(store).with_trace(self.run.trace.clone()).enqueue(jobs.clone()).await
        });
        let ids = ids.await?;
        // Only now: a call that failed names the same jobs again.
        self.run.turns.note(turn);
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
    use std::collections::BTreeSet;

    use serde_json::value::to_raw_value;

    use super::*;
    use crate::hash::ContentHash;
    use crate::turns::Turns;

    fn named(turns: &Turns, args: &[u32]) -> Vec<JobId> {
        let job = |args| NewJob::new("k", to_raw_value(args).unwrap());
        let mut jobs: Vec<_> = args.iter().map(job).collect();
        let mut turn = turns.present();
        name(&JobId::parse("parent").unwrap(), &mut turn, &mut jobs).unwrap();
        turns.note(turn);
        jobs.into_iter().filter_map(|job| job.id).collect()
    }

    #[test]
    fn a_turn_that_is_run_again_names_the_same_children_in_any_order() {
        let turns = Turns::default();
        let first = named(&turns, &[1, 2, 1]);
        let second = named(&turns, &[1]);
        turns.next();
        let next = named(&turns, &[1]);
        let all: BTreeSet<_> = first.iter().chain(&second).chain(&next).collect();
        assert_eq!(all.len(), 5, "equal children of one turn are jobs of their own");

        let again = Turns::default();
        assert_eq!(named(&again, &[2]), first[1..2]);
        assert_eq!(named(&again, &[1, 1]), [first[0].clone(), first[2].clone()]);
        assert_eq!(named(&again, &[1]), second);
        again.resume_at(0);
        assert_eq!(named(&again, &[1, 2, 1]), first);
        again.resume_at(1);
        assert_eq!(named(&again, &[1]), next);
    }

    /// A step that is run again may save what it could not save before.
    #[test]
    fn the_children_after_a_save_that_failed_are_those_after_one_that_succeeds() {
        let (one, other) = (ContentHash::of(b"1"), ContentHash::of(b"2"));
        let ids = |failing: bool| {
            let turns = Turns::default();
            let mut ids = named(&turns, &[1]);
            turns.next_at(one);
            if failing {
                turns.note_unsaved(one);
                turns.next_at(one);
                turns.note_unsaved(one);
            }
            ids.extend(named(&turns, &[1]));
            turns.next_at(other);
            ids.extend(named(&turns, &[1]));
            turns.next();
            turns.next_at(one);
            ids.extend(named(&turns, &[1]));
            ids
        };
        assert_eq!(ids(true), ids(false));
        assert_eq!(ids(false).into_iter().collect::<BTreeSet<_>>().len(), 4);
    }
}
