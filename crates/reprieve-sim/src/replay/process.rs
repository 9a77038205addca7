//! A machine of a replay, and the worker on it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::ledger::Machine;
use reprieve_core::memory::{ManualNotices, MemoryBlobs, MemoryQueue, MemoryRecords, MemoryRoster};
use reprieve_core::ports::Store;
use reprieve_core::pressure::{self, Pool, Readings};
use reprieve_core::process::Gate;
use reprieve_core::worker::{Limits, Monitor, Settings, Stopper, Worker, stopping};
use reprieve_core::{Result, WorkerId, clock};

use super::Care;
use super::jobs::{ATTEMPTS, Marching};
use super::journal::{Happened, Journal, Witness};
use crate::fleet::{FarBlobs, FarQueue, FarRecords, FarRoster, History, Link};

/// The name of the queue.
pub(super) const QUEUE: &str = "work";

/// The slots of a worker.
const CONCURRENCY: usize = 4;

/// How long a step of the guarded kind may stand still.
pub(super) const STALL_AFTER: Duration = Duration::from_mins(10);

/// What a machine may run out of.
pub(super) const MEMORY: &str = "memory";
pub(super) const DISK: &str = "disk";

/// What all processes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) queue: Arc<MemoryQueue>,
    pub(super) records: Arc<MemoryRecords>,
    pub(super) blobs: Arc<MemoryBlobs>,
    pub(super) roster: Arc<MemoryRoster>,
}

/// A simulated machine.
#[derive(Debug)]
pub struct Vm {
    /// Its number in the journal.
    pub number: usize,
    /// The platform's name for it.
    pub name: String,
    /// The id of its boot.
    pub boot: String,
    /// Whether its disk takes no writes.
    pub is_read_only: AtomicBool,
    /// Whether it answers that it should be replaced.
    pub is_unhealthy: AtomicBool,
    pub(super) description: Machine,
    readings: Mutex<Readings>,
}

/// The worker's process on a machine.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) link: Arc<Link>,
    pub(super) notices: ManualNotices,
    pub(super) gate: Gate,
    _stopper: Stopper,
}

impl Default for Shared {
    fn default() -> Self {
        let queue = Arc::new(MemoryQueue::named(QUEUE));
        Self { queue, records: Arc::default(), blobs: Arc::default(), roster: Arc::default() }
    }
}

impl Shared {
    fn over(&self, link: &Arc<Link>) -> Store {
        let link = || Arc::clone(link);
        let (name, queue) = (QUEUE.to_owned(), Arc::clone(&self.queue));
        Store {
            queue: Arc::new(FarQueue { name, queue, link: link(), hints: false }),
            records: Arc::new(FarRecords { records: Arc::clone(&self.records), link: link() }),
            blobs: Arc::new(FarBlobs { blobs: Arc::clone(&self.blobs), link: link(), process: None }),
            roster: Arc::new(FarRoster { roster: Arc::clone(&self.roster), link: link() }),
        }
    }
}

impl Vm {
    /// A machine that boots now.
    pub(super) fn boot(number: usize, name: &str, size: &str, zone: &str) -> Arc<Self> {
        let description = Machine {
            vm: name.to_owned(),
            size: size.to_owned(),
            zone: zone.to_owned(),
            priority: "Spot".to_owned(),
            booted_unix_ms: Some(clock::unix_millis()),
            ..Machine::default()
        };
        let (is_read_only, is_unhealthy) = (AtomicBool::new(false), AtomicBool::new(false));
        let (name, boot) = (name.to_owned(), format!("boot-{number}"));
        let vm =
            Self { number, name, boot, is_read_only, is_unhealthy, description, readings: Mutex::default() };
        vm.run_short(None);
        Arc::new(vm)
    }

    /// Whether it answers that it should be replaced.
    pub(super) fn is_unhealthy(&self) -> bool {
        self.is_unhealthy.load(Relaxed)
    }

    /// Lets it run out of this, by the name of the cause, and of nothing else.
    pub(super) fn run_short(&self, of: Option<&str>) {
        const GIB: u64 = 1 << 30;
        let left = |what| if of == Some(what) { GIB / 8 } else { 6 * GIB };
        let readings = Readings {
            memory: vec![Pool::new("the machine", left(MEMORY), 16 * GIB)],
            disks: vec![Pool::new("/var/lib/worker", left(DISK), 64 * GIB)],
            ..Readings::default()
        };
        *self.readings.lock().unwrap_or_else(PoisonError::into_inner) = readings;
    }
}

#[derive(Debug)]
struct Gauges(Arc<Vm>);

#[async_trait]
impl pressure::Machine for Gauges {
    async fn read(&self) -> Readings {
        self.0.readings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Process {
    /// Starts the worker number `id` on a machine. Its metadata service answers unless it `is_silent`.
    pub(super) fn start(
        id: u32,
        vm: &Arc<Vm>,
        is_silent: bool,
        shared: &Shared,
        (journal, history): (&Journal, &History),
        care: &dyn Care,
    ) -> Result<Arc<Self>> {
        let notices = if is_silent { ManualNotices::silent() } else { ManualNotices::answered() };
        let (stopper, stopping) = stopping();
        let limits = Limits { attempts: ATTEMPTS, ..Limits::default() };
        let guarded = Limits { stall_after: Some(STALL_AFTER), ..limits };
        let process = Arc::new(Self {
            link: Link::new(id, 19, history.clone()),
            notices,
            gate: Gate::new(),
            _stopper: stopper,
        });
        let witness = Witness { link: Arc::clone(&process.link), journal: journal.clone() };
        let store = shared.over(&process.link);
        let (caring, description) = (care.of(vm, &store), vm.description.clone());
        let builder = Worker::builder(store)
            .id(WorkerId::new(format!("p{id}")))
            .vm(&vm.name)
            .boot(&vm.boot)
            .queue(QUEUE)
            .machine(async { description })
            .pressure_of(Arc::new(Gauges(Arc::clone(vm))))
            .settings(Settings { concurrency: CONCURRENCY, ..Settings::default() })
            .interruptions(Arc::new(process.notices.clone()))
            .job(Marching::<0>(witness.clone()))
            .limits::<Marching<0>>(limits)
            .job(Marching::<1>(witness))
            .limits::<Marching<1>>(guarded);
        let worker = caring.drains(builder).build()?;
        let monitor: Monitor = worker.monitor();
        journal.note(Happened::Started { machine: vm.number, process: id });
        tokio::spawn(process.gate.clone().run(worker.run(stopping)));
        tokio::spawn(process.gate.clone().run(caring.begin(monitor)));
        Ok(process)
    }

    /// Ends it as SIGKILL would.
    pub(super) fn kill(&self) {
        self.link.end();
        self.gate.freeze();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.link.has_ended()
    }
}
