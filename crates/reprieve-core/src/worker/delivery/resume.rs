//! The beginning of a redelivered job's run: the judgement, the claim, the time alone of a suspect,
//! the saved state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::executor::{Execution, RunOutcome};
use super::save::TRY;
use crate::checkpoint::SHORTEST;
use crate::child_ids::SavedChildren;
use crate::clock::unix_millis;
use crate::codec;
use crate::envelope::Misfit;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::PayloadName;
use crate::job::{Job, OldState};
use crate::names::result_blob;
use crate::process::in_process;
use crate::record::{CROWDED_MAX, Checkpoint, Company, Look, Place, Record, Status, Verdict, Written, judge};
use crate::retry::{FOREVER, Patience, may_pass, persist};
use crate::worker::isolation::{Alone, Presence};
use crate::worker::reporter::report_every;

/// The longest deferral of a job's second message: the first does the work.
const ANOTHER_DELAY_MAX: Duration = Duration::from_mins(1);

/// The longest that a suspect is alone at first.
const ALONE_FIRST_MAX: Duration = Duration::from_mins(1);

/// The longest that a suspect waits until it can be alone, and the longest that it is alone.
const ISOLATION_MAX: Duration = Duration::from_hours(24);

impl Execution {
    /// Claims the job before loading or decoding anything of it, and returns its record. The first
    /// delivery of a job without one has none.
    pub(super) async fn claim(&mut self) -> Result<Option<Record>, RunOutcome> {
        let is_first = self.is_first();
        let mut alone = None;
        loop {
            let (look, has_result) = self.look().await?;
            // The record of an own id may have been removed: the claim makes another.
            if is_first && !self.has_own_id && !has_result && matches!(look, Look::Nothing) {
                return Ok(None);
            }
            let Some(generation) = self.decide(&look, has_result).await? else {
                // The claim was written, but its answer was lost.
                let own = self.run.record.lock().await.own().cloned();
                return own.map(|claim| self.begin_under(claim, alone)).transpose();
            };
            let (mut claim, vanished) = {
                let record = self.run.record.lock().await;
                (record.claim_of(&look, generation), record.vanished(&look, generation))
            };
            (claim.owner.company, alone) = self.company(&claim, alone).await?;
            if alone.is_none() {
                // Begins before the claim: a job that waits for a suspect has no part in the
                // suspect's death.
                self.begin().await?;
            }
            if self.write_claim(&look, &claim).await? {
                if let Some(vanished) = vanished {
                    self.shared.books.vanished(vanished);
                }
                return self.begin_under(claim, alone).map(Some);
            }
        }
    }

    /// Returns how this delivery ends after the store refused a write, judged by the record.
    pub(super) async fn refused(&mut self) -> RunOutcome {
        let found = match self.look().await {
            Ok((look, has_result)) => match (&look, has_result) {
                // The record was removed: another owner finished the job, or an operator removed
                // it.
                (Look::Nothing, false) => return RunOutcome::Lost,
                _ => self.decide(&look, has_result).await,
            },
            Err(ended) => return ended,
        };
        match found {
            // A delivery that could claim the job only now does so in its next delivery.
            Ok(_) => RunOutcome::Lost,
            Err(ended) => ended,
        }
    }

    /// Reads the record, and checks whether a result exists.
    pub(super) async fn look(&self) -> Result<(Look, bool), RunOutcome> {
        let run = Arc::clone(&self.run);
        let look = self.wait_for("read a record", || async { run.record.lock().await.look().await }).await?;
        let name = result_blob(&run.job).map_err(|error| RunOutcome::Refused(error.to_string()))?;
        let has_result = self.wait_for("look for a result", || run.store.blobs.exists(&name)).await?;
        Ok((look, has_result))
    }

