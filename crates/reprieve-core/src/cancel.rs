//! Cancelling jobs, as asked for by whoever enqueued them.
//!
//! A mark tells the workers: one that runs the job, and one that is about to begin it. Then the job's record
//! says that it is cancelled, so that no delivery continues the job, and every write of a worker that runs
//! it is refused. A worker that finds only the mark writes the record itself.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use tokio::time::Instant;

use crate::clock::unix_millis_after;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, JobId};
use crate::job_end::JobEnd;
use crate::names::{
    CANCELLATIONS, CANCELLED, cancellation_blob, job_of_cancellation, result_blob, what_but_a_job,
};
use crate::ports::{RecordWrite, Store, Version};
use crate::record::{Record, Status, unique_nonce};
use crate::retry::bounded;

/// How many jobs are cancelled at a time.
const AT_ONCE: usize = 32;

/// How often the record is read again because the job's worker has just written it. After that it is left
/// to the worker, which finds the mark.
const ROUNDS_MAX: u32 = 8;

/// How often workers are told while a long list of jobs is cancelled.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How long a cancelled job is remembered until a worker receives its message: a year.
const REMEMBERED: Duration = Duration::from_hours(8760);

/// The outcome of a request to cancel a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancel {
    /// The job waits or runs, or was cancelled before. It ends as cancelled.
    Cancelled,
    /// The store has no trace of the job: no worker has received it, or saved anything of it; or it is
    /// over and has no result; or it was never enqueued. If it waits or runs, it ends as cancelled.
    Untraced,
    /// The job has ended before, and nothing is changed.
    Over(JobEnd<()>),
}

impl Store {
    /// Cancels jobs: one that waits ends without being run, one that runs is asked to yield and then
    /// stopped. Returns the outcomes in their order. The ends are
    /// [`JobEnd::Cancelled`]. Outputs and children of a cancelled job stay.
    ///
    /// Workers learn of it within five seconds. A running job then has three seconds to yield:
    /// [`JobContext::cancelled`](crate::JobContext::cancelled) completes, as does
    /// [`interrupted`](crate::JobContext::interrupted). A job that ends by itself before that is done; one
    /// that leaves neither a result nor a record then counts as cancelled all the same.
    /// A worker that is cut off from the store stops when its lease ends, and no other continues the job.
    /// A cancelled job is remembered for a year, or for 30 days after its message is deleted.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an id that is no job's; nothing is cancelled then. The store's
    /// errors. Then some of the jobs may be cancelled; cancel them all again.
    ///
    /// # Cancel safety
    /// As after an error.
    pub async fn cancel(&self, jobs: &[JobId]) -> Result<Vec<Cancel>> {
        if let Some((id, what)) = jobs.iter().find_map(|job| Some((job, what_but_a_job(job.as_str())?))) {
            let message = format!("{id} is the id of {what}, and of no job");
            return Err(Error::new(ErrorKind::Invalid, "cancel a job", message));
        }
        let cancels = jobs.iter().cloned().map(|job| async move { self.cancel_one(&job).await });
        let mut cancels = stream::iter(cancels).buffered(AT_ONCE);
        let (mut all, mut failed) = (Vec::with_capacity(jobs.len()), None);
        let (mut is_news, mut told_at) = (false, Instant::now());
        loop {
            let cancel = cancels.next().await;
            is_news |= cancel.as_ref().is_some_and(|cancel| !matches!(cancel, Ok(Cancel::Over(_))));
            // Workers must not hear of the first of a long list only after the last.
            if is_news && (cancel.is_none() || told_at.elapsed() >= TELL_EVERY) {
                // Another content each time tells workers to read the marks again.
                self.blobs.put(&BlobName::parse(CANCELLED)?, unique_nonce().into_bytes(), None).await?;
                (is_news, told_at) = (false, Instant::now());
            }
            match cancel {
                Some(Ok(cancel)) => all.push(cancel),
                // One job that can't be cancelled must not keep workers from hearing of the others.
                Some(Err(error)) => drop(failed.get_or_insert(error)),
                None => break,
            }
        }
        failed.map_or(Ok(all), Err)
    }

