//! The history of a world: its events, in order.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reprieve_core::record::{End, Record};
use reprieve_core::{Fence, MessageId};
use tokio::time::Instant;

/// An event in a world.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Time since the world began.
    pub at: Duration,
    /// The process that acted or was affected; `None` for operators and the world.
    pub process: Option<u32>,
    /// The event.
    pub what: What,
}

/// The reason why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Killed from outside.
    Killed,
    /// Evicted at the end of a notice.
    Evicted,
    /// Killed by this job.
    Job(usize),
    /// Asked to stop.
    Stopped,
}

/// The kind of an event. Jobs are named by their number in the plan.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the variants' docs name the fields")]
pub enum What {
    /// A process started on `machine`; `old` lacks a kind and newer schemas.
    Started { machine: usize, slots: usize, old: bool, shards: usize },
    /// A process ended.
    Ended(Cause),
    /// A process's machine received a notice that ends after this time.
    Noticed(Duration),
    /// The notice was withdrawn.
    Withdrawn,
    /// A process was frozen.
    Frozen,
    /// A frozen process continued.
    Thawed,
    /// A process's calls to the store are in trouble.
    Troubled,
    /// The trouble of a process has ended.
    Untroubled,
    /// A worker was asked to stop.
    AskedToStop,
    /// Curable jobs do not fail any more.
    Cured,
    /// All trouble has ended.
    Calm,
    /// The world rests: no message is left.
    Rest,

    /// `begin` was called.
    Began { job: usize },
    /// A step began.
    StepBegan { job: usize, fence: Fence, at: u32 },
    /// A step ended.
    StepEnded { job: usize, fence: Fence, at: u32 },
    /// A step failed.
    StepFailed { job: usize, fence: Fence, at: u32 },
    /// A step ended, failed, yielded or was dropped.
    StepLeft { job: usize, fence: Fence },

    /// A message was sent.
    Sent { job: usize, message: MessageId, generation: u32 },
    /// A program began to cancel a job.
    CancelAsked { job: usize },
    /// It was told that the job is cancelled.
    Cancelled { job: usize },
    /// A message was received.
    Received { message: MessageId, count: u32, lease: Duration },
    /// A lease was renewed.
    Renewed { message: MessageId, lease: Duration },
    /// A message was deleted.
    Completed { message: MessageId },
    /// A message was released; `ends` are the ends of deliveries in its body.
    Released { message: MessageId, delay: Duration, ends: Vec<End> },
    /// A message went to the poison queue.
    DeadLettered { message: MessageId, reason: String },
    /// A message was removed from the poison queue.
    LetterRemoved { message: MessageId },
    /// A queue refused a call because its receipt is void.
    LeaseRefused { message: MessageId, operation: &'static str },

    /// A record was written; `state` is the newest saved step, `saved` is true if this write saved
    /// it. `issued` is the time at which the process sent the write.
    Written { job: usize, call: u64, record: Box<Record>, state: Option<u32>, saved: bool, issued: Duration },
    /// The write of a record was refused.
    WriteRefused { job: usize },
    /// A process got the answer to a write that was applied.
    Acknowledged { job: usize, call: u64 },
    /// A record was removed.
    Removed { job: usize },
    /// A result was written, or refused because one exists.
    Result { job: usize, taken: bool, value: Vec<u8> },
    /// A process sends an output.
    Sends { job: usize, fence: Fence },
    /// An output was written or refused.
    Output { job: usize, fence: Fence, taken: bool },
    /// A blob was deleted.
    BlobDeleted { name: String },
}

/// A handle to the shared list of events.
#[derive(Debug, Clone)]
pub struct History {
    began: Instant,
    events: Arc<Mutex<Vec<Event>>>,
}

impl History {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), events: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the age of the world.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn note(&self, process: Option<u32>, what: What) {
        let at = self.now();
        self.lock().push(Event { at, process, what });
    }

    /// Returns the events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.lock().clone()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.3}s ", self.at.as_secs_f64())?;
        match self.process {
            Some(process) => write!(f, "p{process:<3} ")?,
            None => f.write_str("     ")?,
        }
        match &self.what {
            What::Written { job, call, record, state, saved, issued } => {
                let owner = &record.owner;
                write!(
                    f,
                    "Written job {job} call {call}{} seq {} gen {} owner {}.{} by {} {:?} {:?} state {state:?} careful {} \
                     failed {} vanished {}+{} interrupted {} lost {} crowded {} issued {:.3}s",
                    if *saved { " save" } else { "" },
                    record.sequence,
                    record.generation,
                    owner.message,
                    owner.count,
                    owner.worker,
                    owner.company,
                    record.status,
                    record.careful_steps,
                    record.account.failed,
                    record.account.vanished,
                    record.account.vanished_unproved,
                    record.account.interrupted,
                    record.account.lost,
                    record.account.crowded,
                    issued.as_secs_f64()
                )
            }
            What::Released { message, delay, ends } => {
                write!(f, "Released {message} delay {delay:?}")?;
                for end in ends {
                    write!(f, " [{}.{} {:?}]", end.message, end.count, end.kind)?;
                }
                Ok(())
            }
            What::Received { message, count, lease } => write!(f, "Received {message}.{count} for {lease:?}"),
            what => write!(f, "{what:?}"),
        }
    }
}
