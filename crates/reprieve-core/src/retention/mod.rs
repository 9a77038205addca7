//! Retention: removes from a store what nothing needs any more, in parts.
//!
//! | what | removed when |
//! |---|---|
//! | long arguments `args/JOB.json` | the job is over |
//! | records | the job is over; or it is a slot of the fleet that no worker holds any more |
//! | payloads: saved states, parts of attachments | no record names them |
//! | results `results/…` | written longer ago than [`Keep::results`] |
//! | drain reports `drains/…` | written longer ago than [`Keep::drains`] |
//! | entries of the ledger | written longer ago than [`Keep::ledger`] |
//! | marks `ready/…` | always |
//! | marks `cancelled/JOB.json` | the job is over, or has no record |
//!
//! And nothing that was written less than [`KEPT_MIN`] ago, by the store's clock: that of the machine
//! which cleans may be wrong. A job is over when its record says that
//! it is done or cancelled, and its expiry has passed; when it has a result; or when neither its record nor its
//! arguments were written for [`Keep::unfinished`], if that is set. Without it, nothing is removed
//! that belongs to a job that waits, runs or is in the poison queue. A record outlives the arguments of its job,
//! and, under an id of the producer's own, the result. Nothing under any other name is ever removed.

mod rules;

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::AddAssign;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};

use self::rules::Fate;
pub use self::rules::{KEPT_MIN, Keep};
use crate::error::{ErrorKind, Result};
use crate::ids::{BlobName, JobId, PayloadName};
use crate::ledger::is_entry;
use crate::names::{
    ARGUMENTS, CANCELLATIONS, DIAGNOSES, DRAINS, READY, RESULTS, SLOT_IDS, args_blob, cancellation_blob,
    is_diagnosis, is_drain, is_mark, is_result, job_of_arguments, job_of_cancellation, result_blob,
};
use crate::ports::{ListedBlob, ListedPayload, ListedRecord, Page, Store, Stored};
use crate::record::{Status, named_payloads, open};

/// Records go a day later than other things, so that a round has seen the arguments of their job
/// before.
const RECORD_KEPT_MIN: Duration = KEPT_MIN.saturating_add(Duration::from_hours(24));

/// How many objects are looked at concurrently.
const AT_ONCE: usize = 8;

/// Removes what nothing needs any more.
///
/// Any number of cleaners may work on one store at once, beside workers: every removal is safe by
/// itself, and one that was not done is done in a later round.
#[derive(Debug)]
pub struct Cleaner {
    store: Store,
    keep: Keep,
    dry_run: bool,
}

/// The place of a part in a round of cleaning. A round begins at the default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    subject: Subject,
    /// The `next` of the list's part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

/// The kinds of objects, in the order of a round. Arguments and the marks of cancelled jobs precede the
/// records that show whether their job is over, and records precede the payloads that they name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Subject {
    #[default]
    Arguments,
    Cancellations,
    Records,
    Payloads,
    Results,
    Drains,
    Diagnoses,
    Marks,
}

/// The numbers of removed objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Removed {
    /// Blobs with a job's long arguments.
    pub arguments: u64,
    /// Records of jobs.
    pub records: u64,
    /// Saved states, and parts of attachments.
    pub payloads: u64,
    /// Results.
    pub results: u64,
    /// Reports of drains, and diagnoses of machines.
    pub drains: u64,
    /// Marks of workers that were ready for an event, and of cancelled jobs.
    pub marks: u64,
    /// Entries of the ledger.
    #[serde(default)]
    pub ledger: u64,
    /// The bytes of all of them but the records and entries.
    pub bytes: u64,
}

/// The result of cleaning a part.
#[derive(Debug)]
pub struct Part {
    /// The objects that were removed, or would be in a dry run.
    pub removed: Removed,
    /// The next part; `None` at the end of the round.
    pub next: Option<Position>,
}

impl Cleaner {
    /// A cleaner that removes what `keep` allows.
    #[must_use]
    pub const fn new(store: Store, keep: Keep) -> Self {
        Self { store, keep, dry_run: false }
    }

