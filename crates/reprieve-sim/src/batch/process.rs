//! The worker on a machine, and the store that all workers share.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::ledger::Machine;
use reprieve_core::memory::{ManualNotices, MemoryBlobs, MemoryQueue, MemoryRecords, MemoryRoster};
use reprieve_core::ports::{
    ListedPayload, ListedRecord, Page, Payload, RecordStore, RecordWrite, Store, Stored, Version,
};
use reprieve_core::process::Gate;
use reprieve_core::worker::{Escalation, Settings, Stopper, Worker, stopping};
use reprieve_core::{Bytes, JobId, Notice, NoticeKind, PayloadName, Result, WorkerId, clock};
use reprieve_plan::fleet::{Model, Strategy};
use tokio::time::{Instant, sleep};

use super::jobs::{Busy, Counts, Toil};
use crate::fleet::{FarBlobs, FarQueue, FarRecords, FarRoster, History, Link, What};

/// The names of the fleet's queue, and of the queue for jobs that move.
pub(super) const QUEUE: &str = "work";
const CALM: &str = "calm";

/// The checkpoint interval of jobs that can't be cut: the longest.
const NEVER: Duration = Duration::from_hours(24);

/// What all processes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) queue: Arc<MemoryQueue>,
    pub(super) calm: Arc<MemoryQueue>,
    pub(super) counts: Arc<Counts>,
    records: Arc<MemoryRecords>,
    blobs: Arc<MemoryBlobs>,
    roster: Arc<MemoryRoster>,
    history: History,
    began: Instant,
}

/// How a worker of a batch is set up.
#[derive(Debug, Clone)]
pub(super) struct SetUp {
    pub(super) seed: u64,
    pub(super) settings: Settings,
    interval: Duration,
    save: Duration,
    restore: Duration,
    /// After how many interruptions a job moves.
    moves_after: Option<u32>,
}

/// The worker's process on a machine.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) busy: Arc<Busy>,
    counts: Arc<Counts>,
    link: Arc<Link>,
    notices: ManualNotices,
    gate: Gate,
    _stopper: Stopper,
}

impl SetUp {
    /// The set-up that a model and a strategy describe.
    pub(super) fn new(model: &Model, strategy: &Strategy, seed: u64) -> Self {
        let interval = model.work.interval_ms().map_or(NEVER, Duration::from_millis);
        let settings = Settings {
            concurrency: usize::try_from(model.machines.slots).unwrap_or(usize::MAX),
            lease: Duration::from_millis(model.machines.lease_ms),
            checkpoint_every: CheckpointEvery::Every(interval),
            ..Settings::default()
        };
        let [save, restore] = [model.work.save_ms, model.work.restore_ms].map(Duration::from_millis);
        Self { seed, settings, interval, save, restore, moves_after: strategy.swap.map(|swap| swap.after) }
    }
}

impl Shared {
    pub(super) fn begin(began: Instant) -> Self {
        Self {
            queue: Arc::new(MemoryQueue::named(QUEUE).by_time()),
            calm: Arc::new(MemoryQueue::named(CALM).by_time()),
            counts: Arc::default(),
            records: Arc::default(),
            blobs: Arc::default(),
            roster: Arc::default(),
            history: History::begin(),
            began,
        }
    }

    /// The jobs that workers moved. Nobody else sends a message over a link.
    pub(super) fn moved(&self) -> u32 {
        let moves =
            self.history.events().iter().filter(|event| matches!(event.what, What::Sent { .. })).count();
        u32::try_from(moves).unwrap_or(u32::MAX)
    }

    fn far_queue(&self, link: &Arc<Link>, is_calm: bool) -> Arc<FarQueue> {
        let (name, queue) = if is_calm { (CALM, &self.calm) } else { (QUEUE, &self.queue) };
        let (queue, link) = (Arc::clone(queue), Arc::clone(link));
        // A Storage queue does not announce messages.
        Arc::new(FarQueue { name: name.to_owned(), queue, link, hints: false })
    }

