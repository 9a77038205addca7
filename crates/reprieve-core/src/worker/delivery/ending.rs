//! The ends of a delivery: completed, retried, deferred, dead-lettered, or released.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::assignment::Assignment;
use super::executor::RunOutcome;
use super::guardian::Guardian;
use super::lease::{DRAIN_TRY, Settlement, TRY, Terms, settle, terms};
use super::outcome::{DeliveryReport, Epilogue, GivenUp, NoSlot, Outcome};
use crate::clock::{unix_millis, unix_millis_after};
use crate::context::JobRun;
use crate::deadline::Deadline;
use crate::dependency::DependencyHandle;
use crate::envelope::Misfit;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::JobId;
use crate::job::JobError;
use crate::ledger::AT_LAST;
use crate::mutex::get;
use crate::names::args_blob;
use crate::ports::LEASE_MAX;
use crate::ports::{DeadLetter, NewMessage, Release};
use crate::record::{BLOCKED_MAX, EXCUSED_MAX, End, EndKind, Handle, Record, Status, Written};
use crate::retry::{FOREVER, Patience, bounded, may_pass, persist};
use crate::time_limit::TimedOut;
use crate::watch;
use crate::worker::kind::Kind;
use crate::worker::limits::Missing;
use crate::worker::shared::Shared;

/// How long a suspect is deferred when the other jobs did not rest in time.
const CROWDED_DELAY: Duration = Duration::from_mins(1);

/// How long a job is deferred when an output was refused and its generation could not be raised.
const REFUSED_DELAY: Duration = Duration::from_secs(5);

/// How long the record of a finished job is kept where a second message of the job would otherwise
/// run it again: as long as Storage Queues keep a message by default.
/// <https://learn.microsoft.com/rest/api/storageservices/put-message>
const REMEMBERED: Duration = Duration::from_hours(7 * 24);

/// How long a finished job is remembered at least that was enqueued under an id of its producer's own:
/// as long as results are kept by default.
pub(super) const OWN_ID_REMEMBERED: Duration = Duration::from_hours(30 * 24);

/// How long a step that was given up may take to its next `.await`, and what it computes to its end, before it is taken
/// to block its thread.
const RETURN_WITHIN: Duration = Duration::from_secs(1);

/// How long a worker that lost a lease keeps trying to note that in the job's record.
const NOTE_LOST_WITHIN: Duration = Duration::from_mins(10);

impl Guardian {
    /// Settles the message according to how the run ended.
    pub(super) async fn finish(
        self: Box<Self>,
        assignment: Box<Assignment>,
        ended: RunOutcome,
    ) -> DeliveryReport {
        let job = assignment.job().clone();
        let settles = matches!(ended, RunOutcome::Done | RunOutcome::DoneBefore | RunOutcome::Unfinished(_));
        if !settles && self.was_cancelled(&assignment).await {
            return self.finish_cancelled(&assignment).await;
        }
        let ended = match (ended, assignment.run.hung.get()) {
            // It saved when it was asked to, and has stood still nevertheless.
            (RunOutcome::Yielded | RunOutcome::CutShort(_), Some(hang)) => {
                RunOutcome::TimedOut(TimedOut::Stall(hang.still))
            }
            (ended, _) => ended,
        };
        if let RunOutcome::TimedOut(what) = ended
            && self.is_stuck(&assignment.run).await
        {
            return self.give_up(assignment, what, true).await;
        }
        if let Some(needed) = self.was_asked_to_wait(&assignment, &ended) {
            return self.defer_until_served(assignment, &needed).await;
        }
        if has_failed(&ended)
            && let Some((needed, why)) = Box::pin(self.find_excuse(&assignment)).await
        {
            return self.excuse(assignment, &needed, &why).await;
        }
        match ended {
            RunOutcome::Done => self.complete(&assignment, false).await,
            RunOutcome::DoneBefore => {
                tracing::info!(%job, "the job is already done; deleting its message");
                self.complete(&assignment, true).await
            }
            RunOutcome::Duplicate(reason) => {
                tracing::info!(%job, reason, "deleting a duplicate message of the job");
                let settled = self.settle(Settlement::Complete).await;
                DeliveryReport::new(assignment.kind.name, Outcome::Duplicate, &settled)
            }
            RunOutcome::Unfinished(status) => self.finish_settling(&assignment, status).await,
            RunOutcome::Yielded if assignment.steps() == 0 => {
                self.release_interrupted(assignment, Outcome::Unstarted).await
            }
            RunOutcome::Yielded => self.release_interrupted(assignment, Outcome::Saved).await,
            RunOutcome::CutShort(reason) => {
                tracing::warn!(%job, reason, "progress since the last checkpoint is lost at an interruption");
                self.release_interrupted(assignment, Outcome::Cut).await
            }
            RunOutcome::Failed(error) => self.fail(assignment, &error).await,
            RunOutcome::TimedOut(what) => self.time_out(assignment, what).await,
            RunOutcome::Refused(reason) => self.dead_letter_job(&assignment, reason).await,
            RunOutcome::Foreign(reason) => self.dead_letter_original(&assignment, reason).await,
            RunOutcome::Misfit(misfit, reason) => self.defer_misfit(assignment, misfit, reason).await,
            RunOutcome::Waiting(due) => self.wait_until(assignment, due).await,
            RunOutcome::Later(delay, reason) => {
                tracing::info!(%job, reason, ?delay, "deferring the message");
                self.release(assignment, Outcome::Deferred, EndKind::Deferred, reason, delay).await
            }
            RunOutcome::Escalated(why) => self.escalate(&assignment, why).await,
            RunOutcome::Crowded => {
                let reason = "the job must run alone, and the other jobs did not pause in time";
                tracing::warn!(%job, reason, "deferring the message");
                self.release(assignment, Outcome::Deferred, EndKind::Crowded, reason, CROWDED_DELAY).await
            }
            RunOutcome::TooLong(reason) => {
                tracing::info!(%job, reason, "releasing the job for another worker");
                let released =
                    self.release(assignment, Outcome::Deferred, EndKind::Deferred, &reason, Duration::ZERO);
                DeliveryReport { too_long: true, ..released.await }
            }
            RunOutcome::Lost => self.superseded(assignment).await,
        }
    }

