//! A machine whose memory or disk runs out: its jobs are saved, and new work waits or goes elsewhere.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{self, Faults, Op};
use reprieve_core::ports::{Store, WorkerReport};
use reprieve_core::pressure::{Machine, MemoryReserve, OnPressure, Pool, Readings, Shown};
use reprieve_core::telemetry::ByCause;
use reprieve_core::worker::{Limits, Settings, Worker};
use reprieve_core::{Job, JobContext, JobError, JobId, NewJob, Producer, Step};
use tokio::time::{Instant, sleep};

use crate::support::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A machine with the readings that a test sets.
#[derive(Debug, Clone, Default)]
struct Readable(Arc<Mutex<Readings>>);

#[async_trait]
impl Machine for Readable {
    async fn read(&self) -> Readings {
        self.0.lock().unwrap().clone()
    }
}

impl Readable {
    fn set(&self, readings: Readings) {
        *self.0.lock().unwrap() = readings;
    }

    fn set_memory(&self, available: u64, total: u64) {
        self.set(Readings {
            memory: vec![Pool::new("the machine", available, total)],
            ..Readings::default()
        });
    }
}

/// Only pressure makes a job save.
fn saving_never() -> Settings {
    Settings { checkpoint_every: CheckpointEvery::Every(secs(86_400)), ..settings() }
}

fn start_on(machine: &Readable, store: &Store, job: &Steps, settings: Settings) -> Running {
    let worker = Worker::builder(store.clone()).settings(settings).job(job.clone());
    start_built(worker.pressure_of(Arc::new(machine.clone())))
}

/// How often the job was saved.
async fn saves(store: &Store, job: &JobId) -> u64 {
    record(store, job).await.map_or(0, |record| record.sequence)
}

async fn report(store: &Store) -> WorkerReport {
    store.roster.reports(secs(60)).await.unwrap().remove(0)
}

fn gauge(worker: &Running, cause: &'static str) -> i64 {
    worker.monitor.telemetry().pressure.get_or_create(&ByCause { cause }).get()
}