    /// Returns the generation under which to claim the job; `None` when this delivery's claim was
    /// written but its answer was lost. Any other verdict is the error.
    pub(super) async fn decide(&self, look: &Look, has_result: bool) -> Result<Option<u32>, RunOutcome> {
        let mut handle = self.run.record.lock().await;
        if has_result {
            if let Look::Found(found) = look {
                handle.adopt((**found).clone());
            }
            return Err(RunOutcome::DoneBefore);
        }
        let found = match look {
            Look::Nothing => return Ok(Some(handle.claimant().generation)),
            Look::Damaged(_, damage) => {
                tracing::error!(job = %self.run.job, %damage, "the job's record can't be read; the job begins again");
                self.run.telemetry.checkpoints_unreadable.inc();
                return Ok(Some(handle.claimant().generation));
            }
            Look::Newer(newer) => return Err(RunOutcome::Misfit(Misfit::Unknown, newer.to_string())),
            Look::Found(found) if handle.is_own(&found.record) => {
                handle.adopt((**found).clone());
                return Ok(None);
            }
            Look::Found(found) => found,
        };
        let record = &found.record;
        // A job that was cancelled before any delivery has a record of no kind.
        if record.kind != self.kind.name && !record.kind.is_empty() {
            return Err(RunOutcome::Foreign(format!(
                "the record is of kind {:?}: two jobs have the id {}",
                record.kind, self.run.job
            )));
        }
        let generation = match judge(record, found.modified_unix_ms, &handle.claimant()) {
            Verdict::Claim(generation) => generation,
            Verdict::Finish => {
                let status = record.status.clone();
                handle.adopt((**found).clone());
                return Err(RunOutcome::Unfinished(status));
            }
            Verdict::Delete(why) => return Err(RunOutcome::Duplicate(why)),
            Verdict::MovedAway => {
                return Err(self.leave_to_another("the job was moved to another queue"));
            }
            Verdict::Stop => return Err(RunOutcome::Lost),
            Verdict::AnotherIsRunning if self.is_abandoned(record).await => {
                record.generation.saturating_add(1)
            }
            Verdict::AnotherIsRunning => {
                return Err(self.leave_to_another("another delivery of the job is running"));
            }
        };
        if let Status::Waiting { due_unix_ms } = record.status
            && unix_millis() < due_unix_ms
        {
            return Err(RunOutcome::Waiting(due_unix_ms));
        }
        self.can_read(record)?;
        Ok(Some(generation))
    }

    /// Defers this message for one lease, at most a minute. It may take over the job only after the
    /// owner was silent for as long as the record's `abandoned_after_ms`.
    fn leave_to_another(&self, why: &'static str) -> RunOutcome {
        RunOutcome::Later(self.shared.settings.lease.min(ANOTHER_DELAY_MAX), why)
    }

    /// Reports whether the owner's message died with its owner: the record is old, and no live
    /// worker reports the job.
    async fn is_abandoned(&self, record: &Record) -> bool {
        let due = match record.status {
            Status::Waiting { due_unix_ms } => due_unix_ms.max(record.changed_unix_ms),
            _ => record.changed_unix_ms,
        };
        let quiet = i64::try_from(record.abandoned_after_ms).unwrap_or(i64::MAX);
        if unix_millis() < due.saturating_add(quiet) {
            return false;
        }
        let roster = &self.shared.store.roster;
        let reports = roster.reports(report_every(&**roster) * 3).await;
        let job = &self.run.job;
        let here = self.shared.running.count(|running| running.is_of(job));
        if here > 1 {
            return false;
        }
        // This worker's own report contains this very delivery, and proves nothing about another
        // one.
        let runs = |report: &crate::ports::WorkerReport| {
            report.worker != self.shared.worker && report.in_flight.iter().any(|running| running.job == *job)
        };
        reports.is_ok_and(|reports| !reports.iter().any(runs))
    }

    /// Fails when a newer binary saved the job's state: the job is left to such a worker and is not
    /// claimed.
    fn can_read(&self, record: &Record) -> Result<(), RunOutcome> {
        let (theirs, ours) = (record.checkpoints.first().map_or(0, |newest| newest.schema), self.kind.schema);
        if theirs <= ours {
            return Ok(());
        }
        let reason = format!(
            "the checkpoint has schema {theirs}, and no worker that received the job reads more than {ours}"
        );
        Err(RunOutcome::Misfit(Misfit::Unknown, reason))
    }