    /// Only counts what would be removed.
    #[must_use]
    pub const fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Cleans one part of the store: one part of a list.
    ///
    /// # Errors
    /// The store's temporary errors: repeat the part later. An object that can't be removed for
    /// another reason is logged and left.
    ///
    /// # Cancel safety
    /// A dropped call has cleaned some of the part.
    pub async fn clean(&self, position: &Position) -> Result<Part> {
        let Position { subject, at } = position;
        let at = at.as_deref();
        let (removed, next) = match subject {
            Subject::Arguments => self.arguments(at).await?,
            Subject::Records => self.records(at).await?,
            Subject::Payloads => self.payloads(at).await?,
            Subject::Results => {
                let (removed, next) = self.old_blobs(RESULTS, is_result, self.keep.results, at).await?;
                (Removed { results: removed.count, bytes: removed.bytes, ..Removed::default() }, next)
            }
            Subject::Drains => {
                let (removed, next) = self.old_blobs(DRAINS, is_drain, self.keep.drains, at).await?;
                (Removed { drains: removed.count, bytes: removed.bytes, ..Removed::default() }, next)
            }
            Subject::Diagnoses => {
                let (removed, next) = self.old_blobs(DIAGNOSES, is_diagnosis, self.keep.drains, at).await?;
                (Removed { drains: removed.count, bytes: removed.bytes, ..Removed::default() }, next)
            }
            Subject::Marks => {
                let (removed, next) = self.old_blobs(READY, is_mark, Some(KEPT_MIN), at).await?;
                (Removed { marks: removed.count, bytes: removed.bytes, ..Removed::default() }, next)
            }
            Subject::Cancellations => self.cancellations(at).await?,
        };
        let same = next.map(|at| Position { subject: *subject, at: Some(at) });
        let next = same.or_else(|| subject.next().map(|subject| Position { subject, at: None }));
        Ok(Part { removed, next })
    }

    /// Removes the arguments of jobs that are over.
    async fn arguments(&self, at: Option<&str>) -> Result<(Removed, Option<String>)> {
        let Page { entries, next, now_unix_ms: now } = self.store.blobs.page(ARGUMENTS, at).await?;
        let old = entries.into_iter().filter(|blob| is_old(blob.modified_unix_ms, now, KEPT_MIN));
        let removed = each(old, |blob| async move {
            match job_of_arguments(&blob.name) {
                Some(job) if self.has_no_use_for_arguments(&job, blob.modified_unix_ms, now).await? => {
                    self.remove_blob(&blob).await
                }
                _ => Ok(Sum::default()),
            }
        });
        let Sum { count, bytes } = removed.await?;
        Ok((Removed { arguments: count, bytes, ..Removed::default() }, next))
    }

    /// Removes the marks of cancelled jobs that are over or have no record.
    async fn cancellations(&self, at: Option<&str>) -> Result<(Removed, Option<String>)> {
        let Page { entries, next, now_unix_ms: now } = self.store.blobs.page(CANCELLATIONS, at).await?;
        let old = entries.into_iter().filter(|blob| is_old(blob.modified_unix_ms, now, KEPT_MIN));
        let removed = each(old, |blob| async move {
            match job_of_cancellation(&blob.name) {
                Some(job) if self.has_no_use_for_mark(&job, now).await? => self.remove_blob(&blob).await,
                _ => Ok(Sum::default()),
            }
        });
        let Sum { count, bytes } = removed.await?;
        Ok((Removed { marks: count, bytes, ..Removed::default() }, next))
    }

    /// Whether the job is over. Its arguments were written at `written_unix_ms`.
    async fn has_no_use_for_arguments(&self, job: &JobId, written_unix_ms: i64, now: i64) -> Result<bool> {
        let Some(stored) = self.store.records.load(job).await? else {
            return Ok(self.keep.is_given_up(written_unix_ms, now) || self.has_result(job).await?);
        };
        // Such a job never reads its arguments again, however long its record is kept.
        let is_ended =
            open(&stored.bytes).is_ok_and(|record| matches!(record.status, Status::Done | Status::Cancelled));
        Ok(is_ended || self.is_over(job, &stored, now).await?)
    }