    /// Whether the job was cancelled while it ran: its record says so, or a mark, which whoever cancelled it
    /// wrote before.
    async fn was_cancelled(&self, assignment: &Assignment) -> bool {
        if !assignment.run.cancelled.is_cancelled() {
            return false;
        }
        let look = |terms: Terms| {
            let run = Arc::clone(&assignment.run);
            let store = run.store(self.deadline().is_some()).clone();
            async move {
                let mut record = run.record.lock().await;
                record.use_store(terms.records);
                let is_in_record = record.adopt_if_cancelled().await?;
                Ok(is_in_record || store.is_marked_as_cancelled(&run.job).await?)
            }
        };
        let found = self.persist("read a record", look).await;
        // Its next delivery finds out.
        found.unwrap_or(false)
    }

    /// Deletes the message of a cancelled job and removes what the job no longer needs. Another message of
    /// the job finds its record for a while.
    async fn finish_cancelled(self: Box<Self>, assignment: &Assignment) -> DeliveryReport {
        let (shared, drain) = (Arc::clone(&self.shared), self.drain.clone());
        tracing::info!(job = %assignment.job(), kind = assignment.kind.name, "the job was cancelled; deleting its message");
        if let Err(error) = self.conclude_cancelled(assignment).await {
            return Self::gave_up(assignment, &error);
        }
        let settled = self.settle(Settlement::Complete).await;
        let report = DeliveryReport::new(assignment.kind.name, Outcome::Cancelled, &settled);
        if settled.is_ok() {
            Box::pin(clean_up(&shared, assignment, false, drain)).await;
        }
        report
    }

    /// Writes `cancelled` into the record, whoever owns it: a mark alone may have said so. A job that ended
    /// meanwhile stays as it is.
    async fn conclude_cancelled(&self, assignment: &Assignment) -> Result<()> {
        let expires = unix_millis_after(OWN_ID_REMEMBERED);
        while self.conclude(assignment, Status::Cancelled, Some(expires)).await? == Written::Refused {
            let mut handle = assignment.run.record.lock().await;
            let is_over =
                |record: &Record| matches!(record.status, Status::Done | Status::DeadLettered { .. });
            if !handle.adopt_present().await? || handle.own().is_some_and(is_over) {
                break;
            }
        }
        Ok(())
    }

    /// Deletes the message of a finished job and removes what the job no longer needs. Writes
    /// `done` into the record first, if there is one or the job is to be remembered. `is_settled`: there
    /// is a result, or somebody has cancelled the job too late, so that it is done whatever its record says.
    pub(super) async fn complete(
        self: Box<Self>,
        assignment: &Assignment,
        is_settled: bool,
    ) -> DeliveryReport {
        let shared = Arc::clone(&self.shared);
        let (mut remembered, recorded) = {
            let handle = assignment.run.record.lock().await;
            let remembered = self.remembered(assignment, &handle);
            // A short job has no record: it completes without one, and reserves no memory for one.
            (remembered, handle.may_own() || !remembered.is_zero() || is_settled)
        };
        if recorded {
            remembered = match Box::pin(self.conclude_done(assignment, remembered, is_settled)).await {
                Ok(remembered) => remembered,
                Err(error) => return Self::gave_up(assignment, &error),
            };
        }
        let (lease_ends, drain) = (self.lease.ends(), self.drain.clone());
        let settled = self.settle(Settlement::Complete).await;
        let report = DeliveryReport::new(assignment.kind.name, Outcome::Completed, &settled);
        if settled.is_ok() && recorded {
            // After the lease's end, a delete that finds no message of its receipt counts as
            // done. The message may belong to a worker that needs the record.
            let may_remove = remembered.is_zero() && Instant::now() < lease_ends;
            Box::pin(clean_up(&shared, assignment, may_remove, drain)).await;
        }
        report
    }

    /// Writes `done` into the record, whoever owns it if the job `is_settled`, and returns how long the
    /// record is kept after that.
    async fn conclude_done(
        &self,
        assignment: &Assignment,
        remembered: Duration,
        is_settled: bool,
    ) -> Result<Duration> {
        // A record that is removed next gets an expiry too: its worker may die before it removes
        // the record.
        let kept = if remembered.is_zero() { REMEMBERED } else { remembered };
        let (mut expires, mut remembered) = (unix_millis_after(kept), remembered);
        // The owner may have just written a note, so try again.
        loop {
            let written = self.conclude(assignment, Status::Done, Some(expires)).await?;
            let mut handle = assignment.run.record.lock().await;
            // A job that was cancelled a moment ago is done.
            let adopted = match written {
                Written::Taken => false,
                Written::Refused if is_settled => handle.adopt_present().await?,
                Written::Refused => handle.adopt_if_cancelled().await?,
            };
            if !adopted {
                // The record of another owner may have been adopted.
                return Ok(remembered.max(self.remembered(assignment, &handle)));
            }
            // Whoever cancelled it asks how it ended, and a job without a result has only its record to tell.
            remembered = remembered.max(OWN_ID_REMEMBERED);
            expires = unix_millis_after(remembered);
        }
    }

