//! The simulated fleet: real workers in simulated processes, on one paused clock, in a world
//! generated from a seed.
//!
//! [`Plan`] is generated from a seed; [`run`] executes it and returns the [`History`] and the
//! findings of the independent [`check`]. The workers' code is the real one. Jobs, the store's
//! faults, machines and time are simulated, so a seed replays exactly.

mod blobs;
mod checker;
mod history;
mod jobs;
mod link;
mod people;
mod plan;
mod process;
mod queue;
mod records;
mod start;
mod store;
mod village;
mod world;

use std::time::{Duration, UNIX_EPOCH};

pub(crate) use blobs::{FarBlobs, FarRoster, PACE};
pub use checker::{Violation, check};
pub use history::{Cause, Event, History, What};
pub(crate) use link::Link;
pub use plan::{Action, JobPlan, Nature, Plan, Trouble, Where};
pub(crate) use queue::FarQueue;
pub(crate) use records::FarRecords;
pub use store::{FinalStore, Letter};

use reprieve_core::{Error, ErrorKind, Result, chance, clock};
use tokio::runtime::{Builder, Runtime};

/// The run of one world, from its beginning until it rests.
#[derive(Debug)]
pub struct Run {
    /// The seed's plan.
    pub plan: Plan,
    /// The events.
    pub history: History,
    /// The store's final contents.
    pub store: FinalStore,
    /// The broken promises.
    pub violations: Vec<Violation>,
}

/// The wall-clock time at which every world begins, after the Unix epoch.
const BEGINNING: Duration = Duration::from_hours(20_000 * 24);

/// Runs the world of `seed` on this thread.
///
/// # Errors
/// Fails when a runtime or a worker can't be set up, which no seed should cause.
pub fn run(seed: u64) -> Result<Run> {
    let plan = Plan::of(seed);
    let runtime = paused_runtime(seed)?;
    let _entered = runtime.enter();
    let (history, store) = runtime.block_on(world::play(&plan))?;
    let violations = check(&plan, &history, &store);
    Ok(Run { plan, history, store, violations })
}

/// A runtime of this thread on a paused clock. Time begins at [`BEGINNING`] here, and chance by the seed.
pub(crate) fn paused_runtime(seed: u64) -> Result<Runtime> {
    let runtime =
        Builder::new_current_thread().enable_time().start_paused(true).build().map_err(|error| {
            Error::new(ErrorKind::Internal, "simulate a fleet", "no runtime").with_source(error)
        })?;
    let entered = runtime.enter();
    clock::simulate(UNIX_EPOCH + BEGINNING);
    chance::seed(seed);
    drop(entered);
    Ok(runtime)
}