    /// Removes the records of jobs that are over.
    async fn records(&self, at: Option<&str>) -> Result<(Removed, Option<String>)> {
        let Page { entries, next, now_unix_ms: now } = self.store.records.page("", at).await?;
        let (of_ledger, of_jobs): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|record: &ListedRecord| is_entry(&record.job));
        let ledger = self.ledger(of_ledger, now).await?.count;
        let old = of_jobs.into_iter().filter(|record| is_old(record.modified_unix_ms, now, RECORD_KEPT_MIN));
        let removed = each(old, |ListedRecord { job, .. }| async move {
            let Some(stored) = self.store.records.load(&job).await? else { return Ok(Sum::default()) };
            if !self.has_no_use_for_record(&job, &stored, now).await? {
                return Ok(Sum::default());
            }
            if !self.dry_run {
                // No record names its payloads then, and they are removed as such.
                match self.store.records.remove(&job, &stored.version, &[]).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => return Ok(Sum::default()),
                    removed => removed?,
                }
                tracing::debug!(%job, "removed the record of a job that is over");
            }
            Ok(Sum { count: 1, bytes: 0 })
        });
        let Sum { count, .. } = removed.await?;
        Ok((Removed { records: count, ledger, ..Removed::default() }, next))
    }

    /// Removes the old ones among these entries of the ledger.
    async fn ledger(&self, entries: Vec<ListedRecord>, now: i64) -> Result<Sum> {
        let Some(keep) = self.keep.ledger else { return Ok(Sum::default()) };
        let keep = keep.max(KEPT_MIN);
        let old = entries.into_iter().filter(|entry| is_old(entry.modified_unix_ms, now, keep));
        let removed = each(old, |ListedRecord { job: entry, .. }| async move {
            if !self.dry_run {
                let Some(stored) = self.store.records.load(&entry).await? else { return Ok(Sum::default()) };
                // That of a boot is renewed while the machine lives, and may have been since the list.
                if !is_old(stored.modified_unix_ms, now, keep) {
                    return Ok(Sum::default());
                }
                match self.store.records.remove(&entry, &stored.version, &[]).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => return Ok(Sum::default()),
                    removed => removed?,
                }
            }
            Ok(Sum { count: 1, bytes: 0 })
        });
        removed.await
    }

    /// Whether a round removes the job's record, if it is old enough.
    async fn has_no_use_for_record(&self, job: &JobId, stored: &Stored, now: i64) -> Result<bool> {
        // A slot of the fleet is written again several times within the longest lease.
        let is_slot = job.as_str().starts_with(SLOT_IDS);
        Ok(is_slot || self.is_over(job, stored, now).await? && !self.must_outlive(job, stored, now).await?)
    }

    /// Whether the job needs its record no more.
    async fn is_over(&self, job: &JobId, stored: &Stored, now: i64) -> Result<bool> {
        match self.keep.fate_of(&open(&stored.bytes), stored.modified_unix_ms, now) {
            Fate::Over => Ok(true),
            Fate::OverWithResult => self.has_result(job).await,
            Fate::OverWithoutResult => Ok(!self.has_result(job).await?),
            Fate::Needed => Ok(false),
        }
    }

    /// Whether the record must stay until what precedes it in a round is removed, because the round rested
    /// between them. Nothing else shows that the job's arguments are not needed, and without the record its
    /// mark would cancel a later job of the same id.
    async fn must_outlive(&self, job: &JobId, stored: &Stored, now: i64) -> Result<bool> {
        // A unique id is used by no later job.
        let may_be_marked = open(&stored.bytes)
            .map_or(true, |record| record.status == Status::Cancelled || record.args_sha256.is_some());
        Ok(self.stays(&args_blob(job)?, now).await?
            || may_be_marked && self.stays(&cancellation_blob(job)?, now).await?)
    }

    /// Whether the blob is there; in a dry run, whether it is too young to be removed, because that leaves
    /// what it counts.
    async fn stays(&self, name: &BlobName, now: i64) -> Result<bool> {
        if !self.dry_run {
            return self.store.blobs.exists(name).await;
        }
        let is_young = |blob: &ListedBlob| !is_old(blob.modified_unix_ms, now, KEPT_MIN);
        let page = self.store.blobs.page(name.as_str(), None).await?;
        Ok(page.entries.iter().any(|blob| blob.name == *name && is_young(blob)))
    }

    async fn has_result(&self, job: &JobId) -> Result<bool> {
        self.store.blobs.exists(&result_blob(job)?).await
    }

    /// Removes payloads that no record names.
    async fn payloads(&self, at: Option<&str>) -> Result<(Removed, Option<String>)> {
        let Page { entries, next, now_unix_ms: now } = self.store.records.payload_page(at).await?;
        let by_job: Vec<Vec<ListedPayload>> =
            entries.chunk_by(|a, b| a.job == b.job).map(<[_]>::to_vec).collect();
        let old = |payload: &ListedPayload| is_old(payload.modified_unix_ms, now, KEPT_MIN);
        let with_old = by_job.into_iter().filter(|payloads| payloads.iter().any(old));
        let removed = each(with_old, |mut payloads: Vec<ListedPayload>| async move {
            let Some(job) = payloads.first().map(|payload| payload.job.clone()) else {
                return Ok(Sum::default());
            };
            let Some(needed) = self.needed(&job, now).await? else { return Ok(Sum::default()) };
            payloads.retain(|payload| old(payload) && !needed.contains(&payload.name));
            let names: Vec<_> = payloads.iter().map(|payload| payload.name.clone()).collect();
            if !self.dry_run && !names.is_empty() {
                self.store.records.remove_payloads(&job, &names).await?;
                tracing::debug!(%job, count = names.len(), "removed payloads that no record names");
            }
            let bytes = payloads.iter().map(|payload| payload.bytes).sum();
            Ok(Sum { count: names.len() as u64, bytes })
        });
        let Sum { count, bytes } = removed.await?;
        Ok((Removed { payloads: count, bytes, ..Removed::default() }, next))
    }

    async fn has_no_use_for_mark(&self, job: &JobId, now: i64) -> Result<bool> {
        match self.store.records.load(job).await? {
            None => Ok(true),
            Some(stored) => self.is_over(job, &stored, now).await,
        }
    }

    /// Whether this is a dry run, and the record would have been removed in another.
    async fn would_be_removed(&self, job: &JobId, stored: &Stored, now: i64) -> Result<bool> {
        let is_old = self.dry_run && is_old(stored.modified_unix_ms, now, RECORD_KEPT_MIN);
        Ok(is_old && self.has_no_use_for_record(job, stored, now).await?)
    }

    /// Returns the payloads that the job's record names; `None` if it may name any.
    async fn needed(&self, job: &JobId, now: i64) -> Result<Option<BTreeSet<PayloadName>>> {
        let Some(stored) = self.store.records.load(job).await? else { return Ok(Some(BTreeSet::new())) };
        if self.would_be_removed(job, &stored, now).await? {
            return Ok(Some(BTreeSet::new()));
        }
        match open(&stored.bytes) {
            Ok(record) => named_payloads(&*self.store.records, &record).await,
            Err(_) => Ok(None),
        }
    }

    /// Removes the blobs with this prefix that are Reprieve's own and were written longer ago than
    /// `keep`.
    async fn old_blobs(
        &self,
        prefix: &str,
        is_own: fn(&BlobName) -> bool,
        keep: Option<Duration>,
        at: Option<&str>,
    ) -> Result<(Sum, Option<String>)> {
        let Some(keep) = keep else { return Ok((Sum::default(), None)) };
        let Page { entries, next, now_unix_ms: now } = self.store.blobs.page(prefix, at).await?;
        let keep = keep.max(KEPT_MIN);
        let old =
            entries.into_iter().filter(|blob| is_own(&blob.name) && is_old(blob.modified_unix_ms, now, keep));
        let removed = each(old, |blob| async move { self.remove_blob(&blob).await });
        Ok((removed.await?, next))
    }

    async fn remove_blob(&self, blob: &ListedBlob) -> Result<Sum> {
        let is_removed = self.dry_run || self.store.blobs.delete_version(&blob.name, &blob.version).await?;
        Ok(if is_removed { Sum { count: 1, bytes: blob.bytes } } else { Sum::default() })
    }
}

