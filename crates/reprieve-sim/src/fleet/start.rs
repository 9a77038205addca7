//! Starts a process with a real worker.

use std::sync::Arc;

use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::ManualNotices;
use reprieve_core::process::Gate;
use reprieve_core::worker::{Limits, Settings, Worker, stopping};
use reprieve_core::{Result, WorkerId};
use tokio::sync::mpsc;

use super::history::{Cause, History, What};
use super::jobs::Walk;
use super::link::Link;
use super::plan::Plan;
use super::process::Process;
use super::store::SharedStore;
use super::village::Village;

/// The start parameters of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Birth {
    pub(super) id: u32,
    pub(super) machine: usize,
    pub(super) old: bool,
}

/// Returns the limits of the first two kinds.
fn limits(plan: &Plan) -> [Limits; 2] {
    let Plan { in_fleet, per_worker, .. } = *plan;
    [Limits { in_fleet, ..Limits::default() }, Limits { per_worker, ..Limits::default() }]
}

/// Starts a worker. Sends its machine's number to `ends` when the process ends.
pub(super) fn start(
    plan: &Plan,
    birth: Birth,
    store: &SharedStore,
    village: &Arc<Village>,
    history: &History,
    ends: mpsc::UnboundedSender<usize>,
) -> Result<Arc<Process>> {
    let Birth { id, machine, old } = birth;
    let (stopper, stopping) = stopping();
    let process = Arc::new(Process {
        machine,
        old,
        shards: store.shards.len(),
        is_calm: machine == plan.machines.len(),
        link: Link::new(id, plan.seed, history.clone()),
        notices: ManualNotices::answered(),
        stopper,
        village: Arc::clone(village),
        gate: Gate::new(),
        ends,
    });
    let slots = plan.slots(machine);
    let settings = Settings {
        concurrency: slots,
        budget: plan.budget,
        lease: plan.lease,
        checkpoint_every: plan.interval.map_or(CheckpointEvery::Auto, CheckpointEvery::Every),
        remember_done: plan.remember_done,
        ..Settings::default()
    };
    let of_process =
        if process.is_calm { store.calm_of(&process) } else { store.of(&process, plan.hints)? };
    let builder = Worker::builder(of_process)
        .id(WorkerId::new(format!("p{id}")))
        .settings(settings)
        .interruptions(Arc::new(process.notices.clone()));
    let builder = match plan.escalate_after {
        Some(after) => builder.escalate(store.escalation_of(&process, after)),
        None => builder,
    };
    let [in_fleet, in_worker] = limits(plan);
    let builder = if old {
        let builder = builder.job(Walk::<0, 1>::new(&process)).limits::<Walk<0, 1>>(in_fleet);
        builder.job(Walk::<1, 1>::new(&process)).limits::<Walk<1, 1>>(in_worker)
    } else {
        let builder = builder.job(Walk::<0, 2>::new(&process)).limits::<Walk<0, 2>>(in_fleet);
        let builder = builder.job(Walk::<1, 2>::new(&process)).limits::<Walk<1, 2>>(in_worker);
        builder.job(Walk::<2, 2>::new(&process))
    };
    let worker = builder.build()?;
    process.link.note(What::Started { machine, slots, old, shards: store.shards.len() });
    let running = Arc::clone(&process);
    tokio::spawn(process.gate.clone().run(async move {
        worker.run(stopping).await;
        running.end(Cause::Stopped);
    }));
    Ok(process)
}
