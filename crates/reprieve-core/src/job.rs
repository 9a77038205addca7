//! What a batch team writes: a [`Job`], in steps.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::JobContext;
use crate::error::{Error, ErrorKind};

/// A kind of work, written as steps between which it can be cut, saved and carried to another machine.
///
/// The framework owns the loop: it calls [`step`](Self::step) until that returns [`Step::Done`], saves the checkpoint
/// when one is due, renews the lease, and between steps looks whether the machine is about to go. A job that can't be
/// cut returns `Done` from its first step.
///
/// # Example: count the words of a file, a thousand lines at a time
/// ```
/// use reprieve_core::{Job, JobContext, JobError, Step};
/// use serde::{Deserialize, Serialize};
///
/// struct CountWords;
///
/// #[derive(Serialize, Deserialize)]
/// struct At { line: usize, words: usize }
///
/// #[async_trait::async_trait]
/// impl Job for CountWords {
///     const KIND: &'static str = "count-words";
///     type Args = String;
///     type Checkpoint = At;
///     type Output = usize;
///
///     fn begin(&self, _blob: &String) -> At {
///         At { line: 0, words: 0 }
///     }
///
///     async fn step(&self, cx: &JobContext, blob: &String, mut at: At) -> Result<Step<At, usize>, JobError> {
///         let text = String::from_utf8(cx.input(blob).await?).map_err(JobError::fatal)?;
///         let lines: Vec<_> = text.lines().skip(at.line).take(1000).collect();
///         if lines.is_empty() {
///             return Ok(Step::Done(at.words));
///         }
///         at.line += lines.len();
///         at.words += lines.iter().map(|line| line.split_whitespace().count()).sum::<usize>();
///         Ok(Step::Continue(at))
///     }
/// }
/// ```
#[async_trait]
pub trait Job: Send + Sync + 'static {
    /// The stable name by which messages ask for this job: the CloudEvents `type`. Renaming it strands what is queued.
    const KIND: &'static str;

    /// The version of the checkpoint's shape. Raise it when an older binary could no longer read what this one saves:
    /// during a rolling update the older one then puts the job back for a newer one instead of failing it.
    const SCHEMA: u32 = 1;

    /// What a message asks for. Over 32 KiB of JSON travel by a blob.
    type Args: DeserializeOwned + Send + Sync;

    /// Where the job is: everything it needs to go on, on another machine. Keep it small; it is saved as JSON.
    type Checkpoint: Serialize + DeserializeOwned + Send;

    /// The job's result, kept as JSON under `results/<job id>.json`. Small; `()` writes nothing.
    type Output: Serialize + Send;

    /// Where a job begins. Must not do work: it also runs when the job's checkpoint turns out to be unreadable.
    fn begin(&self, args: &Self::Args) -> Self::Checkpoint;

    /// How long the job still needs from `at` on, when it can tell. It decides whether a running job may finish before its
    /// machine is deleted, and whether it is begun on one that may be taken back soon. Asked after every step, so it must
    /// be cheap. Default: unknown; then the pace of [`JobContext::progress`] tells, and how long jobs of this kind have
    /// taken.
    #[expect(unused_variables, reason = "the default does not know")]
    fn remaining(&self, args: &Self::Args, at: &Self::Checkpoint) -> Option<Duration> {
        None
    }

    /// Does the next piece of work and says where the job is then.
    ///
    /// Aim at steps of two seconds or less: a step that is under way at an eviction is what the eviction costs. A step
    /// may run twice for the same `at` (after a crash, or when it was cut), so its effects outside must bear that;
    /// outputs written through [`JobContext::put_output`] do.
    ///
    /// # Cancel safety
    /// The future is dropped at an `.await` when the job's lease is lost, or when it has not returned by the soft mark
    /// of a drain. A long step can watch [`JobContext::interrupted`] and return `Continue` early instead.
    ///
    /// # Errors
    /// [`JobError::retry`] for what may pass, [`JobError::fatal`] for what will not. Never for an interruption.
    async fn step(
        &self,
        cx: &JobContext,
        args: &Self::Args,
        at: Self::Checkpoint,
    ) -> Result<Step<Self::Checkpoint, Self::Output>, JobError>;
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<C, O> {
    /// There is more to do; this is where the job is now.
    Continue(C),
    /// The job is finished.
    Done(O),
}

/// Why a step failed. An interruption is not a failure and has no place here.
#[derive(Debug)]
pub struct JobError {
    retry: bool,
    after: Option<Duration>,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl JobError {
    /// Something that may pass: the job is tried again from its last checkpoint, later and later, five times in all.
    pub fn retry(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { retry: true, after: None, source: source.into() }
    }

    /// Something that will not pass: the message goes to the poison queue with this reason.
    pub fn fatal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { retry: false, after: None, source: source.into() }
    }

    /// Tries again no sooner than `delay`, in place of the framework's own backoff.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Whether another try may help.
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        self.retry
    }

    /// The delay that was asked for.
    #[must_use]
    pub const fn delay(&self) -> Option<Duration> {
        self.after
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The chain is written out because a poison queue's reason has no other place for it.
        write!(f, "{}", self.source)?;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// A store's error inside a step: what is wrong with the request itself is fatal, all else may pass.
impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::TooLarge => Self::fatal(error),
            _ => Self::retry(error),
        }
    }
}
