//! A worker process, from its arguments to its exit code.

use std::num::NonZero;
#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use reprieve_azure::scheduled_events::{Client, Watcher};
use reprieve_core::worker::{
    Escalation, StopReason, Stopped, Threads, Worker, WorkerBuilder, spare_slots, stopping,
};
use reprieve_core::{Error, ErrorKind, Result, WorkerId};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::exit::{FAILED, RESTART, fail};
use crate::health::{self, Health};
use crate::logging::{Log, Recent};
use crate::machine::{self, boot};
use crate::repair::Healing;
use crate::secondary::Secondary;
use crate::settings::{WorkerArgs, WorkerSettings};
use crate::signals::Signals;
use crate::stores::{Address, Loss, Opened, Purpose, receipts};
#[cfg(target_os = "linux")]
use crate::{readings::LinuxMachine, systemd};

/// The most threads for jobs. A step may compute or block and then needs a thread of its own, so
/// there is one thread for each concurrent job. Only jobs that mostly wait are configured with a
/// higher concurrency, and those share threads well.
const JOB_THREADS_MAX: usize = 512;

/// The most threads for the connections to a storage account. On two cores one thread is enough:
/// a second only competes with the control thread and the jobs (measured in seven pairs of runs: 5 % to
/// 22 % more processor time for as many jobs, and once 56 %).
const IO_THREADS_MAX: usize = 2;

/// How long the start waits for this VM's name, which is needed for reports only. The watcher asks
/// for the name itself.
const NAME_TIMEOUT: Duration = Duration::from_secs(1);

/// The pauses between two tries to open the store: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The least time for the first try, whatever `--start-timeout` is: a store that works must be able to
/// answer.
const FIRST_TRY_MIN: Duration = Duration::from_secs(5);

/// With less time than this left, no other try begins.
const LAST_TRY_MIN: Duration = Duration::from_millis(500);

/// The text at the end of a worker binary's `--help`.
const AFTER_HELP: &str = "\
Limits of a kind of job, and what it depends on, stand in reprieve.toml, below [kinds.KIND], and
override those in the code:
  per-worker = N    how many run at once in a worker [default: none]
  in-fleet = N      how many run at once in all workers of the store [default: none]
  memory = \"SIZE\"   the memory that one takes, such as 2GiB, for --memory-reserve [default: measured]
  step-timeout = \"DURATION\"  how long a step may take [default: none]
  job-timeout = \"DURATION\"   how long an attempt may run, over all machines [default: none]
  stall-after = \"DURATION\"   how long a step may make no save and no progress [default: none]
  attempts = N      how many deliveries may fail without progress [default: 5]
  backoff = \"DURATION\", backoff-max = \"DURATION\"
                    the delay after the first failure, which grows fourfold, and the longest
                    [default: 1s, 5m]
  needs = [\"NAME\"], uses = [\"NAME\"]
                    the dependencies that its jobs can't do without, and can [default: none]
  without = N       how many begin at once in a worker while one of the latter is away
                    [default: half of its slots]
A cache stands below [dependencies.NAME]:
  redis = \"env:VARIABLE\"    its URL, or the environment variable that has it
  replica = \"env:VARIABLE\"  the same of a replica, for calls that only read [default: none]
  identity = true           sign in with this machine's identity, and not with a key of the URL
                            [default: false]
Durations are a number and a unit: 500ms, 10s, 5m, 1h.
SIGTERM or SIGINT (Ctrl-C) releases all jobs and exits; a second signal exits at once.
Exit codes: 0 stopped, all jobs released; 1 failed, or a second signal; 2 wrong usage or settings;
3 half of the slots are stuck, or stuck ones hold the places of a kind: start the worker again.";

#[derive(Debug, Parser)]
#[command(version, about = "Runs the jobs of a queue until a signal stops it", long_about = None, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    worker: WorkerArgs,
}

