//! Estimates how long a job will take, and decides whether that is too long for a machine that may
//! go soon.

use tokio::time::Instant;

use super::executor::{Execution, RunOutcome};
use crate::job::Job;

impl Execution {
    /// Stores the job's own estimate of its remaining time at `at`.
    pub(super) fn estimate<J: Job>(&self, job: &J, args: &J::Args, at: &J::Checkpoint) {
        let remaining = job.remaining(args, at);
        self.run
            .estimate
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .say(remaining, Instant::now());
    }

    /// Reports whether the job may be begun here. If only short jobs may begin, fails for a longer
    /// one and for one of unknown length.
    ///
    /// # Errors
    /// [`RunOutcome::TooLong`].
    pub(super) fn fits(&self) -> Result<(), RunOutcome> {
        let Some(limit) = self.rules.get().conduct.below else { return Ok(()) };
        let said = self.run.expected_end().map(|end| end.saturating_duration_since(Instant::now()));
        // A whole run of its kind is an upper bound for the rest of this one.
        match said.or_else(|| self.kind.runs.p95()) {
            Some(length) if length <= limit => Ok(()),
            Some(length) => {
                let reason = format!(
                    "it is expected to take {length:.0?}, and this machine may be taken back within {limit:.0?}"
                );
                Err(RunOutcome::TooLong(reason))
            }
            None => {
                let reason = format!(
                    "how long it takes is unknown, and this machine may be taken back within {limit:.0?}"
                );
                Err(RunOutcome::TooLong(reason))
            }
        }
    }
}