    /// Decides whether the job must run alone: it must once it vanished too often at one place.
    /// Keeps the right to run alone if it is already `held`.
    async fn company(
        &mut self,
        claim: &Record,
        held: Option<Alone>,
    ) -> Result<(Company, Option<Alone>), RunOutcome> {
        if !claim.account.is_suspect() || self.escalates(claim).is_some() || claim.account.judge().is_err() {
            return Ok((Company::Shared, None));
        }
        if held.is_some() {
            return Ok((Company::Alone, held));
        }
        *Presence::lock(&self.presence) = Presence::NotBegun;
        tracing::warn!(job = %self.run.job, "the job vanished twice at the same place; it runs alone until it has moved");
        let (times, lease) = (claim.account.isolation_factor(), self.shared.settings.lease);
        let time = self.time_alone(times);
        // The first time alone is short, and comes at once or within a lease. A longer one comes
        // after the other jobs have run for as long.
        let (after, limit) = if times == 1 {
            (Duration::ZERO, lease)
        } else {
            (time, lease.max(SHORTEST).saturating_mul(times).saturating_add(time))
        };
        let (survived, limit) = (claim.account.survived, limit.min(ISOLATION_MAX));
        let alone = tokio::select! {
            biased;
            alone = self.shared.isolation.alone(survived, after, limit) => alone,
            () = self.run.interrupted.cancelled() => return Err(RunOutcome::Yielded),
        };
        match alone {
            Some(alone) => Ok((Company::Alone, Some(alone))),
            None if claim.account.crowded < CROWDED_MAX => Err(RunOutcome::Crowded),
            None => {
                // A death would prove nothing now. The other jobs save as far as they can, so that
                // it costs them little.
                self.shared.rules.modify(|rules| rules.saves += 1);
                Ok((Company::Shared, None))
            }
        }
    }

    /// Returns why the job is to be moved to another queue; `None` when it is not.
    fn escalates(&self, claim: &Record) -> Option<String> {
        self.shared.escalation.as_ref()?.reason(claim)
    }

    /// Returns how long a suspect runs alone: a checkpoint interval, but at least [`SHORTEST`], which
    /// is enough to prove something, and at most a minute. After deaths that proved nothing, `times`
    /// as long.
    fn time_alone(&self, times: u32) -> Duration {
        self.saver.interval().clamp(SHORTEST, ALONE_FIRST_MAX).saturating_mul(times).min(ISOLATION_MAX)
    }

    /// Lets the job run alone for at most `time`.
    fn run_alone(&mut self, alone: Alone, time: Duration) {
        *Presence::lock(&self.presence) = Presence::Alone(alone);
        let (run, presence) = (Arc::clone(&self.run), Arc::clone(&self.presence));
        let until = Instant::now() + time;
        let chaperone = self.control.spawn(in_process(async move {
            sleep_until(until).await;
            let patience = Patience::calm(TRY, Instant::now() + FOREVER);
            let joined = persist("write a record", patience, may_pass, || async {
                run.may_write("write a record").await?;
                let mut record = run.record.lock().await;
                if Presence::lock(&presence).is_alone() {
                    // If the record has another owner by now, the next save finds out.
                    let _written = record.survived().await?;
                    Presence::lock(&presence).join_others();
                }
                Ok(())
            });
            if let Err(error) = joined.await {
                tracing::debug!(job = %run.job, %error, "the job runs alone until its next save");
            }
        }));
        self.chaperone = Some(AbortOnDropHandle::new(chaperone));
    }