    /// Returns how long the record of a finished job is kept, so that a second message does not run
    /// the job again. Zero where the result is proof enough and no owner with another message needs
    /// the record.
    fn remembered(&self, assignment: &Assignment, handle: &Handle) -> Duration {
        let asked = self.shared.settings.remember_done;
        let message = &self.lease.delivery.id;
        let is_anothers_mark =
            |record: &Record| record.owner.message != *message && record.expires_unix_ms.is_some();
        let kept = handle.own().is_some_and(|it| it.generation > 0 || is_anothers_mark(it));
        let needed = kept || assignment.run.generation.load(Relaxed) > 0 || assignment.args_in_blob;
        if handle.own().is_some_and(|record| record.args_sha256.is_some()) {
            // A result that outlives its record would settle a later job of that id.
            asked.max(OWN_ID_REMEMBERED).max(self.shared.settings.keep.results.unwrap_or(FOREVER))
        } else if needed {
            asked.max(REMEMBERED)
        } else {
            asked
        }
    }

    /// Writes the job's final status into its record.
    async fn conclude(
        &self,
        assignment: &Assignment,
        status: Status,
        expires: Option<i64>,
    ) -> Result<Written> {
        let write = |records| {
            let (run, status) = (Arc::clone(&assignment.run), status.clone());
            async move {
                let mut record = run.record.lock().await;
                record.use_store(records);
                record.conclude(status, expires).await
            }
        };
        let done = self.persist("write a record", |terms| write(terms.records)).await;
        match done {
            // The lease has ended, for example during a freeze: try once more.
            Err(error) if error.is_temporary() => {
                let records = Arc::clone(&self.shared.drain_store.records);
                timeout(DRAIN_TRY, write(records)).await.unwrap_or(Err(error))
            }
            done => done,
        }
    }

    /// Finishes a settlement that an earlier owner began and the record states.
    async fn finish_settling(self: Box<Self>, assignment: &Assignment, status: Status) -> DeliveryReport {
        let is_cancelled = status == Status::Cancelled;
        if !is_cancelled {
            tracing::info!(job = %assignment.job(), ?status, "finishing a settlement that an earlier owner began");
        }
        match status {
            Status::DeadLettered { reason } => self.send_dead_letter(assignment, reason).await,
            Status::Done => self.complete(assignment, false).await,
            Status::Escalated { queue, .. } => self.send_copy(assignment, &queue).await,
            Status::Cancelled => self.finish_cancelled(assignment).await,
            Status::Enqueued | Status::Running | Status::Waiting { .. } => {
                let settled = self.settle(Settlement::Complete).await;
                DeliveryReport::new(assignment.kind.name, Outcome::Duplicate, &settled)
            }
        }
    }

    /// Moves the job to the queue for jobs that interruptions keep from moving on. The record comes
    /// first, so that no other message of the job goes on here, and so that whoever owns this message
    /// next finishes the move.
    async fn escalate(self: Box<Self>, assignment: &Assignment, why: String) -> DeliveryReport {
        // Only a worker with such a queue decides so.
        let queue = self.shared.escalation.as_ref().map(|it| it.name.clone()).unwrap_or_default();
        tracing::warn!(job = %assignment.job(), kind = assignment.kind.name, queue, why, "moving a job to another queue");
        let status = Status::Escalated { queue: queue.clone(), why: why.clone() };
        match self.conclude(assignment, status, None).await {
            Ok(Written::Taken) => self.send_copy(assignment, &queue).await,
            Ok(Written::Refused) => self.leave_to_owner(assignment, &why).await,
            Err(error) => Self::gave_up(assignment, &error),
        }
    }

    /// Sends the copy in which a moved job continues in `queue`, then deletes this message. An earlier
    /// owner may have sent the copy already. Of two copies, the second to be received waits for the
    /// first and is deleted when the job is done.
    async fn send_copy(self: Box<Self>, assignment: &Assignment, queue: &str) -> DeliveryReport {
        let body = assignment.envelope.to_copy(self.generation(assignment).await.saturating_add(1));
        let copy = NewMessage { body, delay: Duration::ZERO };
        let there = self.shared.escalation.as_ref().filter(|it| it.name == queue);
        let there = there.map(|it| Arc::clone(&it.queue));
        if there.is_none() {
            tracing::warn!(
                job = %assignment.job(), queue,
                "an earlier worker began to move the job, and this one has no such --escalate-to; the job \
                 continues in its present queue"
            );
        }
        let send = |terms: Terms| {
            let (copy, queue) = (copy.clone(), there.clone().unwrap_or(terms.queue));
            async move { queue.send(vec![copy]).await }
        };
        if let Err(error) = self.persist("send a job's copy", send).await {
            return Self::gave_up(assignment, &error);
        }
        let settled = self.settle(Settlement::Complete).await;
        DeliveryReport::new(assignment.kind.name, Outcome::Escalated, &settled)
    }

    /// Returns the job's generation: the record's, if this delivery owns one.
    async fn generation(&self, assignment: &Assignment) -> u32 {
        let handle = assignment.run.record.lock().await;
        handle.own().map_or(assignment.envelope.notes.generation, |record| record.generation)
    }

    async fn fail(self: Box<Self>, assignment: Box<Assignment>, error: &JobError) -> DeliveryReport {
        if !error.is_retry() {
            return self.dead_letter_job(&assignment, error.to_string()).await;
        }
        let (account, limits) = (assignment.run.record.lock().await.account(), assignment.kind.limits);
        if account.is_exhausted_by_one_more_failure(limits.attempts) {
            return self.dead_letter_job(&assignment, format!("{AT_LAST}{error}")).await;
        }
        let delay = error.delay().unwrap_or_else(|| limits.delay_after(account.failed)).min(LEASE_MAX);
        let failed = account.failed.saturating_add(1);
        tracing::warn!(job = %assignment.job(), kind = assignment.kind.name, %error, failed, ?delay, "a job failed; retrying it");
        self.note_delay(&assignment, delay).await;
        self.retry(assignment, EndKind::Failed, error.to_string(), delay).await
    }