impl Subject {
    const fn next(self) -> Option<Self> {
        match self {
            Self::Arguments => Some(Self::Cancellations),
            Self::Cancellations => Some(Self::Records),
            Self::Records => Some(Self::Payloads),
            Self::Payloads => Some(Self::Results),
            Self::Results => Some(Self::Drains),
            Self::Drains => Some(Self::Diagnoses),
            Self::Diagnoses => Some(Self::Marks),
            Self::Marks => None,
        }
    }
}

impl Removed {
    /// The numbers by the names of what they count, without the bytes.
    #[must_use]
    pub const fn counts(&self) -> [(&'static str, u64); 7] {
        [
            ("arguments", self.arguments),
            ("records", self.records),
            ("payloads", self.payloads),
            ("results", self.results),
            ("drains", self.drains),
            ("marks", self.marks),
            ("ledger", self.ledger),
        ]
    }

    /// Whether nothing was removed.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Removed {
    fn add_assign(&mut self, other: Self) {
        let Self { arguments, records, payloads, results, drains, marks, ledger, bytes } = other;
        self.arguments += arguments;
        self.records += records;
        self.payloads += payloads;
        self.results += results;
        self.drains += drains;
        self.marks += marks;
        self.ledger += ledger;
        self.bytes += bytes;
    }
}

/// A number of objects, and their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

/// Removes what `remove` removes of each entry. An error that may pass ends the part.
async fn each<T, F>(entries: impl Iterator<Item = T>, remove: impl Fn(T) -> F) -> Result<Sum>
where
    F: Future<Output = Result<Sum>> + Send,
{
    let removals: Vec<_> = entries.map(|entry| remove(entry).boxed()).collect();
    let mut removals = stream::iter(removals).buffer_unordered(AT_ONCE);
    let (mut all, mut failed, mut first) = (Sum::default(), 0_u64, None);
    while let Some(removed) = removals.next().await {
        match removed {
            Ok(Sum { count, bytes }) => {
                all.count += count;
                all.bytes += bytes;
            }
            Err(error) if error.is_temporary() => return Err(error),
            Err(error) => {
                failed += 1;
                first.get_or_insert(error);
            }
        }
    }
    if let Some(error) = first {
        tracing::warn!(failed, %error, "failed to clean up objects of the store; they remain");
    }
    Ok(all)
}

fn is_old(written_unix_ms: i64, now_unix_ms: i64, age: Duration) -> bool {
    rules::age_of(written_unix_ms, now_unix_ms) >= age
}