    /// Writes the claim; tries as long as the lease holds. Returns false when the record has
    /// changed since it was read.
    async fn write_claim(&self, look: &Look, claim: &Record) -> Result<bool, RunOutcome> {
        const OPERATION: &str = "claim a job";
        let run = Arc::clone(&self.run);
        let write = || async {
            run.may_write(OPERATION).await?;
            let mut handle = run.record.lock().await;
            match handle.claim(look, claim.clone()).await {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.wait_for(OPERATION, write).await
    }

    /// Applies what the claimed record notes about the job's past. A suspect's time alone starts
    /// here.
    fn begin_under(&mut self, record: Record, alone: Option<Alone>) -> Result<Record, RunOutcome> {
        self.run.generation.store(record.generation, Relaxed);
        self.run.time_limit.ran_before(Duration::from_millis(record.ran_ms));
        self.run.children.note_since(record.enqueued_unix_ms);
        if let Some(why) = self.escalates(&record) {
            return Err(RunOutcome::Escalated(why));
        }
        if let Some(escalated) = &record.escalated {
            // A delivery claims once.
            let _set = self.run.escalated.set(escalated.why.clone());
        }
        record.account.judge().map_err(RunOutcome::Refused)?;
        self.saver.be_careful_for(record.careful_steps);
        if record.account.vanished.saturating_add(record.account.vanished_unproved) > 0 {
            self.saver.be_careful_for_an_interval();
        }
        if let Some(alone) = alone {
            let time = self.time_alone(record.account.isolation_factor());
            self.run_alone(alone, time);
        }
        Ok(record)
    }

    /// Returns the newest intact state; `None` when the job has none.
    pub(super) async fn load<J: Job>(&self, record: &Record) -> Result<Option<J::Checkpoint>, RunOutcome> {
        let job = &self.run.job;
        if record.checkpoints.iter().any(|checkpoint| checkpoint.attachments.is_some()) {
            let run = Arc::clone(&self.run);
            let load = || async { run.record.lock().await.load_manifests(record).await };
            self.wait_for("load a manifest", load).await?;
        }
        for checkpoint in &record.checkpoints {
            let Some(state) = self.state(checkpoint).await? else {
                self.discard(checkpoint.sequence).await;
                continue;
            };
            let at = read::<J>(checkpoint.schema, state).map_err(|error| {
                // The state is intact, so another build of this kind wrote it. Restarting the job
                // would silently discard its work.
                let reason = format!(
                    "the checkpoint {} (schema {}) does not fit kind {:?}: {}; raise SCHEMA when the shape changes, and \
                     convert the old one in `migrate`",
                    checkpoint.sequence, checkpoint.schema, self.kind.name, error
                );
                RunOutcome::Misfit(Misfit::Shape, reason)
            })?;
            tracing::info!(%job, sequence = checkpoint.sequence, "resuming at a checkpoint");
            self.run.record.lock().await.attachments.resume_at(checkpoint.sequence);
            self.run.children.resume_at(&SavedChildren {
                waits: checkpoint.waits,
                before: checkpoint.children.clone(),
                in_step: checkpoint.children_in_step.clone(),
            });
            self.run.has_resumed.store(true, Relaxed);
            return Ok(Some(at));
        }
        self.run.record.lock().await.attachments.begin();
        self.run.children.begin();
        if !record.checkpoints.is_empty() {
            tracing::error!(%job, "no checkpoint of the job can be read; the job begins again");
        }
        Ok(None)
    }

    /// Drops a checkpoint that is damaged.
    async fn discard(&self, sequence: u64) {
        let mut record = self.run.record.lock().await;
        record.discard(sequence);
        let another = record.own().is_some_and(|record| !record.checkpoints.is_empty());
        tracing::warn!(job = %self.run.job, sequence, another, "a checkpoint is damaged or missing; using the one before, if there is another");
        self.run.telemetry.checkpoints_unreadable.inc();
    }

    /// Drops the checkpoints that have one of these damaged chunks. Returns whether the job has to go
    /// back, because its step failed or its next checkpoint would have one, too; a step that has put
    /// something intact in their place goes on.
    pub(super) async fn drop_damaged(&self, chunks: &BTreeSet<PayloadName>, failed: bool) -> bool {
        let (damaged, is_needed) = {
            let record = self.run.record.lock().await;
            (record.attachments.checkpoints_with(chunks), record.attachments.next_has(chunks))
        };
        let goes_back = if failed { !damaged.is_empty() } else { is_needed };
        // A step that goes on keeps them until its next save: they are better than none.
        if goes_back {
            for sequence in damaged {
                self.discard(sequence).await;
            }
        }
        goes_back
    }

    /// Records that the job goes back, and returns how often it did so in its life.
    pub(super) async fn count_going_back(&mut self) -> Result<u32, RunOutcome> {
        let run = Arc::clone(&self.run);
        let before = run.record.lock().await.own().map(|record| record.went_back);
        // A job without a record has nothing to go back to.
        let Some(before) = before else { return Ok(0) };
        let times = before.saturating_add(1);
        let count = || async {
            run.may_write("write a record").await?;
            run.record.lock().await.note_going_back(times).await
        };
        match self.wait_for("write a record", count).await.map_err(cut_short)? {
            Written::Taken => Ok(times),
            Written::Refused => Err(self.refused().await),
        }
    }

    /// Returns the state of the newest checkpoint that is left; `None` when there is none.
    pub(super) async fn go_back<J: Job>(&self) -> Result<Option<J::Checkpoint>, RunOutcome> {
        let mut handle = self.run.record.lock().await;
        let Some(record) = handle.own().cloned() else {
            handle.attachments.begin();
            self.run.children.begin();
            return Ok(None);
        };
        drop(handle);
        self.load::<J>(&record).await.map_err(cut_short)
    }

    /// Returns a checkpoint's state; `None` when it is damaged or missing.
    async fn state(&self, checkpoint: &Checkpoint) -> Result<Option<Bytes>, RunOutcome> {
        let state = match &checkpoint.place {
            Place::Inside(state) => Some(Bytes::from(state.clone())),
            Place::Payload(name) => {
                let (records, job) = (&self.shared.store.records, &self.run.job);
                self.wait_for("load a checkpoint", || records.payload(job, name)).await?
            }
        };
        let has_manifest = checkpoint.attachments.is_none()
            || self.run.record.lock().await.attachments.keeps(checkpoint.sequence);
        let state = state.filter(|state| has_manifest && checkpoint.fits(state));
        // The checksum fits, so a state that can't be decompressed was never one.
        Ok(match (state, checkpoint.plain_bytes) {
            (Some(state), Some(length)) => codec::unpack(&state, length).ok(),
            (state, _) => state,
        })
    }

    /// Performs a read or write that the job can't begin without. Tries without limit; a request to
    /// yield ends the wait.
    pub(super) async fn wait_for<T, F>(
        &self,
        operation: &'static str,
        op: impl FnMut() -> F,
    ) -> Result<T, RunOutcome>
    where
        F: Future<Output = Result<T>>,
    {
        let patience = Patience::calm(TRY, Instant::now() + FOREVER);
        tokio::select! {
            biased;
            done = persist(operation, patience, may_pass, op) => done.map_err(|error: Error| self.halt_on(error)),
            () = self.run.interrupted.cancelled() => Err(RunOutcome::Yielded),
        }
    }
}

/// The end of a delivery that was asked to yield before it had gone back.
fn cut_short(ended: RunOutcome) -> RunOutcome {
    match ended {
        RunOutcome::Yielded => {
            RunOutcome::CutShort("a part of an attachment is damaged or missing".to_owned())
        }
        ended => ended,
    }
}

/// Decodes a state that was saved with `schema`, and converts an older one.
fn read<J: Job>(schema: u32, state: Bytes) -> std::result::Result<J::Checkpoint, String> {
    if schema < J::SCHEMA {
        return J::migrate(schema, OldState::new(state)).map_err(|error| error.to_string());
    }
    codec::decode_state(&state)
}