    /// Handles a timeout, which is a failure. One of the whole job counts whether or not the job moved.
    async fn time_out(self: Box<Self>, assignment: Box<Assignment>, what: TimedOut) -> DeliveryReport {
        let reason = reason_of(&assignment, what);
        if matches!(what, TimedOut::Step(_) | TimedOut::Stall(_)) {
            return self.fail(assignment, &JobError::retry(reason)).await;
        }
        let (account, limits) = (assignment.run.record.lock().await.account(), assignment.kind.limits);
        let timed_out = account.timed_out.saturating_add(1);
        if timed_out >= limits.attempts {
            return self.dead_letter_job(&assignment, format!("{reason}, {timed_out} times")).await;
        }
        let delay = limits.delay_after(account.timed_out);
        tracing::warn!(job = %assignment.job(), kind = assignment.kind.name, reason, timed_out, ?delay, "a job timed out; retrying it");
        self.note_delay(&assignment, delay).await;
        self.retry(assignment, EndKind::TimedOut, reason, delay).await
    }

    /// Releases the message of a job that failed.
    async fn retry(
        self: Box<Self>,
        assignment: Box<Assignment>,
        kind: EndKind,
        reason: String,
        delay: Duration,
    ) -> DeliveryReport {
        let (job, delivery) = (assignment.job().clone(), assignment.run.delivery);
        let report = self.release(assignment, Outcome::Retried, kind, &reason, delay).await;
        report.because(job, delivery, reason)
    }

    /// Handles a job that was given up at a timeout. One that `blocks` its thread takes a slot of its worker along, so
    /// the third in a row is the last.
    async fn give_up(
        self: Box<Self>,
        assignment: Box<Assignment>,
        what: TimedOut,
        blocks: bool,
    ) -> DeliveryReport {
        if !blocks {
            return self.time_out(assignment, what).await;
        }
        assignment.run.blocks.store(true, Relaxed);
        let blocked = assignment.run.record.lock().await.account().blocked.saturating_add(1);
        if blocked >= BLOCKED_MAX {
            let reason = reason_of(&assignment, what);
            let reason = format!("{reason}, and its thread did not return, {blocked} times");
            return self.dead_letter_job(&assignment, reason).await;
        }
        self.time_out(assignment, what).await
    }

    /// Whether a job that was stopped at a limit still blocks its thread, or goes on to compute although its step has
    /// ended. A drain does not wait to see that.
    async fn is_stuck(&self, run: &JobRun) -> bool {
        if !run.holds_slots() {
            return false;
        }
        // Work that looks at its flag returns.
        run.revoked.cancel();
        let mut drain = self.drain.clone();
        tokio::select! {
            biased;
            () = run.returned() => false,
            _ = drain.wait_for(|deadline| deadline.is_some()) => false,
            // The lease is not renewed meanwhile.
            () = sleep(RETURN_WITHIN.min(self.lease.ends().saturating_duration_since(Instant::now()) / 3)) => true,
        }
    }

    /// Returns the dependency because of which the job was asked to yield, if it did so for that.
    fn was_asked_to_wait(&self, assignment: &Assignment, ended: &RunOutcome) -> Option<DependencyHandle> {
        let has_yielded = matches!(ended, RunOutcome::Yielded | RunOutcome::CutShort(_));
        let waits_for = assignment.run.waits_for.get().filter(|_| has_yielded && self.drain.get().is_none());
        waits_for.cloned()
    }

    /// Returns what the job needs and because of which its step may have failed, and how: it does not serve now, or it
    /// serves as far as a look shows, and let the step down; `None` if that has excused it too often. A drain waits for
    /// no look.
    async fn find_excuse(&self, assignment: &Assignment) -> Option<(DependencyHandle, String)> {
        if assignment.run.record.lock().await.account().excused >= EXCUSED_MAX {
            return None;
        }
        let (mut drain, dependencies) = (self.drain.clone(), &assignment.run.dependencies);
        let away = if dependencies.iter().any(DependencyHandle::is_needed) {
            let judged = Judged::new(&self.shared);
            let found = tokio::select! {
                biased;
                _ = drain.wait_for(|deadline| deadline.is_some()) => assignment.kind.known_to_be_away(),
                found = unserved(dependencies) => found,
            };
            drop(judged);
            found
        } else {
            None
        };
        if let Some(away) = away {
            return Some((away.clone(), "was away".to_owned()));
        }
        let let_down = |needed: &DependencyHandle| Some((needed.clone(), needed.let_down()?));
        let (needed, why) = dependencies.iter().find_map(let_down)?;
        Some((needed, format!("refused a call: {why}")))
    }

    /// Returns the message of a job that failed because of something that it needs. Its pauses grow as those of a
    /// retry, because the next run may fail, too: it may be the job that keeps the dependency from serving.
    async fn excuse(
        self: Box<Self>,
        assignment: Box<Assignment>,
        needed: &DependencyHandle,
        why: &str,
    ) -> DeliveryReport {
        let excused = assignment.run.record.lock().await.account().excused;
        let delay = assignment.kind.limits.delay_after(excused).max(needed.wait()).min(LEASE_MAX);
        let (job, dependency) = (assignment.job(), needed.name());
        tracing::info!(%job, kind = assignment.kind.name, dependency, why, excused, ?delay, "a job failed because of what it needs; deferring it");
        if self.drain.get().is_none() {
            self.note_delay(&assignment, delay).await;
        }
        assignment.run.is_excused.store(true, Relaxed);
        let why = format!("{dependency}, which the job needs, {why}");
        self.release(assignment, Outcome::Deferred, EndKind::Deferred, &why, delay).await
    }

