//! The part of a run before the first step: the judgement, the claim, the arguments, the saved
//! state.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::executor::{Execution, ISOLATION_MAX, RunOutcome, TRY, lock};
use crate::checkpoint::SHORTEST;
use crate::clock::unix_millis;
use crate::codec::{self, without_value};
use crate::envelope::{Data, Misfit};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{BlobName, Fence};
use crate::producer::result_blob;
use crate::record::{CROWDED_MAX, Checkpoint, Company, Look, Place, Record, Verdict, judge};
use crate::retry::{FOR_EVER, Patience, may_pass, persist};
use crate::worker::isolation::{Alone, Presence};
use crate::worker::reporter::report_every;

/// The longest deferral of a job's second message: the first does the work.
const ANOTHER_DELAY_MAX: Duration = Duration::from_mins(1);

/// How long a job waits in its slot for arguments that a blob store does not return.
const ARGS_WITHIN: Duration = Duration::from_secs(10);

/// The same for arguments that could not be read in an earlier delivery either.
const ARGS_AGAIN_WITHIN: Duration = Duration::from_secs(2);

impl Execution {
    /// Reports whether to look for a record. A first delivery reads and writes nothing, unless
    /// finished jobs are remembered.
    pub(super) fn needs_claim(&self) -> bool {
        !self.is_first() || !self.shared.settings.remember_done.is_zero()
    }

    fn is_first(&self) -> bool {
        self.run.fence() <= Fence::new(0, 1)
    }

