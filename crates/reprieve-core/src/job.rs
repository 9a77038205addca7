//! The [`Job`] trait, which a team implements, and the types its steps return.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::decode_state;
use crate::context::JobContext;
use crate::error::{Error, ErrorKind};

/// A kind of work, written as steps. Between two steps a job can be saved, stopped, and continued
/// on another machine.
///
/// The framework runs the loop: it calls [`step`](Self::step) until that returns [`Step::Done`],
/// saves the checkpoint when a save is due, renews the lease, and checks between steps whether the
/// job must yield. A job that can't be divided returns `Done` from its first step.
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
    /// The name by which messages ask for this job: the CloudEvents `type`. Keep it stable: no
    /// worker runs messages that were queued under an old name.
    const KIND: &'static str;

    /// The version of the checkpoint's format. Raise it when an older binary can't read the new
    /// checkpoints. During a rolling update, a worker with the older binary then defers the job for
    /// a newer one instead of failing it. [`migrate`](Self::migrate) converts older checkpoints.
    const SCHEMA: u32 = 1;

    /// The arguments in the message. More than 32 KiB of JSON are stored in a blob.
    type Args: DeserializeOwned + Send + Sync;

    /// The job's state: everything that it needs to continue on another machine. It is saved as
    /// MessagePack with the names of fields, in which every number keeps every bit. `Some` of
    /// `None` is refused, because it would come back as `None`.
    type Checkpoint: Serialize + DeserializeOwned + Send;

    /// The job's result, stored as JSON in `results/<job id>.json`. Keep it small; for `()` nothing
    /// is written. A number that is NaN or infinite has no JSON form, and fails the job.
    type Output: Serialize + Send;

    /// Returns the initial state. It must not do work: it also runs when the job's checkpoint can't
    /// be read.
    fn begin(&self, args: &Self::Args) -> Self::Checkpoint;

    /// Converts a state that an older version of this job saved, with [`SCHEMA`](Self::SCHEMA)
    /// `from`. [`step`](Self::step) never sees an older state. The default decodes it as the
    /// present type, which suits a new field with `#[serde(default)]`.
    ///
    /// # Example
    /// ```
    /// # use reprieve_core::{Job, JobContext, JobError, OldState, Step};
    /// # use serde::{Deserialize, Serialize};
    /// # struct Train;
    /// # #[derive(Serialize, Deserialize)]
    /// # struct At { epoch: u64, losses: Vec<f64> }
    /// # #[async_trait::async_trait]
    /// # impl Job for Train {
    /// #     const KIND: &'static str = "train";
    /// const SCHEMA: u32 = 2;
    /// #     type Args = ();
    /// #     type Checkpoint = At;
    /// #     type Output = ();
    /// #     fn begin(&self, _: &()) -> At { At { epoch: 0, losses: vec![] } }
    /// #     async fn step(&self, _: &JobContext, _: &(), _: At) -> Result<Step<At, ()>, JobError> { Ok(Step::Done(())) }
    ///
    /// fn migrate(from: u32, old: OldState) -> Result<At, JobError> {
    ///     if from > 1 {
    ///         return old.read();
    ///     }
    ///     // Version 1 kept the last loss only.
    ///     let (epoch, loss): (u64, f64) = old.read()?;
    ///     Ok(At { epoch, losses: vec![loss] })
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why the state can't be converted. The message is then deferred, because another worker may
    /// have a build that can, and dead-lettered when that has lasted too long.
    #[expect(unused_variables, reason = "the default decodes every older state alike")]
    fn migrate(from: u32, old: OldState) -> Result<Self::Checkpoint, JobError> {
        old.read()
    }

    /// Returns how long the job still needs from `at` on, or `None` if that is unknown. The worker
    /// uses it to decide whether a running job may finish before its machine is deleted, and
    /// whether to begin the job on a machine that may be evicted soon. It is called after every
    /// step, so it must be cheap. With the default, `None`, the worker estimates from
    /// [`JobContext::progress`] and from the durations of earlier jobs of this kind.
    #[expect(unused_variables, reason = "the default does not know")]
    fn remaining(&self, args: &Self::Args, at: &Self::Checkpoint) -> Option<Duration> {
        None
    }

    /// Does the next piece of work and returns the state after it.
    ///
    /// Aim at steps of two seconds or less: an eviction costs the step that it interrupts. A step
    /// may run twice for the same `at`, after a crash or a cancellation, so its external effects
    /// must be idempotent; outputs written with [`JobContext::put_output`] are.
    ///
    /// # Cancel safety
    /// The framework drops the future at an `.await` when the job's lease is lost, or when the step
    /// has not returned by the soft mark of a drain. A long step can watch
    /// [`JobContext::interrupted`] and return `Continue` early instead.
    ///
    /// # Errors
    /// [`JobError::retry`] for temporary failures, [`JobError::fatal`] for permanent ones. An
    /// interruption is not an error.
    async fn step(
        &self,
        cx: &JobContext,
        args: &Self::Args,
        at: Self::Checkpoint,
    ) -> Result<Step<Self::Checkpoint, Self::Output>, JobError>;
}

/// A state that an older version of a job saved; see [`Job::migrate`].
#[derive(Debug, Clone)]
pub struct OldState(Bytes);

impl OldState {
    pub(crate) const fn new(state: Bytes) -> Self {
        Self(state)
    }

    /// Decodes the state as a `T`, the type that it had. Fields are found by name; those that `T`
    /// does not have are skipped.
    ///
    /// # Errors
    /// A fatal error with the path of the value that does not fit.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, JobError> {
        decode_state(&self.0).map_err(JobError::fatal)
    }
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<C, O> {
    /// There is more work; this is the new state.
    Continue(C),
    /// There is nothing to do before this time has passed: for a service that is polled, a rate
    /// limit, or other jobs. The state is saved, the slot is free for another job, and the job
    /// continues in a new delivery, on any worker, no sooner than after the delay; how much later
    /// depends on what else is in the queue. It costs no attempt, and counts as progress: earlier
    /// failures and interruptions are forgiven.
    ///
    /// The time of the end is stored by this machine's clock. A delay of more than seven days is
    /// possible; the message then returns every seven days, because no queue hides one for longer.
    Wait(C, Duration),
    /// The job is finished.
    Done(O),
}

/// Why a step failed. An interruption is not a failure.
#[derive(Debug)]
pub struct JobError {
    retry: bool,
    after: Option<Duration>,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl JobError {
    /// A temporary failure: the job is retried from its last checkpoint, with growing delays. After
    /// five failures without progress it is dead-lettered.
    pub fn retry(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { retry: true, after: None, source: source.into() }
    }

    /// A permanent failure: the message is dead-lettered with this reason.
    pub fn fatal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { retry: false, after: None, source: source.into() }
    }

    /// Retries no sooner than after `delay`, instead of after the framework's own backoff.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Whether a retry may help.
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        self.retry
    }

    /// The delay that [`after`](Self::after) set.
    #[must_use]
    pub const fn delay(&self) -> Option<Duration> {
        self.after
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The whole chain, because a dead letter keeps only this text.
        let mut told = self.source.to_string();
        f.write_str(&told)?;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors say what their source says.
            if !told.ends_with(&text) {
                write!(f, ": {text}")?;
                told = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

/// Maps a store's error inside a step: an error in the request itself is fatal, any other is
/// retried.
impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::TooLarge => Self::fatal(error),
            _ => Self::retry(error),
        }
    }
}