    /// Returns the message of a job until something that it needs serves again.
    pub(super) async fn defer_until_served(
        self: Box<Self>,
        assignment: Box<Assignment>,
        needed: &DependencyHandle,
    ) -> DeliveryReport {
        let (kind, has_run) = (Arc::clone(&assignment.kind), assignment.steps() > 0);
        // Few were asked to wait; of the others there may be any number.
        let delay = match needed.wait() {
            wait if has_run => wait,
            wait => self.delay_among(&kind, Missing::Place { longest: needed.longest_wait() }).max(wait),
        };
        let (job, dependency) = (assignment.job(), needed.name());
        tracing::debug!(%job, kind = kind.name, dependency, ?delay, "what the job needs is away; deferring it");
        let why = format!("{dependency}, which the job needs, was away");
        self.defer(assignment, &why, delay).await
    }

    /// Returns the message of a job that is over a limit of its kind. What returns it is not waited for.
    pub(super) async fn defer_over_limit(
        self: Box<Self>,
        assignment: Box<Assignment>,
        place: &'static str,
    ) -> DeliveryReport {
        let kind = Arc::clone(&assignment.kind);
        let delay = self.delay_among(&kind, Missing::Place { longest: kind.longest_over_limit() });
        tracing::debug!(job = %assignment.job(), kind = kind.name, ?delay, "as many jobs of its kind run {place} as may; deferring a job");
        self.defer(assignment, &format!("as many jobs of its kind ran {place} as may"), delay).await
    }

    /// Returns the message of a job for which this machine has no room now.
    pub(super) async fn defer_for_room(
        self: Box<Self>,
        assignment: Box<Assignment>,
        why: &str,
    ) -> DeliveryReport {
        let kind = Arc::clone(&assignment.kind);
        let delay = self.delay_among(&kind, Missing::Room);
        tracing::debug!(job = %assignment.job(), kind = kind.name, ?delay, why, "there is no room for the job; deferring it");
        let report = self.defer(assignment, why, delay).await;
        DeliveryReport { over_limit: false, no_slot: Some(NoSlot::NoRoom), ..report }
    }

    /// Returns the message of a job that can't run now. It keeps its place in line: behind the work of other kinds
    /// it would find the slot that it waits for free for hours.
    async fn defer(
        self: Box<Self>,
        mut assignment: Box<Assignment>,
        why: &str,
        delay: Duration,
    ) -> DeliveryReport {
        // This worker knows the kind.
        assignment.envelope.notes.deferrals.retain(|deferral| deferral.misfit != Misfit::Unknown);
        let kind = Arc::clone(&assignment.kind);
        let over_limit = assignment.steps() == 0;
        let report = self.release(assignment, Outcome::Deferred, EndKind::Deferred, why, delay).await;
        kind.note_deferral();
        DeliveryReport { over_limit, ..report }
    }

    /// Returns for how long one more message of the kind is deferred that waits for `missing`.
    fn delay_among(&self, kind: &Kind, missing: Missing) -> Duration {
        let others = self.shared.kinds.iter().filter(|it| it.name != kind.name && it.backlog.shares(missing));
        let (began, passes) = (self.shared.running.last_begun(kind.name), self.shared.passes());
        kind.deferral(began, others.count() + 1, missing, passes)
    }

    /// Returns the message of a job for which no slot is free, and for which none was meant or none becomes free.
    /// Other workers may run it at once.
    pub(super) async fn release_without_slot(
        self: Box<Self>,
        assignment: Box<Assignment>,
        no_slot: NoSlot,
    ) -> DeliveryReport {
        let (outcome, why) = (Outcome::Unstarted, "no slot of the worker was free");
        let report = self.release(assignment, outcome, EndKind::Deferred, why, Duration::ZERO).await;
        DeliveryReport { no_slot: Some(no_slot), ..report }
    }

    /// Records a long delay. Without the record, a second message of the job might run it sooner.
    async fn note_delay(&self, assignment: &Assignment, delay: Duration) {
        if delay <= self.shared.settings.lease {
            return;
        }
        let note = timeout(TRY, async { assignment.run.record.lock().await.note_delay(delay).await });
        if let Ok(Err(error)) = note.await {
            tracing::debug!(job = %assignment.job(), %error, "failed to record the delay of a retry");
        }
    }

    /// Whether the job was cancelled, and this worker has not heard of it yet. A drain does not wait for that.
    async fn is_marked(&self, assignment: &Assignment) -> bool {
        let (mut drain, run) = (self.drain.clone(), &assignment.run);
        let marked = run.store.is_marked_as_cancelled(&run.job);
        tokio::select! {
            biased;
            _ = drain.wait_for(|deadline| deadline.is_some()) => false,
            marked = bounded("look for the mark of a cancelled job", TRY, marked) => marked.unwrap_or(false),
        }
    }

    /// Dead-letters a job. The record comes first, so that no other message of the job revives it.
    pub(super) async fn dead_letter_job(
        self: Box<Self>,
        assignment: &Assignment,
        reason: String,
    ) -> DeliveryReport {
        if self.is_marked(assignment).await {
            return self.finish_cancelled(assignment).await;
        }
        let status = Status::DeadLettered { reason: DeadLetter::because(reason.as_str()).reason };
        match self.conclude(assignment, status, None).await {
            Ok(Written::Taken) => self.send_dead_letter(assignment, reason).await,
            Ok(Written::Refused) => self.leave_to_owner(assignment, &reason).await,
            Err(error) => Self::gave_up(assignment, &error),
        }
    }

