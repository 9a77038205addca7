//! A simulated process: a real worker with tasks that can be frozen together, or ended.

use std::future::pending;
use std::sync::Arc;

use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::ManualNotices;
use reprieve_core::process::Gate;
use reprieve_core::worker::{Settings, Stopper, Worker, stopping};
use reprieve_core::{BlobName, Result, WorkerId};
use tokio::sync::mpsc;

use super::history::{Cause, History, What};
use super::jobs::{Village, Walk};
use super::link::Link;
use super::plan::{Nature, Plan, Where};
use super::store::{SharedStore, number_in};

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) machine: usize,
    pub(super) old: bool,
    pub(super) shards: usize,
    pub(super) link: Arc<Link>,
    pub(super) notices: ManualNotices,
    pub(super) stopper: Stopper,
    pub(super) village: Arc<Village>,
    gate: Gate,
    ends: mpsc::UnboundedSender<usize>,
}

/// The start parameters of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Birth {
    pub(super) id: u32,
    pub(super) machine: usize,
    pub(super) old: bool,
}

impl Process {
    /// Starts a worker. Sends its machine's number to `ends` when the process ends.
    pub(super) fn start(
        plan: &Plan,
        birth: Birth,
        store: &SharedStore,
        village: &Arc<Village>,
        history: &History,
        ends: mpsc::UnboundedSender<usize>,
    ) -> Result<Arc<Self>> {
        let Birth { id, machine, old } = birth;
        let (stopper, stopping) = stopping();
        let process = Arc::new(Self {
            machine,
            old,
            shards: store.shards.len(),
            link: Link::new(id, plan.seed, history.clone()),
            notices: ManualNotices::answered(),
            stopper,
            village: Arc::clone(village),
            gate: Gate::new(),
            ends,
        });
        let slots = plan.machines[machine];
        let settings = Settings {
            concurrency: slots,
            budget: plan.budget,
            lease: plan.lease,
            checkpoint_every: plan.interval.map_or(CheckpointEvery::Auto, CheckpointEvery::Every),
            remember_done: plan.remember_done,
            ..Settings::default()
        };
        let builder = Worker::builder(store.of(&process, plan.hints)?)
            .id(WorkerId::new(format!("p{id}")))
            .settings(settings)
            .interruptions(Arc::new(process.notices.clone()));
        let builder = if old {
            builder.job(Walk::<0, 1>::new(&process)).job(Walk::<1, 1>::new(&process))
        } else {
            let builder = builder.job(Walk::<0, 2>::new(&process)).job(Walk::<1, 2>::new(&process));
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

    /// Ends the process: none of its tasks runs any more. Requests that it has sent are still under
    /// way.
    pub(super) fn end(&self, cause: Cause) {
        if self.has_ended() {
            return;
        }
        self.link.end();
        self.gate.freeze();
        self.link.note(What::Ended(cause));
        // The world receives these as long as processes exist.
        let _unheard = self.ends.send(self.machine);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    pub(super) fn freeze(&self) {
        self.gate.freeze();
        self.link.note(What::Frozen);
    }

    pub(super) fn thaw(&self) {
        if !self.has_ended() {
            self.link.note(What::Thawed);
            self.gate.thaw();
        }
    }

    /// Notes that the process has read a blob; reading some arguments kills it.
    pub(super) async fn read(&self, name: &BlobName) {
        let job = number_in(name);
        let nature = self.village.jobs.get(job).map(|job| &job.nature);
        if name.as_str().starts_with("args/") && nature == Some(&Nature::Kills(Where::Args)) {
            self.die_of(job).await;
        }
    }

    /// Kills the process on behalf of job `job`.
    pub(super) async fn die_of(&self, job: usize) {
        self.end(Cause::Job(job));
        pending::<()>().await;
    }
}
