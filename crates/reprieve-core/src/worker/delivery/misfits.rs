//! Messages that this worker can't use and another may: of an unknown kind, in a newer format, with
//! arguments that do not fit. They are deferred, and dead-lettered when that has lasted too long.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::assignment::Assignment;
use super::ending::OWN_ID_REMEMBERED;
use super::guardian::Guardian;
use super::lease::{Settlement, TRY};
use super::outcome::{DeliveryReport, Outcome};
use crate::cancel::Cancel;
use crate::clock::{unix_millis, unix_millis_after};
use crate::envelope::{Envelope, Misfit};
use crate::ids::JobId;
use crate::names::result_blob;
use crate::ports::{DeadLetter, DeferredMessage, RecordWrite, Release, Store};
use crate::record::{End, EndKind, Status, open};
use crate::retry::{FOREVER, Patience, bounded, may_pass, persist};
use crate::worker::cancels::ASK_WITHIN;
use crate::worker::shared::Shared;

impl Guardian {
    /// Defers a job that this worker can't run and another one may; dead-letters it when that has
    /// lasted too long.
    pub(super) async fn defer_misfit(
        self: Box<Self>,
        mut assignment: Box<Assignment>,
        misfit: Misfit,
        reason: String,
    ) -> DeliveryReport {
        let since = assignment.envelope.misfit_since(misfit);
        let Some(delay) = misfit_delay(&self.shared, misfit, since) else {
            if misfit == Misfit::Unknown {
                // A job with a newer state is left unclaimed, and no other delivery claims it now.
                let adopt = async { assignment.run.record.lock().await.adopt_present().await };
                if let Ok(Err(error)) = timeout(TRY, adopt).await {
                    tracing::debug!(job = %assignment.job(), %error, "failed to read the record of a dead letter");
                }
            }
            return self.dead_letter_job(&assignment, reason).await;
        };
        self.show_deferred(assignment.job().as_str(), assignment.kind.name, &reason, since);
        assignment.envelope.note_misfit(misfit, since);
        self.release(assignment, Outcome::Deferred, EndKind::Deferred, &reason, delay).await
    }

    /// Does the same for a message of unknown kind or with an unreadable body, which names no job
    /// of this worker.
    pub(super) async fn defer_unusable(
        self: Box<Self>,
        envelope: Option<Envelope>,
        misfit: Misfit,
        since: i64,
        reason: String,
    ) -> DeliveryReport {
        let kind = envelope.as_ref().map_or_else(String::new, |envelope| envelope.kind.clone());
        if let Some(envelope) = &envelope
            && self.is_cancelled(&envelope.job).await
        {
            tracing::info!(job = %envelope.job, kind, "the job was cancelled; deleting its message");
            let settled = self.settle(Settlement::Complete).await;
            return DeliveryReport::new(kind, Outcome::Cancelled, &settled);
        }
        let delivery = &self.lease.delivery;
        let Some(delay) = misfit_delay(&self.shared, misfit, since) else {
            let body = match &envelope {
                Some(envelope) => envelope.to_copy(envelope.notes.generation.saturating_add(1)),
                None => delivery.body.clone(),
            };
            if let Some(envelope) = envelope
                && self.note_dead_letter(&envelope, &reason).await
            {
                tracing::info!(job = %envelope.job, kind, "the job is already done; deleting its message");
                let settled = self.settle(Settlement::Complete).await;
                return DeliveryReport::new(kind, Outcome::Duplicate, &settled);
            }
            return self.dead_letter("", None, reason, body).await;
        };
        let job = envelope.as_ref().map_or(delivery.id.as_str(), |envelope| envelope.job.as_str());
        self.show_deferred(job, &kind, &reason, since);
        let (count, worker) = (delivery.dequeue_count, &self.shared.worker);
        let end = End::now(&delivery.id, count, worker, EndKind::Deferred, &reason);
        let body = envelope.map(|mut envelope| {
            end.append_to(&mut envelope.notes.ends);
            envelope.note_misfit(misfit, since);
            envelope.to_body()
        });
        let settled = self.settle(Settlement::Release(Release { body, delay, ..Release::default() })).await;
        DeliveryReport::new(kind, Outcome::Deferred, &settled)
    }