    /// Defers a message that was to be settled for this reason, because another owner has the job now.
    async fn leave_to_owner(self: Box<Self>, assignment: &Assignment, reason: &str) -> DeliveryReport {
        tracing::info!(job = %assignment.job(), reason, "another owner has the job; deferring this message");
        let end = assignment.run.record.lock().await.end(EndKind::Deferred, reason, 0);
        let later = Release { delay: CROWDED_DELAY, ..Release::default() };
        self.release_with(assignment, Outcome::Deferred, end, later).await
    }

    /// Sends the dead letter and deletes the message. The letter contains the same job under the
    /// next generation.
    async fn send_dead_letter(self: Box<Self>, assignment: &Assignment, reason: String) -> DeliveryReport {
        let body = assignment.envelope.to_copy(self.generation(assignment).await.saturating_add(1));
        self.dead_letter(assignment.kind.name, Some(assignment), reason, body).await
    }

    /// Dead-letters a message with the job id of another job, with its original body.
    async fn dead_letter_original(
        self: Box<Self>,
        assignment: &Assignment,
        reason: String,
    ) -> DeliveryReport {
        let body = self.lease.delivery.body.clone();
        self.dead_letter(assignment.kind.name, Some(assignment), reason, body).await
    }

    /// Moves the message to the poison queue with `body`, and logs the reason.
    pub(super) async fn dead_letter(
        self: Box<Self>,
        kind: &'static str,
        assignment: Option<&Assignment>,
        reason: String,
        body: Vec<u8>,
    ) -> DeliveryReport {
        let letter = DeadLetter::because(reason);
        let job = assignment.map_or_else(|| self.lease.delivery.id.to_string(), |it| it.job().to_string());
        tracing::error!(
            job,
            kind,
            reason = letter.reason,
            "a job can't continue; moving its message to the poison queue"
        );
        self.shared.deferred.forget(&job);
        let (delivery, reason) = (self.lease.delivery.dequeue_count, letter.reason.clone());
        let settled = self.settle_letter(&job, letter, body).await;
        let report = DeliveryReport::new(kind, Outcome::DeadLettered, &settled);
        // A message that can't be read has an id, but not every queue's is a job's.
        match JobId::parse(job) {
            Ok(job) => report.because(job, delivery, reason),
            Err(_) => report,
        }
    }

    /// Moves the message to the poison queue with `body`, or with its original body where `body` is
    /// too large. The original body has the generation of its message; a redrive reads the record
    /// and raises it.
    async fn settle_letter(self: Box<Self>, job: &str, letter: DeadLetter, body: Vec<u8>) -> Result<()> {
        let (as_it_came, same) = (self.lease.delivery.body.clone(), letter.clone());
        self.settle_or(Settlement::DeadLetter(letter, body), async || {
            tracing::warn!(
                job,
                "the dead letter is too large for the queue; dead-lettering the original message"
            );
            Some(Settlement::DeadLetter(same, as_it_came))
        })
        .await
    }

    /// Revokes a job that has not yielded by the soft mark, and releases it; it resumes at its last
    /// checkpoint, unless it was cancelled. A step that blocked its thread past its timeout has failed, and so has
    /// one that stalled.
    pub(super) async fn cut(
        self: Box<Self>,
        assignment: Box<Assignment>,
        task: JoinHandle<RunOutcome>,
    ) -> DeliveryReport {
        // Revoke first, so that the job writes nothing once another worker may own the message.
        assignment.run.revoked.cancel();
        let (run, unreturned) = (Arc::clone(&assignment.run), given_up(&assignment, None));
        let timed_out = match run.hung.get() {
            Some(hang) => Some(TimedOut::Stall(hang.still)),
            None if run.has_deadline() => None,
            None => run.time_limit.of_step(),
        };
        let report = if self.was_cancelled(&assignment).await {
            self.finish_cancelled(&assignment).await
        } else if let Some(what) = timed_out {
            // A step that awaits something was dropped there, and its task ends.
            let blocks = self.is_stuck(&run).await;
            let given_up = given_up(&assignment, Some(what));
            // A thread that does not return is no fault of what the job needs.
            let report = if !blocks
                && has_failed(&RunOutcome::TimedOut(what))
                && let Some((needed, why)) = Box::pin(self.find_excuse(&assignment)).await
            {
                self.excuse(assignment, &needed, &why).await
            } else {
                self.give_up(assignment, what, blocks).await
            };
            return DeliveryReport { blocks: given_up, task: Some(task), ..report };
        } else {
            self.release_interrupted(assignment, Outcome::Cut).await
        };
        DeliveryReport { blocks: unreturned, task: Some(task), ..report }
    }

    /// Ends a delivery whose message is lost while its job runs.
    pub(super) fn lost_while_running(
        &mut self,
        assignment: &Assignment,
        task: JoinHandle<RunOutcome>,
    ) -> DeliveryReport {
        let blocks = given_up(assignment, None);
        DeliveryReport { blocks, task: Some(task), ..self.lost(assignment) }
    }

    /// Releases a job that was interrupted.
    pub(super) async fn release_interrupted(
        self: Box<Self>,
        assignment: Box<Assignment>,
        outcome: Outcome,
    ) -> DeliveryReport {
        let run = Arc::clone(&assignment.run);
        let (kind, why) = match outcome {
            Outcome::Unstarted => (EndKind::Deferred, "the worker had to stop before the job ran a step"),
            _ => (EndKind::Interrupted, "the worker was interrupted"),
        };
        let mut report = self.release(assignment, outcome, kind, why, Duration::ZERO).await;
        report.work_kept = run.work_kept();
        if outcome == Outcome::Cut {
            // An unanswered save may have been applied, so the work since then is not known to be
            // lost.
            let unconfirmed = get(&run.unconfirmed).is_some();
            if unconfirmed && report.outcome == Outcome::Cut {
                report.outcome = Outcome::Unconfirmed;
            }
            report.work_at_stake = get(&run.last_saved).elapsed();
        }
        report
    }