/// Runs a worker as the whole `main`: reads the command line, works until a signal stops it, and
/// returns the exit code. `configure` adds the jobs; see [the example](crate).
///
/// The exit code is 0 when the worker was stopped and released everything, 1 when it failed or a
/// second signal ended it at once, 2 for wrong usage or settings, and 3 when half of its slots are stuck, or
/// stuck ones hold the places of a kind with a limit, so that it should be started again.
pub fn run(configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => work(cli.worker, configure),
        Err(usage) => {
            // Printing fails when the reader of the output is gone; the exit code is still right.
            let _unread = usage.print();
            u8::try_from(usage.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// Runs a worker like [`run`], for a command that has parsed its own arguments.
///
/// Must be called outside any Tokio runtime: the calling thread becomes the control thread.
///
/// # Example: a command that also enqueues
/// ```no_run
/// # use reprieve::worker::WorkerBuilder;
/// # fn jobs(worker: WorkerBuilder) -> WorkerBuilder { worker }
/// # fn enqueue(_: &reprieve::StoreArgs) -> std::process::ExitCode { std::process::ExitCode::SUCCESS }
/// use clap::Parser;
///
/// #[derive(Parser)]
/// enum Cli {
///     /// Works.
///     Work(reprieve::WorkerArgs),
///     /// Enqueues.
///     Enqueue(reprieve::StoreArgs),
/// }
///
/// fn main() -> std::process::ExitCode {
///     match Cli::parse() {
///         Cli::Work(args) => reprieve::work(args, jobs),
///         Cli::Enqueue(args) => enqueue(&args),
///     }
/// }
/// ```
#[expect(clippy::needless_pass_by_value, reason = "the worker consumes its command line")]
pub fn work(args: WorkerArgs, configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> ExitCode {
    let stopped = WorkerSettings::read(&args).and_then(|mut settings| {
        let log = Log::begin(std::mem::take(&mut settings.log))?;
        let spans = Arc::new(log.spans());
        process(settings, log.recent(), |worker| configure(worker.spans(spans)))
    });
    match stopped {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

/// Starts the threads and becomes the control thread. Returns the exit code of the worker that has stopped.
fn process(
    settings: WorkerSettings,
    log: Recent,
    configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> Result<ExitCode> {
    let io_threads = if matches!(settings.store.address, Address::Azure(_)) { io_threads() } else { 0 };
    let threads = Threads::start(job_threads(settings.worker.concurrency), io_threads).map_err(|error| {
        Error::new(ErrorKind::Internal, "start the threads", error.to_string()).with_source(error)
    })?;
    let (jobs, io) = (threads.jobs(), threads.io());
    threads.block_on(control(settings, log, io, |worker| configure(worker.jobs_on(jobs))))
}

/// The number of threads for jobs: with one for each slot that may replace a stuck one.
fn job_threads(slots: usize) -> usize {
    let threads = slots.min(JOB_THREADS_MAX);
    threads + spare_slots(threads)
}

/// The number of threads for connections: half of this machine's cores, one or two.
fn io_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    (cores / 2).clamp(1, IO_THREADS_MAX)
}

/// Everything that runs on the control thread.
async fn control(
    settings: WorkerSettings,
    log: Recent,
    io: Option<Handle>,
    configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let mut tasks = JoinSet::new();
    let worker = tokio::select! {
        started = start(settings, log, io, configure, &mut tasks) => started?,
        signal = signals.next() => {
            // The worker holds no messages yet, so there is nothing to release.
            tracing::info!(signal, "received a signal before the start was finished; exiting");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let (stopper, stopping) = stopping();
    tasks.spawn(async move {
        loop {
            let signal = signals.next().await;
            tracing::info!(signal, "received a signal; releasing all jobs");
            stopper.stop();
            #[cfg(target_os = "linux")]
            systemd::stopping().await;
        }
    });
    let end = worker.run(stopping).await;
    report(&end);
    Ok(match end.reason {
        StopReason::Stuck => ExitCode::from(RESTART),
        StopReason::Drained if end.abandoned == 0 => ExitCode::SUCCESS,
        StopReason::Drained | StopReason::Abandoned => ExitCode::from(FAILED),
    })
}

/// Opens the store and builds the worker. The watcher starts first, so that it has its answer by
/// the time the store is open.
async fn start(
    mut settings: WorkerSettings,
    log: Recent,
    io: Option<Handle>,
    configure: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    tasks: &mut JoinSet<()>,
) -> Result<Worker> {
    if let Some(directory) = &settings.state_dir {
        receipts::create_directory(directory)?;
        settings.metadata = settings.metadata.map(|metadata| metadata.sharing(directory));
    }
    let watcher = settings
        .metadata
        .clone()
        .map(|metadata| Arc::new(Watcher::spawn(metadata, settings.vm_name.clone())));
    let health = Health::new(watcher.clone());
    if let Some(address) = settings.listen {
        let listener = health::listen(address, settings.state_dir.is_some()).await?;
        // At once: the store may make the start wait for minutes.
        tasks.spawn(health.clone().serve(address, listener));
    }
    #[cfg(target_os = "linux")]
    tasks.spawn(systemd::report(health.clone()));
    let id = WorkerId::unique();
    let opening = patiently(&settings, || settings.store.open(Purpose::Working(id.clone(), io.clone())));
    let (opened, escalation, vm) = tokio::join!(opening, escalation(&settings), vm(&settings));
    let (opened, escalation) = (keep_receipts(opened?, &settings, &id)?, escalation?);
    let vm = vm.unwrap_or_default();
    let (store, queue) = (settings.store.address.to_string(), settings.store.queues.shown.clone());
    let (roster, approve_wait) = (Arc::clone(&opened.store.roster), settings.worker.policy.approve_wait);
    let healing = Healing::of(&settings, log, &vm, &opened.store);
    #[cfg(target_os = "linux")]
    let directories = written(&settings);
    let mut worker = Worker::builder(opened.store)
        .drain_store(opened.drain)
        .id(id)
        .vm(&vm)
        .boot(boot())
        .machine(machine::describe(settings.metadata.clone(), settings.vm_name.clone()))
        .queue(&queue)
        .settings(settings.worker);
    if let Some(escalation) = escalation {
        worker = worker.escalate(escalation);
    }
    if let Some(watcher) = &watcher {
        worker = worker.interruptions(Arc::clone(watcher) as _);
    }
    worker = healing.drains(worker);
    #[cfg(target_os = "linux")]
    {
        let machine = LinuxMachine::new(directories, watcher.clone());
        worker = worker.pressure_of(Arc::new(machine));
    }
    if let (Some(watcher), Some(metadata), false) =
        (watcher, settings.metadata.clone(), settings.approve_for.is_empty())
    {
        if matches!(settings.store.address, Address::Local(_)) {
            tracing::warn!(
                "--approve-for: this store is on this machine's disk, so workers of other machines are not seen"
            );
        }
        let vms = settings.approve_for;
        let secondary = Secondary { watcher, metadata, roster, vms, boot: boot(), wait: approve_wait };
        tasks.spawn(secondary.run());
    }
    if let Some(metadata) = settings.metadata {
        tasks.spawn(check_vm(metadata, settings.vm_name, settings.store.address));
    }
    for queue in settings.store.queues.poison() {
        tracing::warn!(
            %queue,
            "this is a poison queue: the worker runs jobs that could not be done again; `reprieve redrive` \
             returns them to their own queue"
        );
    }
    // Kinds last, because they name the dependencies.
    let worker = settings.kinds.apply(settings.dependencies.apply(configure(worker))).build()?;
    let monitor = worker.monitor();
    tracing::info!(worker = %monitor.worker(), %vm, store, queue, version = env!("CARGO_PKG_VERSION"), "worker started");
    health.started(monitor.clone());
    healing.begin(monitor, health, boot(), tasks);
    Ok(worker)
}

/// The directories on which the worker itself depends: that of an embedded store, and the shared one.
#[cfg(target_os = "linux")]
fn written(settings: &WorkerSettings) -> Vec<PathBuf> {
    let store = match &settings.store.address {
        Address::Local(address) => Some(match address.path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        }),
        Address::Azure(_) => None,
    };
    store.into_iter().chain(settings.state_dir.clone()).collect()
}

/// Keeps the receipts of a store that can't tell that a worker died.
fn keep_receipts(opened: Opened, settings: &WorkerSettings, worker: &WorkerId) -> Result<Opened> {
    let (Some(directory), Address::Azure(address)) = (&settings.state_dir, &settings.store.address) else {
        return Ok(opened);
    };
    let place = format!("{address} {} {}", settings.store.container, settings.store.queues.shown);
    let [store, drain] = receipts::kept(directory, worker, &boot(), &place, [opened.store, opened.drain])?;
    Ok(Opened { store, drain })
}

/// Opens the queue for jobs that interruptions keep from moving on.
async fn escalation(settings: &WorkerSettings) -> Result<Option<Escalation>> {
    let Some(queues) = &settings.escalate_to else { return Ok(None) };
    let open = || settings.store.open_queues(queues, Purpose::Enqueueing);
    let queue = patiently(settings, open).await?.store.queue;
    Ok(Some(Escalation { queue, name: queues.shown.clone(), after: settings.escalate_after }))
}

/// Opens the store. For as long as `--start-timeout`, waits for one that refuses this identity, because
/// a new role takes minutes to arrive, and for one that does not answer.
async fn patiently<F: Future<Output = Result<Opened>>>(
    settings: &WorkerSettings,
    open: impl Fn() -> F,
) -> Result<Opened> {
    let (began, mut pause) = (Instant::now(), PAUSE_MIN);
    let until = began + settings.start_timeout;
    let mut last = None;
    loop {
        let limit = until.max(began + FIRST_TRY_MIN);
        let error = match timeout_at(limit, open()).await {
            Ok(Err(error)) if settings.store.may_open_later(&error) => error,
            Ok(opened) => return opened,
            Err(_) => return Err(last.unwrap_or_else(|| unanswered(limit - began))),
        };
        let left = until.saturating_duration_since(Instant::now());
        if left < LAST_TRY_MIN {
            return Err(error);
        }
        // The pause leaves time for another try.
        let wait = pause.min(left / 2);
        let pause_s = wait.as_secs_f64();
        tracing::warn!(%error, pause_s, left_s = left.as_secs(), "failed to open the store; trying again");
        last = Some(error);
        sleep(wait).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn unanswered(within: Duration) -> Error {
    let message = format!("it gave no answer within {} s", within.as_secs());
    Error::new(ErrorKind::TimedOut, "open the store", message)
}

/// This VM's name for reports, if the metadata service returns it within [`NAME_TIMEOUT`].
async fn vm(settings: &WorkerSettings) -> Option<String> {
    if settings.vm_name.is_some() {
        return settings.vm_name.clone();
    }
    let asked = settings.metadata.as_ref()?.compute_once(NAME_TIMEOUT).await;
    asked
        .inspect_err(
            |error| tracing::debug!(%error, "failed to get this VM's name; the worker's reports omit it"),
        )
        .ok()
        .map(|vm| vm.name)
}

/// Logs a warning when the metadata service has another name for this VM than the settings: with a
/// wrong name the worker would take every event of this VM for another VM's. And one when an
/// eviction of this VM would take its store along.
async fn check_vm(metadata: Client, given: Option<String>, store: Address) {
    let vm = match machine::ask(&metadata).await {
        Ok(vm) => vm,
        Err(error) => {
            tracing::debug!(%error, "failed to check this VM's name and its store");
            return;
        }
    };
    if let Some(given) = given.filter(|given| !vm.name.eq_ignore_ascii_case(given)) {
        tracing::warn!(
            given,
            name = vm.name,
            "the metadata service has another name for this VM than --vm-name; the worker ignores this VM's events"
        );
    }
    if let Some(loss) = store.loss_at_eviction(&vm) {
        tracing::warn!(%store, "{loss}; {}", Loss::CURE);
    }
}

fn report(end: &Stopped) {
    tracing::info!(
        reason = ?end.reason,
        completed = end.completed,
        released = end.released,
        abandoned = end.abandoned,
        budget_left_ms = u64::try_from(end.budget_left.as_millis()).unwrap_or(u64::MAX),
        missing_entries = end.missing_entries,
        "worker stopped"
    );
}