    /// Claims the job before loading or decoding anything of it, and returns its record. The first
    /// delivery of a job without one has none.
    pub(super) async fn claim(&mut self) -> Result<Option<Record>, RunOutcome> {
        let is_first = self.is_first();
        let mut alone = None;
        loop {
            let (look, has_result) = self.look().await?;
            if is_first && !has_result && matches!(look, Look::Nothing) {
                return Ok(None);
            }
            let Some(generation) = self.decide(&look, has_result).await? else {
                // The claim was written, but its answer was lost.
                let own = self.run.record.lock().await.own().cloned();
                return own.map(|claim| self.begin_under(claim, alone)).transpose();
            };
            let mut claim = self.run.record.lock().await.claim_of(&look, generation);
            (claim.owner.company, alone) = self.company(&claim, alone).await?;
            if alone.is_none() {
                // Begins before the claim: a job that waits for a suspect has no part in the
                // suspect's death.
                self.begin().await?;
            }
            if self.write_claim(&look, &claim).await? {
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

    /// Counts this job as active, unless it already is or it runs alone. Waits while a suspect runs
    /// alone.
    pub(super) async fn begin(&mut self) -> Result<(), RunOutcome> {
        if !matches!(*lock(&self.presence), Presence::NotBegun) {
            return Ok(());
        }
        tokio::select! {
            biased;
            active = self.shared.isolation.begin() => *lock(&self.presence) = Presence::Beside { _active: active },
            () = self.run.interrupted.cancelled() => return Err(RunOutcome::Yielded),
        }
        Ok(())
    }

    /// Reads the record, and checks whether a result exists.
    async fn look(&self) -> Result<(Look, bool), RunOutcome> {
        let run = Arc::clone(&self.run);
        let look = self.wait_for("read a record", || async { run.record.lock().await.look().await }).await?;
        let name = result_blob(&run.job).map_err(|error| RunOutcome::Refused(error.to_string()))?;
        let has_result = self.wait_for("look for a result", || run.blobs.exists(&name)).await?;
        Ok((look, has_result))
    }

    /// Returns the generation under which to claim the job; `None` when this delivery's claim was
    /// written but its answer was lost. Any other verdict is the error.
    async fn decide(&self, look: &Look, has_result: bool) -> Result<Option<u32>, RunOutcome> {
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
        if record.kind != self.kind.name {
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
            crate::record::Status::Waiting { due_unix_ms } => due_unix_ms.max(record.changed_unix_ms),
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
        if !claim.account.is_suspect() || claim.account.judge().is_err() {
            return Ok((Company::Shared, None));
        }
        if held.is_some() {
            return Ok((Company::Alone, held));
        }
        *lock(&self.presence) = Presence::NotBegun;
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
        record.account.judge().map_err(RunOutcome::Refused)?;
        self.careful_steps = record.careful_steps;
        if record.account.vanished.saturating_add(record.account.vanished_unproved) > 0 {
            self.careful_until = Some(Instant::now() + self.interval());
        }
        if let Some(alone) = alone {
            let time = self.time_alone(record.account.isolation_factor());
            self.run_alone(alone, time);
        }
        Ok(record)
    }

    /// Reads the arguments, from the message or from their blob.
    pub(super) async fn args<A: DeserializeOwned>(&self) -> Result<A, RunOutcome> {
        let read = match &self.data {
            Data::Inline(json) => serde_json::from_str(json.get()),
            Data::Blob(name) => serde_json::from_slice(&Box::pin(self.args_blob(name)).await?),
        };
        read.map_err(|error| {
            let reason =
                format!("the arguments do not fit kind {:?}: {}", self.kind.name, without_value(&error));
            RunOutcome::Misfit(Misfit::Shape, reason)
        })
    }

    /// Reads the arguments from a blob. A finished job may have none any more, which its result or
    /// its record proves.
    async fn args_blob(&self, name: &BlobName) -> Result<Vec<u8>, RunOutcome> {
        let run = Arc::clone(&self.run);
        // Unreadable arguments must not occupy the slot for long: many jobs may have them.
        let within = if self.unreadable_before { ARGS_AGAIN_WITHIN } else { ARGS_WITHIN };
        let patience = Patience::calm(TRY, Instant::now() + within.min(self.shared.settings.lease));
        let read = tokio::select! {
            biased;
            read = persist("read arguments", patience, Error::is_temporary, || run.blobs.get(name)) => read,
            () = self.run.interrupted.cancelled() => return Err(RunOutcome::Yielded),
        };
        match read {
            Ok(Some(json)) => return Ok(json),
            Ok(None) => {}
            Err(error) => {
                let reason = format!("the blob {name} with the job's arguments could not be read: {error}");
                return Err(RunOutcome::Misfit(Misfit::Unreadable, reason));
            }
        }
        if self.run.record.lock().await.own().is_none() {
            let (look, has_result) = self.look().await?;
            if has_result || matches!(look, Look::Found(_)) {
                self.decide(&look, has_result).await?;
            }
        }
        let reason = format!(
            "there is no blob {name} with the job's arguments; it may be in another container or store"
        );
        Err(RunOutcome::Misfit(Misfit::Unreadable, reason))
    }

    /// Returns the newest intact state; `None` when the job has none.
    pub(super) async fn load<C: DeserializeOwned>(&self, record: &Record) -> Result<Option<C>, RunOutcome> {
        let job = &self.run.job;
        for checkpoint in &record.checkpoints {
            let Some(state) = self.state(checkpoint).await? else {
                let another = record.checkpoints.len() > 1;
                tracing::warn!(%job, sequence = checkpoint.sequence, another, "a checkpoint is damaged or missing; using the one before, if there is another");
                self.run.telemetry.checkpoints_unreadable.inc();
                continue;
            };
            let at = codec::decode_state(&state).map_err(|error| {
                // The state is intact, so another build of this kind wrote it. Restarting the job
                // would silently discard its work.
                let reason = format!(
                    "the checkpoint {} (schema {}) does not fit kind {:?}: {}; raise SCHEMA when the shape changes, and \
                     read the old one",
                    checkpoint.sequence, checkpoint.schema, self.kind.name, error
                );
                RunOutcome::Misfit(Misfit::Shape, reason)
            })?;
            tracing::info!(%job, sequence = checkpoint.sequence, "resuming at a checkpoint");
            return Ok(Some(at));
        }
        if !record.checkpoints.is_empty() {
            tracing::error!(%job, "no checkpoint of the job can be read; the job begins again");
        }
        Ok(None)
    }

    /// Returns a checkpoint's state; `None` when it is damaged or missing.
    async fn state(&self, checkpoint: &Checkpoint) -> Result<Option<Vec<u8>>, RunOutcome> {
        let state = match &checkpoint.place {
            Place::Inside(state) => Some(state.clone()),
            Place::Payload(name) => {
                let (records, job) = (&self.shared.store.records, &self.run.job);
                self.wait_for("load a checkpoint", || records.payload(job, name)).await?
            }
        };
        Ok(state.filter(|state| checkpoint.fits(state)))
    }

    /// Performs a read or write that the job can't begin without. Tries without limit; a request to
    /// yield ends the wait.
    async fn wait_for<T, F>(&self, operation: &'static str, op: impl FnMut() -> F) -> Result<T, RunOutcome>
    where
        F: Future<Output = Result<T>>,
    {
        let patience = Patience::calm(TRY, Instant::now() + FOR_EVER);
        tokio::select! {
            biased;
            done = persist(operation, patience, may_pass, op) => done.map_err(|error: Error| self.halt_on(error)),
            () = self.run.interrupted.cancelled() => Err(RunOutcome::Yielded),
        }
    }
}