    /// Releases the message of a job that waits at its own request. No end of this delivery is noted:
    /// the record says that the job waits, or this delivery did not claim the job.
    async fn wait_until(
        self: Box<Self>,
        mut assignment: Box<Assignment>,
        due_unix_ms: i64,
    ) -> DeliveryReport {
        let left = u64::try_from(due_unix_ms.saturating_sub(unix_millis())).unwrap_or(0);
        let delay = Duration::from_millis(left).min(LEASE_MAX);
        tracing::info!(job = %assignment.job(), kind = assignment.kind.name, ?delay, "the job waits");
        let owns = assignment.run.record.lock().await.own().is_some();
        let body = owns.then(|| {
            assignment.envelope.notes.deferrals.clear();
            assignment.envelope.notes.ends.clear();
            assignment.envelope.to_body()
        });
        // Behind what waits, so that jobs which only look and wait again let others run.
        let release = Release { body, delay, to_back: true };
        let as_it_is = Settlement::Release(Release { body: None, ..release.clone() });
        let settled = self.settle_or(Settlement::Release(release), async || Some(as_it_is));
        DeliveryReport::new(assignment.kind.name, Outcome::Waiting, &settled.await)
    }

    /// Releases the message, with the end of this delivery in its notes.
    pub(super) async fn release(
        self: Box<Self>,
        mut assignment: Box<Assignment>,
        outcome: Outcome,
        kind: EndKind,
        why: &str,
        delay: Duration,
    ) -> DeliveryReport {
        let unsaved_steps = assignment.run.unsaved_steps.load(Relaxed);
        let has_failed = matches!(kind, EndKind::Failed | EndKind::TimedOut);
        let unsaved_steps = if has_failed { unsaved_steps } else { 0 };
        let mut end = assignment.run.record.lock().await.end(kind, why, unsaved_steps);
        let limit = &assignment.run.time_limit;
        end.blocked = has_failed && assignment.run.blocks.load(Relaxed);
        end.excused = assignment.run.is_excused.load(Relaxed);
        if kind == EndKind::Interrupted && limit.is_of_job() {
            // A step that hangs saves nothing.
            end.ran_ms = limit.ran_ms();
        }
        if has_failed || end.excused || assignment.steps() > 0 {
            // A step has run, so the message can be used.
            assignment.envelope.notes.deferrals.clear();
        }
        assignment.envelope.notes.ends = assignment.run.record.lock().await.ends_with(end.clone());
        self.release_with(&assignment, outcome, end, Release { delay, ..Release::default() }).await
    }

    /// Releases the message with its notes. Where a body with them is too large for the queue, the
    /// delivery's end goes into the record.
    async fn release_with(
        self: Box<Self>,
        assignment: &Assignment,
        outcome: Outcome,
        end: End,
        release: Release,
    ) -> DeliveryReport {
        let as_it_is = Release { body: None, ..release };
        let release = Release { body: Some(assignment.envelope.to_body()), ..release };
        let settled = self
            .settle_or(Settlement::Release(release), async || {
                let ended = timeout(DRAIN_TRY, async { assignment.run.record.lock().await.keep(end).await });
                if !matches!(ended.await, Ok(Ok(Written::Taken))) {
                    tracing::warn!(job = %assignment.job(), "failed to record how the delivery ended");
                }
                Some(Settlement::Release(as_it_is))
            })
            .await;
        DeliveryReport::new(assignment.kind.name, outcome, &settled)
    }

    /// Handles a write that the store refused because another owner of the job wrote before. While
    /// the lease holds, the message is released, so that its next delivery finds out at once what
    /// the job needs.
    async fn superseded(self: Box<Self>, assignment: Box<Assignment>) -> DeliveryReport {
        let run = Arc::clone(&assignment.run);
        run.revoked.cancel();
        if self.lease.ends() <= Instant::now() {
            return self.lost(&assignment);
        }
        tracing::warn!(job = %run.job, "another owner of the job wrote to the store; the job is cancelled and its message released");
        let raise = |terms: Terms| {
            let run = Arc::clone(&run);
            async move {
                let mut record = run.record.lock().await;
                record.use_store(terms.records);
                record.raise().await
            }
        };
        // If it can't be raised, the next delivery is refused again, so it must not come at once.
        let raised = self.persist("write a record", raise).await;
        let delay = if raised.is_ok() { Duration::ZERO } else { REFUSED_DELAY };
        let (outcome, why) = (Outcome::Deferred, "another owner of the job wrote");
        let report = self.release(assignment, outcome, EndKind::Lost, why, delay).await;
        match report.outcome {
            Outcome::LeaseLost => DeliveryReport { epilogue: Some(note_lost(run)), ..report },
            _ => report,
        }
    }

    /// Handles a lost lease: the job is revoked and nothing can be settled.
    pub(super) fn lost(&self, assignment: &Assignment) -> DeliveryReport {
        self.shared.telemetry.leases_lost.inc();
        tracing::warn!(job = %assignment.job(), "the job's lease was lost; the job is cancelled and nothing is settled");
        let run = Arc::clone(&assignment.run);
        run.revoked.cancel();
        let report = DeliveryReport::ended(assignment.kind.name, Outcome::LeaseLost);
        DeliveryReport { epilogue: Some(note_lost(run)), ..report }
    }

    /// Reports that the record could not be written. The message is not settled either; it returns
    /// when its lease ends.
    fn gave_up(assignment: &Assignment, error: &Error) -> DeliveryReport {
        tracing::error!(job = %assignment.job(), %error, "failed to settle a job; its message returns when its lease ends");
        DeliveryReport::ended(assignment.kind.name, Outcome::Abandoned)
    }

