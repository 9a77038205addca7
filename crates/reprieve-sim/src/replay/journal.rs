//! The journal of a replay: what the world did to machines, and what jobs went through. No worker writes into it,
//! and it knows nothing of the ledger.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::fleet::Link;

/// An entry. Machines and processes are named by their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Noted {
    /// Since the beginning.
    pub at: Duration,
    /// What happened.
    pub what: Happened,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the variants' docs name the fields")]
pub enum Happened {
    /// A machine booted.
    Booted {
        machine: usize,
        name: String,
        zone: &'static str,
    },
    /// A worker started on it.
    Started {
        machine: usize,
        process: u32,
    },
    /// The machine is to be evicted after `lead`. Its worker hears of it unless the metadata service is away.
    Noticed {
        machine: usize,
        process: u32,
        lead: Duration,
    },
    /// The machine is gone, and what ran on it.
    Evicted {
        machine: usize,
    },
    /// The machine was replaced, because it had reported itself as unhealthy.
    Repaired {
        machine: usize,
    },
    /// A process was killed, and the machine goes on.
    Killed {
        process: u32,
    },
    /// The store does not answer a process any more, or the process hangs; or the store answers again.
    CutOff {
        process: u32,
    },
    Reached {
        process: u32,
    },
    /// The disk of a machine takes no writes any more.
    Faulty {
        machine: usize,
    },
    /// A machine was seen to report itself as unhealthy.
    Unhealthy {
        machine: usize,
    },
    /// Memory or disk of a machine run out, or no longer.
    Short {
        machine: usize,
        of: Option<&'static str>,
    },
    /// The metadata service answers a process that has waited for it.
    Heard {
        process: u32,
    },
    /// The roster showed a process as silent, or as under pressure.
    ShownSilent {
        process: u32,
    },
    ShownPressed {
        process: u32,
        by: String,
    },
    /// A step of a job, in a delivery on this process.
    Step {
        process: u32,
        job: usize,
        delivery: u32,
        end: StepEnd,
    },
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnd {
    /// It began.
    Began,
    /// It hangs.
    Hung,
    /// It ended, and another follows.
    Done,
    /// It yielded before its end.
    Yielded,
    /// It was the last, and the job is done.
    JobDone,
    /// It failed, or panicked.
    Failed {
        /// Whether this was the last failure that the job is allowed.
        last: bool,
    },
    /// It was cut off.
    Dropped,
}

/// Notes for the jobs of one process what they go through, for as long as it runs.
#[derive(Debug, Clone)]
pub(super) struct Witness {
    pub(super) link: Arc<Link>,
    pub(super) journal: Journal,
}

impl Witness {
    pub(super) fn note(&self, job: usize, delivery: u32, end: StepEnd) {
        if !self.link.has_ended() {
            self.journal.note(Happened::Step { process: self.link.process, job, delivery, end });
        }
    }
}

/// A handle to the journal.
#[derive(Debug, Clone)]
pub struct Journal {
    began: Instant,
    entries: Arc<Mutex<Vec<Noted>>>,
}

impl Journal {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), entries: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Noted>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn note(&self, what: Happened) {
        let at = self.now();
        self.lock().push(Noted { at, what });
    }

    /// How many steps of a job ended so.
    pub(super) fn count(&self, job: usize, ended: impl Fn(StepEnd) -> bool) -> usize {
        let is_it = |noted: &&Noted| matches!(noted.what, Happened::Step { job: of, end, .. } if of == job && ended(end));
        self.lock().iter().filter(is_it).count()
    }

    /// The entries so far, in their order.
    #[must_use]
    pub fn entries(&self) -> Vec<Noted> {
        self.lock().clone()
    }
}
