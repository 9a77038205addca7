//! The end of a job, as seen by whoever enqueued it.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::de::DeserializeOwned;

use crate::codec::without_value;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::JobId;
use crate::names::{RESULTS, job_of_result, result_blob};
use crate::ports::Store;
use crate::record::{EndNote, Status};

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd<T> {
    /// It is done. Contains its result.
    Done(T),
    /// It is in the poison queue, for this reason. A redrive makes it continue.
    Failed(String),
    /// It was cancelled.
    Cancelled,
}

/// The fewest jobs whose records are listed instead of being read one by one, and the most records that
/// are listed for each job, beside the first [`FOREIGN_MAX`].
const LISTED_MIN: usize = 8;

/// How many records of other jobs may be listed, so that a look at a few jobs among millions does not read
/// all their names.
const FOREIGN_MAX: usize = 10_000;

/// How many jobs are looked at one by one at a time.
const AT_ONCE: usize = 32;

impl Store {
    /// Returns how each of these jobs ended, with its result, in their order; `None` for one that waits or
    /// runs.
    ///
    /// For jobs with [ids of their own](crate::NewJob::with_id) this takes a few requests, whatever their
    /// number: about one for each 5,000 ids that begin alike, and one for each result of more than about
    /// 4 KiB. Children of one job begin alike; see [`JobContext::enqueue`](crate::JobContext::enqueue). Other
    /// jobs take two requests each.
    ///
    /// # Errors
    /// Those of [`end_of`](Self::end_of).
    pub async fn ends_of<T: DeserializeOwned>(&self, jobs: &[JobId]) -> Result<Vec<Option<JobEnd<T>>>> {
        let notes = self.notes_of(jobs).await?;
        let is_cancelled = |note: &String| matches!(EndNote::read(note), Some(EndNote::Cancelled));
        let cancelled = notes.iter().filter(|(_, note)| is_cancelled(note)).map(|(job, _)| job);
        // One that was done before it heard of it has a result.
        let done = self.with_results(cancelled.collect()).await?;
        // Of owned ids: a future that borrows each of them would not be `Send` in a step.
        let ends = jobs.iter().cloned().map(|job| {
            let note = notes.get(&job).map(|note| EndNote::read(note));
            let may_be_done = done.contains(&job);
            async move {
                match note {
                    // Listed without a note: it waits or runs.
                    Some(None) => Ok(None),
                    Some(Some(EndNote::Failed(reason))) => Ok(Some(JobEnd::Failed(reason))),
                    Some(Some(EndNote::Done(result))) => {
                        parse(&job, result.get().as_bytes()).map(JobEnd::Done).map(Some)
                    }
                    Some(Some(EndNote::Cancelled)) if !may_be_done => Ok(Some(JobEnd::Cancelled)),
                    Some(Some(EndNote::Stored | EndNote::Cancelled)) | None => self.end_of(&job).await,
                }
            }
        });
        stream::iter(ends).buffered(AT_ONCE).try_collect().await
    }

    /// Returns the notes of the jobs' records, as far as lists contain them.
    async fn notes_of(&self, jobs: &[JobId]) -> Result<HashMap<JobId, String>> {
        let mut groups: BTreeMap<&str, HashSet<&JobId>> = BTreeMap::new();
        for job in jobs {
            groups.entry(job.family()).or_default().insert(job);
        }
        let mut notes = HashMap::new();
        for group in groups.values().filter(|group| group.len() >= LISTED_MIN) {
            let (prefix, most) = (common_prefix(group), 2 * group.len() + FOREIGN_MAX);
            let (mut at, mut listed) = (None, 0);
            while listed < most {
                let page = self.records.page(&prefix, at.as_deref()).await?;
                listed += page.entries.len();
                let wanted = page.entries.into_iter().filter(|entry| group.contains(&entry.job));
                notes.extend(wanted.map(|entry| (entry.job, entry.note)));
                at = page.next;
                if at.is_none() {
                    break;
                }
            }
        }
        Ok(notes)
    }

    /// Returns those of these jobs that have a result, or may have one: long lists are not read to their end.
    async fn with_results(&self, jobs: HashSet<&JobId>) -> Result<HashSet<JobId>> {
        let (mut found, mut at, mut listed) = (HashSet::new(), None, 0);
        if jobs.len() < LISTED_MIN {
            for job in jobs {
                if self.blobs.exists(&result_blob(job)?).await? {
                    found.insert(job.clone());
                }
            }
            return Ok(found);
        }
        let (prefix, most) = (format!("{RESULTS}{}", common_prefix(&jobs)), 2 * jobs.len() + FOREIGN_MAX);
        while listed < most {
            let page = self.blobs.page(&prefix, at.as_deref()).await?;
            listed += page.entries.len();
            let results = page.entries.iter().filter_map(|blob| job_of_result(&blob.name));
            found.extend(results.filter(|job| jobs.contains(job)));
            at = page.next;
            if at.is_none() {
                return Ok(found);
            }
        }
        Ok(jobs.into_iter().cloned().collect())
    }

    /// Returns how the job ended, with its result; `None` while it waits or runs. It takes two reads.
    ///
    /// A job without a result (its output is `()`) leaves a trace only if it has an
    /// [id of its own](crate::NewJob::with_id): without one, this returns `None` for ever. So it does
    /// for a job that was never enqueued, and, after 30 days, for every job.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) when the job is done and its result was removed.
    /// [`Corrupt`](ErrorKind::Corrupt) when the result is no `T`. The store's errors.
    pub async fn end_of<T: DeserializeOwned>(&self, job: &JobId) -> Result<Option<JobEnd<T>>> {
        // The record first: one that is gone by now leaves its result.
        let status = self.record(job).await?.map(|record| record.status);
        let result = self.blobs.get(&result_blob(job)?).await?;
        let is_done = status == Some(Status::Done);
        if let Some(json) = result.or_else(|| is_done.then(|| b"null".to_vec())) {
            return parse(job, &json).map(JobEnd::Done).map(Some);
        }
        Ok(match status {
            Some(Status::DeadLettered { reason }) => Some(JobEnd::Failed(reason)),
            Some(Status::Cancelled) => Some(JobEnd::Cancelled),
            _ => None,
        })
    }
}

fn parse<T: DeserializeOwned>(job: &JobId, json: &[u8]) -> Result<T> {
    const OPERATION: &str = "read a result";
    serde_json::from_slice(json).map_err(|error| {
        if json == b"null" {
            let message = format!("job {job} is done, and its result was removed");
            return Error::new(ErrorKind::NotFound, OPERATION, message);
        }
        let message = format!("the result of job {job} is another type's: {}", without_value(&error));
        Error::new(ErrorKind::Corrupt, OPERATION, message)
    })
}

/// The longest text with which all of these ids begin.
fn common_prefix(jobs: &HashSet<&JobId>) -> String {
    let (Some(first), Some(last)) = (jobs.iter().min(), jobs.iter().max()) else { return String::new() };
    // Between the first and the last in order, every other one begins as both do.
    let same = |(a, b): &(char, char)| a == b;
    first.as_str().chars().zip(last.as_str().chars()).take_while(same).map(|(a, _)| a).collect()
}
