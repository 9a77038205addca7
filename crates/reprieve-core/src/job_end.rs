//! The end of a job, as seen by whoever enqueued it.

use serde::de::DeserializeOwned;

use crate::codec::without_value;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::JobId;
use crate::names::result_blob;
use crate::ports::Store;
use crate::record::Status;

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

impl Store {
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
        const OPERATION: &str = "read a result";
        // The record first: one that is gone by now leaves its result.
        let status = self.record(job).await?.map(|record| record.status);
        let result = self.blobs.get(&result_blob(job)?).await?;
        let is_done = status == Some(Status::Done);
        if let Some(json) = result.or_else(|| is_done.then(|| b"null".to_vec())) {
            let parsed = serde_json::from_slice(&json).map_err(|error| {
                if json == b"null" {
                    let message = format!("job {job} is done, and its result was removed");
                    return Error::new(ErrorKind::NotFound, OPERATION, message);
                }
                let message = format!("the result of job {job} is another type's: {}", without_value(&error));
                Error::new(ErrorKind::Corrupt, OPERATION, message)
            });
            return parsed.map(JobEnd::Done).map(Some);
        }
        Ok(match status {
            Some(Status::DeadLettered { reason }) => Some(JobEnd::Failed(reason)),
            Some(Status::Cancelled) => Some(JobEnd::Cancelled),
            _ => None,
        })
    }
}