fn pressures() -> [(&'static str, Readings); 3] {
    let few = || vec![Pool::new("it", 10 * MIB, 8 * GIB)];
    let failed = Some("failed to write below /data: I/O error".to_owned());
    [
        ("memory", Readings { memory: few(), ..Readings::default() }),
        ("disk", Readings { disks: few(), ..Readings::default() }),
        ("io-errors", Readings { io_errors: 3, last_io_error: failed, ..Readings::default() }),
    ]
}

#[tokio::test(start_paused = true)]
async fn under_pressure_running_jobs_are_saved_once_and_go_on_and_nothing_new_is_taken() {
    for (cause, readings) in pressures() {
        let (store, job, machine) = (memory::store(), Steps::default(), Readable::default());
        let long = enqueue(&store, &[Plan::new(100, 1_000); 2]).await;
        let worker = start_on(&machine, &store, &job, saving_never());
        sleep(secs(5)).await;
        assert_eq!((saves(&store, &long[0]).await, gauge(&worker, cause)), (0, 0), "{cause}");
        let errors = readings.io_errors;
        machine.set(readings);
        sleep(secs(3)).await;
        enqueue(&store, &[Plan::new(1, 100); 6]).await;
        sleep(secs(50)).await;
        assert_eq!(ready(&store).await, 6, "{cause}: nothing is taken");
        assert_eq!([saves(&store, &long[0]).await, saves(&store, &long[1]).await], [1, 1], "{cause}: once");
        assert!(job.trace.steps(&long[0]).len() >= 56, "{cause}: the job goes on");
        let shown = report(&store).await.machine.expect("it is shown");
        assert_eq!((shown.pressure[0].cause.as_str(), shown.acts, gauge(&worker, cause)), (cause, true, 1));
        machine.set(Readings { io_errors: errors, ..Readings::default() });
        within(secs(35), "the end of pressure", async || gauge(&worker, cause) == 0).await;
        within(secs(10), "the work that waited", async || ready(&store).await == 0).await;
        emptied(&store, secs(120)).await;
        assert_eq!(job.trace.redone(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_takes_one_job_at_a_time_however_long_the_pressure_lasts() {
    let (store, job, machine) = (memory::store(), Steps::default(), Readable::default());
    machine.set_memory(10 * MIB, 8 * GIB);
    let worker = start_on(&machine, &store, &job, saving_never());
    sleep(secs(3)).await;
    enqueue(&store, &[Plan::new(2, 1_000); 20]).await;
    let began = Instant::now();
    while total(&store).await > 0 {
        assert!(leased(&store).await <= 1, "one at a time");
        assert!(began.elapsed() < secs(300), "{} jobs are left", total(&store).await);
        sleep(ms(100)).await;
    }
    assert!(began.elapsed() >= secs(40), "{:?}", began.elapsed());
    assert_eq!(gauge(&worker, "memory"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_received_and_has_not_begun_goes_to_another_worker() {
    let (store, job, machine) = (memory::store(), Steps::default(), Readable::default());
    // Short jobs, so that the worker reads ahead; then one that keeps it busy, so that it is not idle. What is read ahead
    // would go back anyway if no slot became free for twice as long as they took.
    enqueue(&store, &[Plan::new(1, 900); 80]).await;
    let long = Plan::new(600, 1_000);
    let worker = start_on(&machine, &store, &job, Settings { concurrency: 2, ..saving_never() });
    emptied(&store, secs(60)).await;
    enqueue(&store, &[long, Plan::new(1, 1_700), Plan::new(1, 300), Plan::new(1, 300), Plan::new(1, 300)])
        .await;
    within(secs(10), "messages that wait for a slot", async || leased(&store).await > 2).await;
    machine.set_memory(10 * MIB, 8 * GIB);
    sleep(secs(8)).await;
    let ended = worker.ended("completed");
    assert_eq!(leased(&store).await, 1, "only the long job is held");
    assert!(worker.ended("deferred") > 0);
    let _another = start(&store, &job);
    within(secs(30), "the other jobs", async || total(&store).await == 1).await;
    assert_eq!(worker.ended("completed"), ended);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_busy_for_ten_minutes_is_only_shown() {
    let (store, job, machine) = (memory::store(), Steps::default(), Readable::default());
    let busy = Shown {
        io_stall_percent: Some(95),
        steal_percent: Some(60),
        memory_errors_corrected: Some(12),
        memory_errors_uncorrected: Some(1),
        clock_behind_ms: Some(-40_000),
    };
    machine.set(Readings {
        shown: busy.clone(),
        memory: vec![Pool::new("it", GIB, 8 * GIB)],
        ..Readings::default()
    });
    let jobs = enqueue(&store, &[Plan::new(600, 1_000); 4]).await;
    let worker = start_on(&machine, &store, &job, saving_never());
    sleep(secs(590)).await;
    assert_eq!(saves(&store, &jobs[0]).await, 0);
    assert_eq!(report(&store).await.machine.expect("it is shown").shown, busy);
    emptied(&store, secs(60)).await;
    assert_eq!((worker.ended("completed"), worker.monitor.last_drain()), (4, None));
}

#[tokio::test(start_paused = true)]
async fn pressure_that_is_only_to_be_shown_changes_nothing() {
    let (store, job, machine) = (memory::store(), Steps::default(), Readable::default());
    machine.set_memory(10 * MIB, 8 * GIB);
    let settings = Settings { on_pressure: OnPressure::Show, ..saving_never() };
    let worker = start_on(&machine, &store, &job, settings);
    sleep(secs(3)).await;
    let jobs = enqueue(&store, &[Plan::new(10, 1_000); 4]).await;
    sleep(secs(8)).await;
    let shown = report(&store).await.machine.expect("it is shown");
    assert_eq!((leased(&store).await, saves(&store, &jobs[0]).await, shown.acts), (4, 0, false));
    assert_eq!((shown.pressure.len(), gauge(&worker, "memory")), (1, 1));
}

/// A job of a kind that takes memory, or none, for so many seconds.
#[derive(Debug, Clone)]
struct Hungry(Simulated);

#[derive(Debug, Clone)]
struct Modest(Simulated);

/// The memory of a machine with 1000 MiB, of which a worker's jobs take some.
#[derive(Debug, Clone)]
struct Simulated(Arc<Mutex<Taken>>);

#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    mib: u64,
    most_mib: u64,
    hungry: usize,
    hungry_at_once: usize,
    modest_done: usize,
}

#[async_trait]
impl Machine for Simulated {
    async fn read(&self) -> Readings {
        // A real one reads files.
        sleep(ms(50)).await;
        let taken = self.get().mib;
        let memory = vec![Pool::new("the machine", 900_u64.saturating_sub(taken) * MIB, 1_000 * MIB)];
        Readings { memory, own_memory_bytes: Some((50 + taken) * MIB), ..Readings::default() }
    }
}

impl Simulated {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn get(&self) -> Taken {
        *self.0.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Taken)) {
        let mut taken = self.0.lock().unwrap();
        change(&mut taken);
        taken.most_mib = taken.most_mib.max(taken.mib);
        taken.hungry_at_once = taken.hungry_at_once.max(taken.hungry);
    }
}

#[async_trait]
impl Job for Hungry {
    const KIND: &'static str = "hungry";
    type Args = u64;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &u64) {}

    /// Takes 200 MiB, in the course of its first three seconds.
    async fn step(&self, _: &JobContext, takes_s: &u64, (): ()) -> Result<Step<(), ()>, JobError> {
        self.0.change(|taken| taken.hungry += 1);
        for _ in 0..4 {
            sleep(ms(750)).await;
            self.0.change(|taken| taken.mib += 50);
        }
        sleep(secs(takes_s.saturating_sub(3))).await;
        self.0.change(|taken| (taken.mib, taken.hungry) = (taken.mib - 200, taken.hungry - 1));
        Ok(Step::Done(()))
    }
}

#[async_trait]
impl Job for Modest {
    const KIND: &'static str = "modest";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        sleep(secs(1)).await;
        self.0.change(|taken| taken.modest_done += 1);
        Ok(Step::Done(()))
    }
}

async fn hungry_and_modest(limits: Limits, reserve: Option<MemoryReserve>) -> (Store, Simulated, Running) {
    let (store, machine) = (memory::store(), Simulated::new());
    on_one_clock();
    let hungry = NewJob::of::<Hungry>(&10).unwrap();
    let modest = NewJob::of::<Modest>(&()).unwrap();
    let jobs = (0..20).map(|_| hungry.clone()).chain((0..20).map(|_| modest.clone())).collect();
    let settings = Settings { concurrency: 8, memory_reserve: reserve, ..saving_never() };
    // They wait when the worker starts, which must not receive before its first look at the machine.
    Producer::new(store.clone()).enqueue(jobs).await.unwrap();
    let worker = Worker::builder(store.clone()).settings(settings);
    let worker = worker.job(Hungry(machine.clone())).job(Modest(machine.clone())).limits::<Hungry>(limits);
    let worker = start_built(worker.pressure_of(Arc::new(machine.clone())));
    (store, machine, worker)
}

#[tokio::test(start_paused = true)]
async fn no_job_begins_that_would_take_the_reserve_and_other_kinds_go_on() {
    let told = Limits { memory: Some(200 * MIB), ..Limits::default() };
    for (limits, at_once) in [(told, 4), (Limits::default(), 4)] {
        let (store, machine, worker) = hungry_and_modest(limits, Some(MemoryReserve::Bytes(100 * MIB))).await;
        within(secs(60), "the modest jobs", async || machine.get().modest_done == 20).await;
        assert!(total(&store).await > 10, "most of the hungry ones wait");
        emptied(&store, secs(1_200)).await;
        let taken = machine.get();
        assert_eq!((taken.hungry_at_once, taken.most_mib), (at_once, 800), "{limits:?}");
        assert_eq!(worker.stop().await.completed, 40);
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
    }
    let (store, machine, _worker) = hungry_and_modest(Limits::default(), None).await;
    emptied(&store, secs(600)).await;
    assert!(machine.get().most_mib > 900, "without a reserve the kernel would have killed the worker");
}

/// What a machine has no room for is away for a while, in which idle workers can't run it. Few are, so they go on.
#[tokio::test(start_paused = true)]
async fn a_worker_without_memory_leaves_the_work_to_those_that_have_it() {
    for (workers, jobs, step_ms) in [(1, 500, 100), (3, 2_000, 200), (1, 300, 2_000)] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &vec![Plan::new(1, step_ms); jobs]).await;
        let limits = Limits { memory: Some(200 * MIB), ..Limits::default() };
        let settings = Settings {
            concurrency: 8,
            memory_reserve: Some(MemoryReserve::Bytes(100 * MIB)),
            ..saving_never()
        };
        let with = |available: u64| {
            let machine = Readable::default();
            machine.set_memory(available, 64 * GIB);
            let worker = Worker::builder(store.clone()).settings(settings.clone()).job(job.clone());
            start_built(worker.limits::<Steps>(limits).pressure_of(Arc::new(machine)))
        };
        let _small = with(350 * MIB);
        let large: Vec<_> = (0..workers).map(|_| with(32 * GIB)).collect();
        let began = Instant::now();
        // Those of the large machines alone, and half a minute for what was away last.
        let longest = ms(step_ms) * u32::try_from(jobs / (8 * workers)).unwrap() * 2 + secs(30);
        emptied(&store, longest).await;
        println!("{workers} and a small one, {jobs} of {step_ms} ms: {:?} of {longest:?}", began.elapsed());
        drop(large);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_room_takes_no_slot_of_the_fleet_in_vain() {
    let (store, job, machine) = (memory::store(), Steps::default(), Readable::default());
    machine.set_memory(250 * MIB, 1_000 * MIB);
    let limits = Limits { memory: Some(200 * MIB), in_fleet: Some(2), ..Limits::default() };
    let reserve = Some(MemoryReserve::Bytes(100 * MIB));
    let settings = Settings { concurrency: 8, memory_reserve: reserve, ..saving_never() };
    let (shared, faults) = Faults::wrap(store.clone());
    let worker = Worker::builder(shared).settings(settings).job(job.clone()).limits::<Steps>(limits);
    let worker = start_built(worker.pressure_of(Arc::new(machine.clone())));
    enqueue(&store, &[Plan::new(60, 1_000)]).await;
    within(secs(20), "the first job", async || leased(&store).await == 1).await;
    sleep(secs(2)).await;
    enqueue(&store, &[Plan::new(60, 1_000); 5]).await;
    within(secs(20), "another to be deferred", async || worker.ended("deferred") > 0).await;
    sleep(secs(5)).await;
    assert_eq!((leased(&store).await, faults.calls(Op::Remove)), (1, 0), "a slot is released by a removal");
}

#[tokio::test(start_paused = true)]
async fn other_kinds_are_reached_behind_any_number_of_jobs_that_a_machine_has_no_room_for() {
    for (hungry, longest) in [(300, secs(30)), (2_000, secs(180))] {
        on_one_clock();
        let (store, machine) = (memory::store(), Simulated::new());
        let producer = Producer::new(store.clone());
        producer.enqueue(vec![NewJob::of::<Hungry>(&600).unwrap(); hungry]).await.unwrap();
        producer.enqueue(vec![NewJob::of::<Modest>(&()).unwrap()]).await.unwrap();
        let reserve = Some(MemoryReserve::Bytes(100 * MIB));
        let settings = Settings { concurrency: 8, memory_reserve: reserve, ..saving_never() };
        let worker = Worker::builder(store.clone()).settings(settings).job(Hungry(machine.clone()));
        let limits = Limits { memory: Some(200 * MIB), ..Limits::default() };
        let worker = worker.job(Modest(machine.clone())).limits::<Hungry>(limits);
        let _worker = start_built(worker.pressure_of(Arc::new(machine.clone())));
        within(longest, "the modest job", async || machine.get().modest_done == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_more_than_there_is_runs_when_no_other_does() {
    let limits = Limits { memory: Some(4 * GIB), ..Limits::default() };
    let (store, machine, worker) = hungry_and_modest(limits, Some(MemoryReserve::Percent(10))).await;
    emptied(&store, secs(1_800)).await;
    assert_eq!((machine.get().hungry_at_once, worker.stop().await.completed), (1, 40));
}
