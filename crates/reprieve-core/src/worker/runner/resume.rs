//! What comes before the first step: the arguments, the newest checkpoint, the judgement, the claim.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::cursor::Cursor;
use super::{Ran, Run, TRY, encode};
use crate::attempts::Baseline;
use crate::checkpoint::{Found, Loaded, Unreadable};
use crate::envelope::Data;
use crate::error::{Error, Result};
use crate::ids::Fence;
use crate::job::{Job, JobError};
use crate::producer::result_blob;
use crate::retry::{FOR_EVER, Patience, bounded, may_pass, persist};

impl Run {
    /// Reads the arguments, from the message or from their blob.
    pub(super) async fn args<A: DeserializeOwned>(&mut self) -> Result<A, Ran> {
        let json = match &self.data {
            Data::Inline(json) => json.get().as_bytes().to_vec(),
            Data::Blob(name) => {
                let tenure = Arc::clone(&self.tenure);
                match self.wait_for("read arguments", || tenure.blobs.get(name)).await? {
                    Some(json) => json,
                    None if self.has_result().await? => return Err(Ran::DoneBefore),
                    None => {
                        return Err(Ran::Refused(format!(
                            "there is no blob {name} with its arguments: the job was done before, or it was enqueued into \
                             another store"
                        )));
                    }
                }
            }
        };
        serde_json::from_slice(&json).map_err(|error| {
            Ran::Refused(format!("the arguments do not fit kind {:?}: {}", self.kind.name, misfit(&error)))
        })
    }

    /// Finds where to go on, if the job may be begun here: at the newest checkpoint that is whole, or at the beginning. A
    /// first delivery looks nowhere.
    pub(super) async fn resume_at<J: Job>(&mut self, job: &J, args: &J::Args) -> Result<J::Checkpoint, Ran> {
        if self.tenure.writer.fence <= Fence::new(0, 1) {
            let at = job.begin(args);
            self.estimate(job, args, &at);
            self.fits()?;
            return Ok(at);
        }
        let found = self.load().await?;
        let at = self.choose(&found)?;
        let since = self.attempts.begun(self.last(&found));
        self.attempts.judge(since).map_err(Ran::Refused)?;
        // A checkpoint may be large, and what was read of it is not needed beside what is made of it.
        drop(found);
        let at = at.unwrap_or_else(|| job.begin(args));
        // Before anything is written: a job that is too long for this machine is not begun here.
        self.estimate(job, args, &at);
        self.fits()?;
        let payload = encode(&at)?;
        self.cursor = Cursor::at(&payload, since);
        self.claim(&payload, since).await?;
        Ok(at)
    }

    /// Whether the job is done: another message of it was first, and its arguments were tidied away.
    async fn has_result(&self) -> Result<bool, Ran> {
        let tenure = Arc::clone(&self.tenure);
        let name = result_blob(&tenure.writer.job).map_err(|error| Ran::Refused(error.to_string()))?;
        Ok(self.wait_for("look for a result", || tenure.blobs.get(&name)).await?.is_some())
    }

    async fn load(&mut self) -> Result<Found, Ran> {
        let interrupted = self.tenure.interrupted.clone();
        loop {
            let loaded = tokio::select! {
                loaded = bounded("load a checkpoint", TRY, self.checkpoints.load()) => loaded,
                () = interrupted.cancelled() => return Err(Ran::Yielded),
            };
            match loaded {
                Ok(found) => return Ok(found),
                Err(error) => self.pause_after(error).await?,
            }
        }
    }

    /// What is remembered of earlier deliveries. A redrive begins a new account, and so does the loss of the old one.
    fn last(&self, found: &Found) -> Option<Baseline> {
        let generation = self.tenure.writer.fence.generation();
        match &found.newest {
            Some(newest) => {
                (newest.header.fence.generation() == generation).then(|| newest.header.baseline())
            }
            None if found.unreadable.is_empty() => None,
            None => Some(self.attempts.moved()),
        }
    }

    /// The newest checkpoint that this binary can use. Says so in the log when an older one had to do.
    fn choose<C: DeserializeOwned>(&self, found: &Found) -> Result<Option<C>, Ran> {
        let job = &self.tenure.writer.job;
        for unreadable in &found.unreadable {
            if let Unreadable::NewerFormat(_) = unreadable {
                return Err(Ran::Newer(format!("its checkpoint can't be used: {unreadable}")));
            }
            let another = found.newest.is_some();
            tracing::warn!(%job, %unreadable, another, "a checkpoint is unreadable; using the one before, if there is another");
        }
        let Some(Loaded { header, payload }) = &found.newest else { return Ok(None) };
        if header.kind != self.kind.name {
            return Err(Ran::Refused(format!(
                "its checkpoint was saved by kind {:?}: two jobs have its id",
                header.kind
            )));
        }
        if header.schema > self.kind.schema {
            let (theirs, ours) = (header.schema, self.kind.schema);
            return Err(Ran::Newer(format!("its checkpoint has schema {theirs}, this binary's is {ours}")));
        }
        let at = serde_json::from_slice(payload).map_err(|error| {
            // It is whole, so another build of this kind wrote it. Beginning again would throw days away unasked.
            Ran::Failed(JobError::retry(format!(
                "checkpoint {} (schema {}) does not fit this binary: {error}; \
                 raise SCHEMA when the shape changes, and read the old one",
                header.sequence, header.schema
            )))
        })?;
        tracing::info!(%job, from = %header.fence, sequence = header.sequence, "resuming at a checkpoint");
        Ok(Some(at))
    }

    /// Saves the starting point under this owner's fence, so that an owner before it, should it still run, is refused
    /// from now on.
    async fn claim(&mut self, payload: &[u8], since: Baseline) -> Result<(), Ran> {
        let interrupted = self.tenure.interrupted.clone();
        loop {
            let claimed = tokio::select! {
                claimed = bounded("claim a job", TRY, self.checkpoints.save(payload, since)) => claimed,
                () = interrupted.cancelled() => return Err(Ran::Yielded),
            };
            match claimed {
                Ok(()) => return Ok(()),
                Err(error) => self.pause_after(error).await?,
            }
        }
    }

    /// Reads something the job can't begin without, for as long as it takes; being asked to yield ends the wait.
    async fn wait_for<T, F>(&self, operation: &'static str, op: impl FnMut() -> F) -> Result<T, Ran>
    where
        F: Future<Output = Result<T>>,
    {
        let patience = Patience::calm(TRY, Instant::now() + FOR_EVER);
        tokio::select! {
            done = persist(operation, patience, may_pass, op) => done.map_err(|error| self.halt_on(error)),
            () = self.tenure.interrupted.cancelled() => Err(Ran::Yielded),
        }
    }

    /// Waits a little after an error that may pass, before the job has begun; an interruption ends the wait.
    async fn pause_after(&mut self, error: Error) -> Result<(), Ran> {
        if !may_pass(&error) {
            return Err(self.halt_on(error));
        }
        if self.trouble.is_news() {
            tracing::warn!(job = %self.tenure.writer.job, %error, "waiting for the checkpoint store");
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => Ok(()),
            () = self.tenure.interrupted.cancelled() => Err(Ran::Yielded),
        }
    }
}

/// Why arguments do not fit, without the arguments: they may be long, and nobody's business.
fn misfit(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.find(", expected ") {
        Some(at) => text[at + 2..].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::misfit;

    #[test]
    fn what_does_not_fit_is_said_without_its_value() {
        let error = serde_json::from_str::<u64>("\"a secret\"").unwrap_err();
        assert_eq!(misfit(&error), "expected u64 at line 1 column 10");
    }
}