    /// Whether a job that this worker does not know was cancelled; its record says so then. Without an
    /// answer, its next delivery finds out.
    async fn is_cancelled(&self, job: &JobId) -> bool {
        let _known = timeout(ASK_WITHIN, self.shared.know_cancels()).await;
        if !self.shared.cancels.contains(job) {
            return false;
        }
        let store = &self.shared.store;
        let cancel = async {
            // Whoever cancelled it may have written no more than the mark.
            Ok(store.is_marked_as_cancelled(job).await?
                && !matches!(store.cancel_one(job).await?, Cancel::Over(_)))
        };
        bounded("cancel a job", TRY, cancel).await.unwrap_or(false)
    }

    /// Records that a job is dead-lettered because no worker knows its kind, unless a later message may be
    /// received by one that does. Whoever enqueued it waits for its end. Returns whether the job is done.
    async fn note_dead_letter(&self, envelope: &Envelope, reason: &str) -> bool {
        let (job, own) = (&envelope.job, envelope.notes.generation);
        let note = || async {
            let Store { records, blobs, .. } = &*self.shared.store;
            let is_done = blobs.exists(&result_blob(job)?).await?;
            let Some(stored) = records.load(job).await? else { return Ok(is_done) };
            let Ok(mut record) = open(&stored.bytes) else { return Ok(is_done) };
            let is_newer = own > record.generation;
            let is_open = match record.status {
                Status::Enqueued => own >= record.generation,
                Status::Running | Status::Waiting { .. } => {
                    is_newer || own == record.generation && record.owner.message == self.lease.delivery.id
                }
                // The copy in the queue to which it was moved.
                Status::Escalated { .. } => is_newer,
                Status::Done => return Ok(true),
                Status::DeadLettered { .. } | Status::Cancelled => false,
            };
            if !is_open {
                return Ok(is_done);
            }
            record.sequence = record.sequence.saturating_add(1);
            if is_done {
                // Its worker died before it wrote that.
                let kept = self.shared.settings.keep.results.unwrap_or(FOREVER).max(OWN_ID_REMEMBERED);
                record.status = Status::Done;
                record.expires_unix_ms = Some(unix_millis_after(kept));
                record.checkpoints.clear();
            } else {
                record.status = Status::DeadLettered { reason: DeadLetter::because(reason).reason };
            }
            record.changed_unix_ms = unix_millis();
            let write = RecordWrite::of(&record, None);
            records.put(job, Some(&stored.version), write).await.map(|_| is_done)
        };
        let patience = Patience::calm(TRY, Instant::now() + TRY);
        let noted = persist("write a record", patience, may_pass, note).await;
        noted.unwrap_or_else(|error| {
            tracing::warn!(%job, %error, "failed to record that a job is dead-lettered");
            false
        })
    }

    fn show_deferred(&self, job: &str, kind: &str, reason: &str, since_unix_ms: i64) {
        tracing::info!(
            job,
            kind,
            reason,
            "deferring a message: this worker can't run the job, but another may"
        );
        self.shared.deferred.note(DeferredMessage {
            job: job.to_owned(),
            kind: kind.to_owned(),
            reason: reason.to_owned(),
            since_unix_ms,
            seen_unix_ms: unix_millis(),
        });
    }
}

/// Returns how long to defer a message that has not fitted since `since_unix_ms`: 5 s at first,
/// about twice as long each time, at most 5 min. Returns `None` when the limit has passed: the
/// message is then dead-lettered.
fn misfit_delay(shared: &Shared, misfit: Misfit, since_unix_ms: i64) -> Option<Duration> {
    let limit = match misfit {
        Misfit::Unknown | Misfit::Unreadable => shared.settings.unknown_kind_after,
        Misfit::Shape => shared.settings.misfit_after(),
    };
    let lasted = Duration::from_millis(u64::try_from(unix_millis() - since_unix_ms).unwrap_or(0));
    // Not past the limit, but never shorter than the first deferral.
    let left = limit.saturating_sub(lasted).max(DeferredMessage::delay(Duration::ZERO));
    (lasted < limit).then(|| DeferredMessage::delay(lasted).min(left))
}