    fn over(&self, link: &Arc<Link>, is_calm: bool, set_up: &SetUp) -> Store {
        let far = FarRecords { records: Arc::clone(&self.records), link: Arc::clone(link) };
        let (counts, save, restore) = (Arc::clone(&self.counts), set_up.save, set_up.restore);
        Store {
            queue: self.far_queue(link, is_calm),
            records: Arc::new(SlowStates { far, counts, save, restore }),
            blobs: Arc::new(FarBlobs {
                blobs: Arc::clone(&self.blobs),
                link: Arc::clone(link),
                process: None,
            }),
            roster: Arc::new(FarRoster { roster: Arc::clone(&self.roster), link: Arc::clone(link) }),
        }
    }
}

impl Process {
    /// Starts the worker number `id`. A calm one serves the queue for jobs that move.
    pub(super) fn start(id: u32, is_calm: bool, shared: &Shared, set_up: &SetUp) -> Result<Self> {
        let (stopper, stopping) = stopping();
        let link = Link::new(id, set_up.seed, shared.history.clone());
        let (notices, gate, busy) = (ManualNotices::answered(), Gate::new(), Arc::<Busy>::default());
        let machine = Machine { booted_unix_ms: Some(clock::unix_millis()), ..Machine::default() };
        let toil = Toil {
            began: shared.began,
            interval: set_up.interval,
            counts: Arc::clone(&shared.counts),
            busy: Arc::clone(&busy),
        };
        let mut builder = Worker::builder(shared.over(&link, is_calm, set_up))
            .id(WorkerId::new(format!("p{id}")))
            .boot(format!("boot-{id}"))
            .queue(if is_calm { CALM } else { QUEUE })
            .machine(async { machine })
            .interruptions(Arc::new(notices.clone()))
            .settings(set_up.settings.clone())
            .job(toil);
        if let Some(after) = set_up.moves_after.filter(|_| !is_calm) {
            let queue = shared.far_queue(&link, true);
            builder = builder.escalate(Escalation { queue, name: CALM.to_owned(), after });
        }
        let worker = builder.build()?;
        tokio::spawn(gate.clone().run(async move {
            worker.run(stopping).await;
        }));
        Ok(Self { busy, counts: Arc::clone(&shared.counts), link, notices, gate, _stopper: stopper })
    }

    /// Tells it that the machine is evicted after `lead`.
    pub(super) fn notice(&self, lead: Duration) {
        self.notices.notice(Notice::now("eviction", NoticeKind::Preempt).at(Instant::now() + lead));
    }

    /// Ends it as the end of its machine would.
    pub(super) fn kill(&self) {
        self.link.end();
        self.gate.freeze();
        self.busy.cut_off(&self.counts);
    }
}

/// Records whose states take their time to be saved and read.
#[derive(Debug)]
struct SlowStates {
    far: FarRecords,
    counts: Arc<Counts>,
    save: Duration,
    restore: Duration,
}

#[async_trait]
impl RecordStore for SlowStates {
    async fn load(&self, job: &JobId) -> Result<Option<Stored>> {
        self.far.load(job).await
    }

    async fn put(&self, job: &JobId, expected: Option<&Version>, write: RecordWrite) -> Result<Version> {
        if write.payload.is_some() {
            sleep(self.save).await;
            self.counts.saves.fetch_add(1, Relaxed);
        }
        self.far.put(job, expected, write).await
    }

    async fn remove(&self, job: &JobId, expected: &Version, payloads: &[PayloadName]) -> Result<()> {
        self.far.remove(job, expected, payloads).await
    }

    async fn store_payload(&self, job: &JobId, payload: Payload) -> Result<()> {
        self.far.store_payload(job, payload).await
    }

    async fn payload(&self, job: &JobId, name: &PayloadName) -> Result<Option<Bytes>> {
        sleep(self.restore).await;
        self.far.payload(job, name).await
    }

    async fn page(&self, prefix: &str, at: Option<&str>) -> Result<Page<ListedRecord>> {
        self.far.page(prefix, at).await
    }

    async fn payload_page(&self, at: Option<&str>) -> Result<Page<ListedPayload>> {
        self.far.payload_page(at).await
    }

    async fn remove_payloads(&self, job: &JobId, names: &[PayloadName]) -> Result<()> {
        self.far.remove_payloads(job, names).await
    }
}