    pub(crate) async fn cancel_one(&self, job: &JobId) -> Result<Cancel> {
        let mut is_marked = false;
        for _ in 0..ROUNDS_MAX {
            let (record, version) = self.record_to_cancel(job).await?;
            if let Some(end) = self.end_before(job, record.as_ref()).await? {
                if is_marked {
                    // It would cancel a redrive of the job.
                    self.forget_cancel(job).await?;
                }
                return Ok(Cancel::Over(end));
            }
            if !is_marked {
                self.blobs.put(&cancellation_blob(job)?, Vec::new(), None).await?;
                is_marked = true;
            }
            let is_traced = version.is_some();
            match self.write_cancelled(job, record, version).await {
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                written => written?,
            }
            return Ok(if is_traced { Cancel::Cancelled } else { Cancel::Untraced });
        }
        Ok(Cancel::Cancelled)
    }

    /// Removes the mark of a job that is not to be cancelled any more.
    pub(crate) async fn forget_cancel(&self, job: &JobId) -> Result<()> {
        self.blobs.delete(&cancellation_blob(job)?, None).await
    }

    /// Whether somebody has cancelled the job, whatever its record says.
    pub(crate) async fn is_marked_as_cancelled(&self, job: &JobId) -> Result<bool> {
        self.blobs.exists(&cancellation_blob(job)?).await
    }

    /// Returns how the job ended, if it is over.
    async fn end_before(&self, job: &JobId, record: Option<&Record>) -> Result<Option<JobEnd<()>>> {
        match record.map(|record| &record.status) {
            Some(Status::Done) => return Ok(Some(JobEnd::Done(()))),
            Some(Status::DeadLettered { reason }) => return Ok(Some(JobEnd::Failed(reason.clone()))),
            Some(
                Status::Enqueued
                | Status::Running
                | Status::Waiting { .. }
                | Status::Escalated { .. }
                | Status::Cancelled,
            )
            | None => {}
        }
        Ok(self.blobs.exists(&result_blob(job)?).await?.then_some(JobEnd::Done(())))
    }

    /// Returns the job's record and its version. One that is damaged is replaced: without it, the job would
    /// begin again.
    async fn record_to_cancel(&self, job: &JobId) -> Result<(Option<Record>, Option<Version>)> {
        match self.versioned_record(job).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(%job, %error, "the record of a job to be cancelled is damaged, and is replaced");
                Ok((None, self.records.load(job).await?.map(|stored| stored.version)))
            }
            found => Ok(found?.unzip()),
        }
    }

    async fn write_cancelled(
        &self,
        job: &JobId,
        record: Option<Record>,
        version: Option<Version>,
    ) -> Result<()> {
        let mut record = match record {
            // Only the mark and the news may be missing.
            Some(Record { status: Status::Cancelled, .. }) => return Ok(()),
            Some(record) => record,
            None => Record::without_delivery(job.clone(), ""),
        };
        record.cancel(unix_millis_after(REMEMBERED));
        self.records.put(job, version.as_ref(), RecordWrite::of(&record, None)).await.map(drop)
    }

    /// Returns what changes whenever jobs are cancelled.
    pub(crate) async fn news_of_cancels(&self) -> Result<Vec<u8>> {
        Ok(self.blobs.get(&BlobName::parse(CANCELLED)?).await?.unwrap_or_default())
    }

    /// Returns the jobs that were cancelled, as far as they are remembered. Waits for `each` part of the
    /// list.
    pub(crate) async fn cancelled_jobs(&self, each: Duration) -> Result<HashSet<JobId>> {
        let (mut jobs, mut at) = (HashSet::new(), None);
        loop {
            let page =
                bounded("list cancelled jobs", each, self.blobs.page(CANCELLATIONS, at.as_deref())).await?;
            jobs.extend(page.entries.iter().filter_map(|blob| job_of_cancellation(&blob.name)));
            at = page.next;
            if at.is_none() {
                return Ok(jobs);
            }
        }
    }
}
