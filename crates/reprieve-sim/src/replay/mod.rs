//! The replay of a recorded fleet: five machines come and go as real ones did, with real workers on a paused clock,
//! and every fault once of which docs/healing.md has a line that needs no real thread or process.
//!
//! | file | concept |
//! |---|---|
//! | `trace` | the recorded fleets, and how five slots follow one |
//! | `plan` | the jobs and the faults |
//! | `world` | boots machines, takes them away, and disturbs them |
//! | `process` | a machine, and the worker on it |
//! | `jobs` | the jobs |
//! | `journal` | what the world did, and what jobs went through |
//! | `tally` | counts of the journal |
//! | `compare` | where the ledger's report differs from them |
//!
//! Who looks after the disks of a machine is not of this crate: see [`Care`].

mod compare;
mod jobs;
mod journal;
mod plan;
mod process;
mod tally;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use jobs::{Habit, March};
pub use journal::{Happened, Journal, Noted, StepEnd};
pub use plan::Plan;
pub use process::Vm;
pub use trace::Trace;

use reprieve_core::ledger::{Entries, Ledger, Summary};
use reprieve_core::ports::{BlobStore, DeadLettered, Queue, Roster, Store, WorkerReport};
use reprieve_core::worker::{Monitor, WorkerBuilder};
use reprieve_core::{BlobName, Result, clock};

use crate::fleet::{Event, paused_runtime};
use world::World;

/// How long ago a worker may have reported that the report of the ledger asks the roster for.
const REPORTS_MAX_AGE: Duration = Duration::from_hours(24);

/// The most dead letters that are read.
const LETTERS_MAX: usize = 1_000;

/// Who looks after the disks of a machine: its healer.
pub trait Care {
    /// The healer of a worker that starts on this machine.
    fn of(&self, vm: &Arc<Vm>, store: &Store) -> Box<dyn Caring>;
}

/// The healer of one worker.
pub trait Caring {
    /// Lets it empty the worker.
    fn drains(&self, worker: WorkerBuilder) -> WorkerBuilder;

    /// Looks after the machine until the process ends.
    fn begin(self: Box<Self>, monitor: Monitor) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A replay that is over.
#[derive(Debug)]
pub struct Replay {
    /// The plan.
    pub plan: Plan,
    /// The journal.
    pub journal: Vec<Noted>,
    /// The calls of the workers to the store.
    pub calls: Vec<Event>,
    /// The ledger.
    pub entries: Entries,
    /// The roster.
    pub reports: Vec<WorkerReport>,
    /// The figures that `reprieve report` shows of these.
    pub summary: Summary,
    /// The results, by the job's number.
    pub results: BTreeMap<usize, Vec<u8>>,
    /// The poison queue.
    pub letters: Vec<DeadLettered>,
    /// How long it lasted.
    pub lasted: Duration,
}

/// Plays the plan on this thread, on a paused clock.
///
/// # Errors
/// Fails when a worker can't be set up, or the jobs do not end.
pub fn run(plan: &Plan, care: &dyn Care) -> Result<Replay> {
    let runtime = paused_runtime(19)?;
    let _entered = runtime.enter();
    runtime.block_on(async {
        let since = clock::unix_millis();
        let mut world = World::new(plan, care);
        world.play().await?;
        let shared = &world.shared;
        let entries = Ledger::new(shared.records.clone()).read(since).await?;
        let reports = shared.roster.reports(REPORTS_MAX_AGE).await?;
        let summary = Summary::of(&entries, &reports, since, clock::unix_millis());
        let mut results = BTreeMap::new();
        for march in &plan.jobs {
            if let Some(result) =
                shared.blobs.get(&BlobName::parse(format!("results/{}.json", march.id()))?).await?
            {
                results.insert(march.number, result);
            }
        }
        let letters = shared.queue.dead_letters(LETTERS_MAX).await?;
        let (journal, calls, lasted) = (world.journal.entries(), world.history.events(), world.journal.now());
        Ok(Replay { plan: plan.clone(), journal, calls, entries, reports, summary, results, letters, lasted })
    })
}