    /// Calls until the call succeeds or the lease ends: calmly, or hurried once a drain begins.
    /// Then it does not wait for a try under way, so the call must bear being made twice.
    async fn persist<T, Call>(&self, operation: &'static str, call: impl Fn(Terms) -> Call) -> Result<T>
    where
        Call: Future<Output = Result<T>>,
    {
        let (mut drain, call) = (self.drain.clone(), &call);
        let before = drain.get();
        let tries = |drain| {
            let terms = terms(&self.shared, self.lease.ends(), drain, 0);
            async move { persist(operation, terms.patience, may_pass, || call(terms.clone())).await }
        };
        tokio::select! {
            biased;
            drain = drain.wait_for(|deadline| deadline.is_some()), if before.is_none() => tries(drain).await,
            done = tries(before) => done,
        }
    }

    pub(super) async fn settle(self: Box<Self>, how: Settlement) -> Result<()> {
        self.settle_or(how, async || None).await
    }

    /// Settles the message; as `otherwise` returns, if its new body is too large for the queue.
    async fn settle_or(
        mut self: Box<Self>,
        how: Settlement,
        otherwise: impl AsyncFnOnce() -> Option<Settlement>,
    ) -> Result<()> {
        let Self { shared, lease, drain, .. } = &mut *self;
        // Boxed, so that a guardian does not reserve memory for its end from the start.
        Box::pin(settle(shared, lease, drain.clone(), &how, otherwise)).await
    }
}

/// Counts a guardian whose job has failed and that waits for a look at what the job needs, until dropped. It has no slot
/// any more.
struct Judged<'a>(&'a Shared);

impl<'a> Judged<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.judged.modify(|judged| *judged += 1);
        Self(shared)
    }
}

impl Drop for Judged<'_> {
    fn drop(&mut self) {
        self.0.judged.modify(|judged| *judged -= 1);
    }
}

/// Returns what a job needs and does not serve, by a fresh look.
async fn unserved(dependencies: &[DependencyHandle]) -> Option<&DependencyHandle> {
    for needed in dependencies.iter().filter(|dependency| dependency.is_needed()) {
        if !needed.serves().await {
            return Some(needed);
        }
    }
    None
}

/// Whether a run failed in a way that may be the fault of what it needs.
const fn has_failed(ended: &RunOutcome) -> bool {
    match ended {
        RunOutcome::Failed(error) => error.is_retry(),
        RunOutcome::TimedOut(what) => matches!(what, TimedOut::Step(_) | TimedOut::Stall(_)),
        _ => false,
    }
}

/// Returns the job to watch until its thread has returned, if its kind has a limit that it `passed`, or may pass yet.
fn given_up(assignment: &Assignment, passed: Option<TimedOut>) -> Option<GivenUp> {
    GivenUp::new(&assignment.run, &assignment.kind.limits, passed)
}

/// The reason of a timeout, with the place in the job where that is known.
fn reason_of(assignment: &Assignment, what: TimedOut) -> String {
    let hang = if matches!(what, TimedOut::Job(_)) { None } else { assignment.run.hung.get() };
    what.reason() + &hang.map(|hang| format!(" ({})", hang.place)).unwrap_or_default()
}

/// Notes a lost lease in the job's record. Without the note, the next owner would count this
/// process as dead.
fn note_lost(run: Arc<JobRun>) -> Epilogue {
    let limit = &run.time_limit;
    let ran_ms = if limit.is_of_job() { limit.ran_ms() } else { 0 };
    Box::pin(async move {
        let patience = Patience::calm(TRY, Instant::now() + NOTE_LOST_WITHIN);
        let noted = persist("note a lost lease", patience, may_pass, || async {
            let mut handle = run.record.lock().await;
            let end = End { ran_ms, ..handle.end(EndKind::Lost, "the lease was lost", 0) };
            let noted = handle.note(end).await?;
            if noted == Written::Refused && handle.is_in_doubt() {
                // A claim that was not answered may still arrive, and make this delivery the owner.
                let message = "a write of this delivery may still arrive";
                return Err(Error::new(ErrorKind::Unavailable, "note a lost lease", message));
            }
            Ok(noted)
        });
        if let Err(error) = noted.await {
            tracing::debug!(%error, "failed to record the lost lease");
        }
    })
}

/// Removes what a finished job no longer needs. A leftover is harmless, so a failure is only
/// logged.
async fn clean_up(
    shared: &Shared,
    assignment: &Assignment,
    may_remove: bool,
    mut drain: watch::Receiver<Option<Deadline>>,
) {
    let work = async {
        let mut handle = assignment.run.record.lock().await;
        // Only the record proves that the job ended once its arguments are gone. Without it they stay.
        let is_ended = |record: &Record| matches!(record.status, Status::Done | Status::Cancelled);
        let marked = handle.own().is_some_and(is_ended);
        // A write that creates the record may still arrive. It must find one, or the job would seem
        // to be running.
        if may_remove && !handle.is_in_doubt() {
            handle.remove().await?;
        }
        if assignment.args_in_blob && marked {
            shared.store.blobs.delete(&args_blob(assignment.job())?, None).await?;
        }
        Ok::<_, Error>(())
    };
    let job = assignment.job();
    let time_is_up = async {
        if timeout(TRY, drain.wait_for(|deadline| deadline.is_some())).await.is_ok() {
            sleep(DRAIN_TRY).await;
        }
    };
    tokio::select! {
        biased;
        done = work => {
            if let Err(error) = done {
                tracing::warn!(%job, %error, "failed to remove a finished job's record or arguments");
            }
        }
        () = time_is_up => {
            tracing::warn!(%job, "timed out removing a finished job's record or arguments");
        }
    }
}
