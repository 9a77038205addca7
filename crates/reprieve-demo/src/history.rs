//! The history of a demo: the source of the table, the JSON line and the report.
//!
//! All times are milliseconds since the demo's clock began, which is when the first VM was started.

use crate::store::StoreKind;

/// A whole demo.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) seed: u64,
    /// Where the jobs were kept.
    pub(crate) store: StoreKind,
    /// From the first VM's start until the last job's result was stored.
    pub(crate) took_ms: u64,
    /// How long an evicted VM had between the announcement and its end.
    pub(crate) notice_ms: u64,
    /// How often the workers saved.
    pub(crate) checkpoint_every_ms: u64,
    /// Steps in every job, when none is done twice.
    pub(crate) steps_per_job: u32,
    /// In the order of their numbers.
    pub(crate) jobs: Vec<JobHistory>,
    /// In the order in which they started.
    pub(crate) vms: Vec<VmHistory>,
    /// SHA-256 of all outputs, in order; equal to the reference unless something went wrong.
    pub(crate) output_digest: String,
    pub(crate) reference_digest: String,
}

/// The history of one job, which renders one frame.
#[derive(Debug, Clone)]
pub(crate) struct JobHistory {
    /// Its id in the queue.
    pub(crate) id: String,
    /// The frame it made; `None` when it was lost.
    pub(crate) png: Option<Vec<u8>>,
    /// Whether the frame is, byte for byte, what an uninterrupted render makes.
    pub(crate) matches_reference: bool,
    /// How often a worker completed it: 1 when all is well.
    pub(crate) completions: u32,
}

/// The life of one VM, that is, of one worker process.
#[derive(Debug, Clone)]
pub(crate) struct VmHistory {
    pub(crate) name: String,
    pub(crate) began_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) end: VmEnd,
    /// For a VM that was evicted before it could act on its notice, and so counts as killed: when
    /// that was announced. `None` for all others.
    pub(crate) missed_notice_ms: Option<u64>,
    /// Its shifts, in the order of their starts; shifts at different jobs overlap.
    pub(crate) shifts: Vec<Shift>,
}

/// The end of a VM.
#[derive(Debug, Clone)]
pub(crate) enum VmEnd {
    /// All jobs were completed, and the demo stopped it.
    Finished,
    /// It got a Preempt notice, released its jobs, and was killed at the end of the notice.
    Evicted(Eviction),
    /// It was killed without a notice, or with one that was too short to act on.
    Killed(Vec<Recovery>),
}

/// One eviction, and what it cost.
#[derive(Debug, Clone)]
pub(crate) struct Eviction {
    /// When the metadata service began to announce it.
    pub(crate) announced_ms: u64,
    /// When the worker had read the notice: it polls once a second.
    pub(crate) noticed_ms: u64,
    /// From then until the last lease was released.
    pub(crate) released_after_ms: u64,
    /// Leases it held then.
    pub(crate) held: u64,
    /// Those of them that it could not release in time: they end by themselves.
    pub(crate) abandoned: u64,
    /// Work that had to be done again because of it.
    pub(crate) work_lost_ms: u64,
}

/// A job that a killed VM held, and how it went on.
#[derive(Debug, Clone)]
pub(crate) struct Recovery {
    /// Its number.
    pub(crate) job: usize,
    /// From the kill until another VM had begun a step of it.
    pub(crate) after_ms: u64,
    /// Steps that were done again because they were not saved yet.
    pub(crate) steps_redone: u32,
}

/// One VM's time with one job.
#[derive(Debug, Clone)]
pub(crate) struct Shift {
    /// The job's number.
    pub(crate) job: usize,
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    /// The first step it did: 0 for a fresh start, more when it resumed at a checkpoint.
    pub(crate) first_step: u32,
    /// Steps it finished.
    pub(crate) steps: u32,
    /// The steps of these that had been done before.
    pub(crate) redone: u32,
    pub(crate) end: ShiftEnd,
}

/// The end of a shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShiftEnd {
    /// The job was finished.
    Completed,
    /// A drain released its lease.
    Released,
    /// The VM was killed.
    Killed,
}
