//! One simulated run of a job: a store in memory, real workers, a paused clock, and a disturbance.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::clock::{Done, Waits};
use super::points::{Blow, Disturbance};
use super::probe::{Part, Story};
use crate::checkpoint::CheckpointEvery;
use crate::envelope::{Data, Envelope};
use crate::error::Result;
use crate::ids::{BlobName, JobId};
use crate::memory::{self, Fault, Faults, ManualNotices, MemoryBlobs, Op};
use crate::names::{ARGUMENTS, CLEANING, DRAINS, LOST_WORK, READY, RESULTS, result_blob};
use crate::notice::{Notice, NoticeKind};
use crate::ports::{BlobStore, NewMessage, Queue, Store};
use crate::process::Gate;
use crate::worker::{Monitor, Settings, Stopped, Stopper, Worker, WorkerBuilder, stopping};
use crate::{chance, clock, watch};

/// The id of the job under test, in every run.
const JOB: &str = "job-1";

/// When every run begins: 2026-01-01, in seconds since the Unix epoch.
const START: Duration = Duration::from_secs(1_767_225_600);

/// How long before the eviction its notice comes.
const NOTICE: Duration = Duration::from_secs(30);

/// How long a run lasts after a frozen worker has continued, so that its late writes are seen.
const AFTERMATH: Duration = Duration::from_secs(30);

/// The longest pause between two looks at the queue.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The most steps of a run, and saves of new states, new outputs, and real waits: a minute or two of real time in an
/// unoptimized build.
pub(super) const STEPS_MAX: u64 = 100_000;

/// One job in so many steps: what enqueues and runs a job takes longer than a step.
const STEPS_PER_JOB: u64 = 5;

/// The most bytes of blobs in a run.
pub(super) const BYTES_MAX: u64 = 1 << 30;

/// How often jobs may wait at their own request for each second of a run's patience, and get nowhere else: a minute of it
/// is enough for a look each minute in ten days.
const JOB_WAITS_A_SECOND: u64 = 250;

/// How often the real time is looked at.
const TICK: Duration = Duration::from_secs(1);

/// How often steps move at least before a run is said to get nowhere.
const MOVES_NOWHERE: u64 = 300;

/// Steps that work for so long at a move do not only poll for what never comes.
const WORK: Duration = Duration::from_millis(2);

/// How many times as long a run may go on without a mark, if its steps work or wait for something real.
const UNMARKED: u32 = 10;

/// How the reason of a run begins that moves and gets nowhere.
pub(super) const NOWHERE: &str = "it moves and gets nowhere";

/// The same for one that has done more than it may.
pub(super) const ENDLESS: &str = "it takes more than";

/// How many calls of each operation of a failing store may fail.
const FAULTS: u32 = 200;

/// How many jobs each worker runs at once.
const SLOTS: usize = 8;

/// Gives a worker the jobs of a run.
pub(super) type Jobs<'a> = dyn Fn(WorkerBuilder, Part, &Arc<Waits>) -> WorkerBuilder + Send + 'a;

/// What is the same in all runs.
pub(super) struct Stage<'a> {
    pub(super) kind: &'static str,
    pub(super) jobs: Box<Jobs<'a>>,
    pub(super) args: Box<RawValue>,
    pub(super) inputs: Vec<(BlobName, Vec<u8>)>,
    pub(super) seed: u64,
    /// The longest that a run may take, in simulated time.
    pub(super) within: Duration,
    /// The most steps of all jobs of a run, and the like.
    pub(super) steps_max: u64,
    /// The most bytes of its blobs.
    pub(super) bytes_max: u64,
    pub(super) waits: Arc<Waits>,
    /// How long a run may stand still or get nowhere, in real time.
    pub(super) patience: Duration,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Done,
    DeadLettered(String),
    Unfinished(String),
}

/// What a run left behind.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) end: End,
    pub(super) world: World,
    /// The number of awaits of each step.
    pub(super) awaits: Vec<u32>,
    /// Whether the planned moment came.
    pub(super) has_struck: bool,
}

/// What a run left behind, for [`Harness::observe`](super::Harness::observe).
#[derive(Debug, Clone)]
pub struct World {
    pub(super) result: Option<Value>,
    /// As it is stored: it may have more digits than a [`Value`].
    pub(super) result_json: Option<Vec<u8>>,
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
    /// Other jobs that have failed, and why.
    pub(super) failed: BTreeMap<JobId, String>,
}

impl World {
    /// The job's result; `None` if it has none, or is not done.
    #[must_use]
    pub const fn result(&self) -> Option<&Value> {
        self.result.as_ref()
    }

    /// The blob with this name: an output, an input, or the result of another job.
    #[must_use]
    pub fn blob(&self, name: &str) -> Option<&[u8]> {
        self.blobs.get(name).map(Vec::as_slice)
    }

    /// The names of all blobs but the job's result, in order.
    pub fn blobs(&self) -> impl Iterator<Item = &str> {
        self.blobs.keys().map(String::as_str)
    }
}

/// A worker on a machine of its own.
struct Machine {
    gate: Gate,
    /// Those of its calls to the store.
    faults: Faults,
    monitor: Monitor,
    notices: ManualNotices,
    stopper: Stopper,
    handle: JoinHandle<Stopped>,
}

impl Machine {
    fn start(stage: &Stage<'_>, run: &Run, is_first: bool) -> Result<Self> {
        stage.waits.note_worker();
        let (gate, notices) = (Gate::new(), ManualNotices::answered());
        let part = Part { story: Arc::clone(&run.story), is_first, gate: gate.clone() };
        let settings = Settings {
            concurrency: SLOTS,
            checkpoint_every: CheckpointEvery::Every(run.save_every),
            ..Settings::default()
        };
        let (store, faults) = Faults::wrap(run.store.clone());
        // A step must be able to stop between an effect and a call to the store.
        faults.everything(Fault::Yield);
        let builder = (stage.jobs)(Worker::builder(store), part, &stage.waits);
        let worker = builder.settings(settings).interruptions(Arc::new(notices.clone())).build()?;
        let monitor = worker.monitor();
        let (stopper, stopping) = stopping();
        let handle = tokio::spawn(gate.clone().run(worker.run(stopping)));
        Ok(Self { gate, faults, monitor, notices, stopper, handle })
    }

    /// Ends it as SIGKILL would: it releases nothing.
    async fn kill(self) {
        self.gate.freeze();
        self.handle.abort();
        // It was aborted, or had ended before.
        let _ended = self.handle.await;
    }

    /// Announces an eviction, and ends it when it has drained.
    async fn evict(self) {
        let notice = Notice::now("evicted", NoticeKind::Preempt);
        self.notices.notice(notice.at(Instant::now() + NOTICE));
        let gone = Instant::now() + NOTICE;
        while self.monitor.last_drain().is_none() && Instant::now() < gone {
            sleep(Duration::from_millis(10)).await;
        }
        self.kill().await;
    }

    async fn stop(self) {
        self.stopper.stop();
        let _ended = self.handle.await;
    }
}

/// What real time shows of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    /// It gets somewhere, for so many ticks so far.
    Moves(u64),
    /// No step moves.
    Still,
    /// Steps move, and get nowhere, for this many times as long as they may stand still.
    Nowhere(u32),
    /// It has done more of this than it may, which is so many.
    Endless(u64, &'static str),
    /// Nobody has taken that no step moves: one has blocked the thread that runs the test.
    Blocked(u64),
}

/// Judges a run by what it has done at each tick. Ticks are counted, and no time is measured: a process that was stopped
/// is not blocked.
struct Judge {
    /// For how many ticks it may stand still or get nowhere.
    most: u64,
    passed: u64,
    /// All that was done, with the number of blobs.
    moves: Unchanged<(Done, usize)>,
    /// The marks, the blobs, and the real waits.
    progress: Unchanged<((u64, usize), u64)>,
    /// The marks and the blobs.
    marks: Unchanged<(u64, usize)>,
    /// What was done at the last progress.
    before: Done,
    /// The most blobs at once since so many workers began: one that is written and deleted without end is no progress.
    most_blobs: (u64, usize),
}

impl Judge {
    fn new(most: u64) -> Self {
        let (moves, progress) = (Unchanged::default(), Unchanged::default());
        let (marks, before) = (Unchanged::default(), Done::default());
        Self { most, passed: 0, moves, progress, marks, before, most_blobs: (0, 0) }
    }

    fn tick(&mut self, done: Done, blobs: usize) -> Option<Judged> {
        self.passed += 1;
        let most_blobs = if self.most_blobs.0 == done.workers { self.most_blobs.1.max(blobs) } else { blobs };
        self.most_blobs = (done.workers, most_blobs);
        let marks = (done.marks, most_blobs);
        let (still, unmarked) = (self.moves.ticks((done, blobs)), self.marks.ticks(marks));
        let nowhere = self.progress.ticks((marks, done.answers));
        if nowhere == 0 {
            self.before = done;
        }
        // The thread of the test may be busy for one.
        if still >= self.most.saturating_mul(3).div_ceil(2).max(2) {
            Some(Judged::Blocked(still))
        } else if still >= self.most {
            Some(Judged::Still)
        } else if nowhere >= self.most && self.only_polls(done) {
            Some(Judged::Nowhere(1))
        } else if unmarked >= self.most.saturating_mul(UNMARKED.into()) {
            Some(Judged::Nowhere(UNMARKED))
        } else {
            self.passed.is_multiple_of(self.most).then_some(Judged::Moves(self.passed))
        }
    }

    /// Whether steps have moved much since the last progress, and hardly worked.
    fn only_polls(&self, done: Done) -> bool {
        let moves = done.moves - self.before.moves;
        let worked = done.worked.saturating_sub(self.before.worked);
        moves >= MOVES_NOWHERE && worked.as_micros() < u128::from(moves) * WORK.as_micros()
    }
}

/// Judges a run at each [`TICK`] of real time, on a thread of its own, until it is dropped: steps that compute keep the
/// test's own from looking. Ends the process if a step blocks that thread, so nothing else can report it.
struct RealTicks {
    judged: UnboundedReceiver<Judged>,
    _until: mpsc::Sender<()>,
}

impl RealTicks {
    fn start(kind: &'static str, patience: Duration, run: &Run) -> Self {
        let (waits, amounts) = (Arc::clone(&run.waits), run.amounts());
        let (until, ended) = mpsc::channel::<()>();
        let (tell, judged) = unbounded_channel();
        let ticking = move || {
            let mut judge = Judge::new(ticks_of(patience));
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let (blobs, beyond) = amounts.look();
                let steps = waits.beyond(amounts.steps_max).map(|what| (amounts.steps_max, what));
                if let Some((most, what)) = steps.or(beyond) {
                    _ = tell.send(Judged::Endless(most, what));
                }
                match judge.tick(waits.done(), blobs) {
                    Some(Judged::Blocked(ticks)) => end_blocked(kind, ticks),
                    // Who hears it may have ended.
                    Some(judged) => _ = tell.send(judged),
                    None => {}
                }
            }
        };
        // Without the thread a run that stands still is not given up.
        drop(thread::Builder::new().name("reprieve-ticks".to_owned()).spawn(ticking));
        Self { judged, _until: until }
    }
}

/// What a run has in its store, and how much it may have.
struct Amounts {
    blobs: Arc<MemoryBlobs>,
    queue: Arc<dyn Queue>,
    steps_max: u64,
    bytes_max: u64,
}

impl Amounts {
    /// Returns the number of blobs, and of what there is more than there may be, with how much there may be.
    fn look(&self) -> (usize, Option<(u64, &'static str)>) {
        // The store is in memory, and answers at once.
        let names = self.blobs.list("").now_or_never().and_then(Result::ok).unwrap_or_default();
        let waiting = self.queue.depth().now_or_never().and_then(Result::ok).map_or(0, |depth| depth.total);
        // Each job that is done has a result, and counts by its steps and as a job.
        let results = names.iter().filter(|name| name.as_str().starts_with(RESULTS)).count() as u64;
        let (outputs, jobs_max) = (names.len() as u64 - results, self.steps_max / STEPS_PER_JOB);
        // Their size is what a machine has too little of first.
        let beyond = if self.blobs.bytes() >= self.bytes_max {
            Some((self.bytes_max >> 20, "MiB of blobs"))
        } else if results + waiting > jobs_max {
            Some((jobs_max, "jobs"))
        } else {
            (outputs >= self.steps_max).then_some((self.steps_max, "outputs"))
        };
        (names.len(), beyond)
    }
}

#[expect(clippy::print_stderr, clippy::exit, reason = "the thread of the test is blocked for ever")]
fn end_blocked(kind: &str, ticks: u64) -> ! {
    let seconds = ticks.saturating_mul(TICK.as_secs());
    eprintln!(
        "the job {kind:?}: a step has blocked its thread for {seconds} s, so the test can't go on. It waits for a lock, a \
         channel or a thread of the standard library, which a step on another worker may hold over an await: each \
         process has its own, see `Harness::with`. Or it computes: see `Harness::patience`."
    );
    std::process::exit(101)
}

#[expect(clippy::print_stderr, reason = "whoever waits for the test wants to know")]
fn print_moving(kind: &str, ticks: u64, shown: &str) {
    let seconds = ticks.saturating_mul(TICK.as_secs());
    eprintln!("the job {kind:?} still moves after {seconds} s of real time in one run: {shown}");
}

/// Returns how often jobs may wait at their own request in a run of this patience, and get nowhere else.
pub(super) fn job_waits_within(patience: Duration) -> u64 {
    ticks_of(patience).saturating_mul(JOB_WAITS_A_SECOND)
}

/// Returns how many ticks this time has: at least one.
fn ticks_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX).max(1)
}

/// For how many ticks a value has been the same.
#[derive(Default)]
struct Unchanged<T> {
    value: T,
    ticks: u64,
}

impl<T: PartialEq + Copy> Unchanged<T> {
    /// Takes the value at one more tick.
    fn ticks(&mut self, value: T) -> u64 {
        let is_same = std::mem::replace(&mut self.value, value) == value;
        self.ticks = if is_same { self.ticks + 1 } else { 0 };
        self.ticks
    }
}

/// A run that is under way.
struct Run {
    story: Arc<Story>,
    store: Store,
    /// The blobs of the store.
    blobs: Arc<MemoryBlobs>,
    save_every: Duration,
    began: Instant,
    /// When it must have ended.
    until: Instant,
    /// How many steps it may take, and the like.
    steps_max: u64,
    /// How many bytes of blobs it may have, with its inputs.
    bytes_max: u64,
    waits: Arc<Waits>,
}

/// Runs the job once under `disturbance`. Must be called on a runtime of its own, with a paused clock.
///
/// # Errors
/// When a worker can't be set up.
pub(super) async fn play(stage: &Stage<'_>, disturbance: Disturbance) -> Result<Seen> {
    clock::simulate(SystemTime::UNIX_EPOCH + START);
    chance::seed(stage.seed);
    stage.waits.note_run();
    let point = if let Disturbance::At(point) = disturbance { Some(point) } else { None };
    let is_unsaved = point.is_some_and(|point| point.blow == Blow::Killed { saved: false });
    let blobs = Arc::new(MemoryBlobs::new());
    let inputs: usize = stage.inputs.iter().map(|(_, bytes)| bytes.len()).sum();
    let run = Run {
        story: Arc::new(Story::new(point)),
        store: Store { blobs: Arc::clone(&blobs) as Arc<dyn BlobStore>, ..memory::store() },
        blobs,
        save_every: if is_unsaved { Duration::from_hours(24) } else { Duration::ZERO },
        began: Instant::now(),
        until: Instant::now() + stage.within,
        steps_max: stage.steps_max,
        bytes_max: stage.bytes_max.saturating_add(inputs as u64),
        waits: Arc::clone(&stage.waits),
    };
    let job = JobId::parse(JOB)?;
    for (name, bytes) in &stage.inputs {
        run.store.blobs.put(name, bytes.clone(), None).await?;
    }
    let body = Envelope::new(job.clone(), stage.kind, Data::Inline(stage.args.clone())).to_body();
    run.store.queue.send(vec![NewMessage { body, delay: Duration::ZERO }]).await?;

    let playing = async {
        match (disturbance, point) {
            (Disturbance::FailingStore(seed), _) => run.on_failing_stores(stage, seed).await,
            (_, None) => run.calm(stage).await,
            (_, Some(point)) => run.struck(stage, point.blow).await,
        }
    };
    let unfinished = tokio::select! {
        biased;
        unfinished = playing => unfinished?,
        why = run.stalled(stage) => Some(why),
    };
    run.look(&job, unfinished).await
}

/// Says that a run has done more of this than it may, which is so many.
fn endless(most: u64, what: &str) -> String {
    format!("{ENDLESS} {most} {what}")
}

/// Stops a worker. One whose job does not end is killed.
async fn stop_after(machine: Machine, ended: &std::result::Result<(), String>) {
    match ended {
        Ok(()) => machine.stop().await,
        Err(_) => machine.kill().await,
    }
}

impl Run {
    /// Runs the job undisturbed.
    async fn calm(&self, stage: &Stage<'_>) -> Result<Option<String>> {
        let machine = Machine::start(stage, self, true)?;
        let ended = self.ended(&[&machine]).await;
        stop_after(machine, &ended).await;
        Ok(ended.err())
    }

    /// Completes with the reason when no step has moved for long in real time, or got anywhere. The clock may stand
    /// still meanwhile, or run.
    async fn stalled(&self, stage: &Stage<'_>) -> String {
        let Stage { kind, patience, .. } = stage;
        let mut ticks = RealTicks::start(kind, *patience, self);
        loop {
            match ticks.judged.recv().await {
                Some(Judged::Still | Judged::Blocked(_)) => {
                    let steps = self.story.progress.get().began;
                    return format!("no step moved for {patience:?} of real time, after {steps} steps");
                }
                Some(Judged::Nowhere(times)) => {
                    let long = patience.saturating_mul(times);
                    return format!("{NOWHERE}, for {long:?} of real time: {}", self.shown());
                }
                // The simulated time may stand still meanwhile, and `ended` with it.
                Some(Judged::Endless(most, what)) => return endless(most, what),
                Some(Judged::Moves(ticks)) => print_moving(kind, ticks, &self.shown()),
                // The thread could not be started.
                None => pending().await,
            }
        }
    }

    fn amounts(&self) -> Amounts {
        let (blobs, queue) = (Arc::clone(&self.blobs), Arc::clone(&self.store.queue));
        Amounts { blobs, queue, steps_max: self.steps_max, bytes_max: self.bytes_max }
    }

    /// Says how far it is.
    fn shown(&self) -> String {
        let (simulated, awaits) = (self.began.elapsed().as_secs(), self.story.awaits());
        let (step, awaits) = (awaits.len(), awaits.last().copied().unwrap_or_default());
        format!("{simulated} s of simulated time, await {awaits} of step {step}")
    }

    /// Runs the job on two workers whose calls to the store fail.
    async fn on_failing_stores(&self, stage: &Stage<'_>, seed: u64) -> Result<Option<String>> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut machines = Vec::new();
        for is_first in [true, false] {
            let machine = Machine::start(stage, self, is_first)?;
            plan_faults(&machine.faults, &mut random);
            machines.push(machine);
        }
        let ended = self.ended(&machines.iter().collect::<Vec<_>>()).await;
        for machine in &machines {
            machine.faults.clear_all();
        }
        for machine in machines {
            stop_after(machine, &ended).await;
        }
        Ok(ended.err())
    }

    /// Runs the job on a worker that is disturbed, and then on another one.
    async fn struck(&self, stage: &Stage<'_>, blow: Blow) -> Result<Option<String>> {
        let first = Machine::start(stage, self, true)?;
        let mut progress = self.story.progress.subscribe();
        let only_first = [&first];
        let ended = tokio::select! {
            biased;
            _ = progress.wait_for(|progress| progress.has_struck) => None,
            ended = self.ended(&only_first) => Some(ended),
        };
        if let Some(ended) = ended {
            // The moment did not come.
            stop_after(first, &ended).await;
            return Ok(ended.err());
        }
        let start_second = || Machine::start(stage, self, false);
        let Blow::Frozen { midway } = blow else {
            if blow == Blow::Evicted {
                first.evict().await;
            } else {
                first.kill().await;
            }
            let second = start_second()?;
            let ended = self.ended(&[&second]).await;
            stop_after(second, &ended).await;
            return Ok(ended.err());
        };
        let second = start_second()?;
        let only_second = [&second];
        let has_run = tokio::select! {
            biased;
            _ = progress.wait_for(|progress| midway && progress.ended_elsewhere > 0) => Ok(()),
            ended = self.ended(&only_second) => ended,
        };
        first.gate.thaw();
        let ended = match has_run {
            Ok(()) => self.ended(&[&first, &second]).await,
            has_not => has_not,
        };
        if ended.is_ok() {
            sleep(AFTERMATH).await;
        }
        stop_after(first, &ended).await;
        stop_after(second, &ended).await;
        Ok(ended.err())
    }

    /// Waits until no message is left. While all wait for a later time, the machines stand still, since
    /// an idle worker looks around every second, and a week has many.
    ///
    /// # Errors
    /// Why it waits no longer.
    async fn ended(&self, machines: &[&Machine]) -> std::result::Result<(), String> {
        let mut progress: watch::Receiver<_> = self.story.progress.subscribe();
        let mut pause = Duration::from_millis(1);
        loop {
            let depth = self.store.queue.depth().await.map_err(|error| error.to_string())?;
            if depth.total == 0 {
                return Ok(());
            }
            if (depth.ready, depth.leased) == (Some(0), Some(0)) {
                for machine in machines {
                    machine.gate.freeze();
                }
                self.store.queue.arrived().await;
                for machine in machines {
                    machine.gate.thaw();
                }
            }
            tokio::select! {
                biased;
                () = progress.changed() => pause = Duration::from_millis(1),
                () = sleep(pause) => pause = LOOK_MAX.min(pause * 2),
            }
            let steps = self.waits.steps();
            if Instant::now() >= self.until {
                return Err(format!("its time is over, after {steps} steps; see `Harness::within`"));
            }
            if let Some(what) = self.waits.beyond(self.steps_max) {
                return Err(endless(self.steps_max, what));
            }
        }
    }

    /// Reads what the run left behind.
    async fn look(&self, job: &JobId, unfinished: Option<String>) -> Result<Seen> {
        let (mut reason, mut failed) = (None, BTreeMap::new());
        for letter in self.store.queue.dead_letters(usize::MAX).await? {
            let why = letter.reason.unwrap_or_default();
            match Envelope::read(&letter.body, &letter.id, None) {
                // Its children may fail, if it can bear that.
                Ok(other) if other.job != *job => drop(failed.insert(other.job, why)),
                Ok(_) | Err(_) => drop(reason.get_or_insert(why)),
            }
        }
        let own = result_blob(job)?;
        let result_json = self.store.blobs.get(&own).await?;
        let result = result_json.as_deref().map(|json| serde_json::from_slice(json).unwrap_or_default());
        let mut blobs = BTreeMap::new();
        for name in self.store.blobs.list("").await? {
            let is_internal =
                [ARGUMENTS, DRAINS, READY].iter().any(|prefix| name.as_str().starts_with(prefix));
            if is_internal || [CLEANING, LOST_WORK].contains(&name.as_str()) || name == own {
                continue;
            }
            if let Some(bytes) = self.store.blobs.get(&name).await? {
                blobs.insert(name.as_str().to_owned(), bytes);
            }
        }
        let end = match (unfinished, reason) {
            (_, Some(reason)) => End::DeadLettered(reason),
            (Some(why), None) => End::Unfinished(why),
            (None, None) => End::Done,
        };
        Ok(Seen {
            end,
            world: World { result, result_json, blobs, failed },
            awaits: self.story.awaits(),
            has_struck: self.story.progress.get().has_struck,
        })
    }
}

/// Plans faults for the next calls of all operations: delays, errors, and lost and late answers.
fn plan_faults(faults: &Faults, random: &mut SmallRng) {
    use crate::error::ErrorKind::{TimedOut, Unavailable};

    for op in Op::ALL {
        for _ in 0..FAULTS {
            let fault = match random.random_range(0..100) {
                0..12 => Fault::Fail(Unavailable),
                12..16 => Fault::Fail(TimedOut),
                16..26 => Fault::LoseAnswer,
                26..30 => Fault::LateAnswer(Duration::from_millis(random.random_range(100..5_000))),
                _ => Fault::Delay(Duration::from_millis(random.random_range(1..50))),
            };
            faults.next_calls(op, random.random_range(1..=2), fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_that_is_written_and_deleted_without_end_is_no_progress_and_one_more_is() {
        let (mut judge, mut done) = (Judge::new(10), Done { workers: 1, ..Done::default() });
        let mut judged = |blobs, workers| {
            done = Done { moves: done.moves + 1_000, workers, ..done };
            judge.tick(done, blobs)
        };
        for blobs in 1..30 {
            assert!(!matches!(judged(blobs, 1), Some(Judged::Nowhere(_))), "{blobs} blobs");
        }
        // As many as before, on a worker that does it again.
        assert!((1..30).all(|blobs| !matches!(judged(blobs, 2), Some(Judged::Nowhere(_)))));
        let after = (1..=20).find(|tick| judged(28 + tick % 2, 2) == Some(Judged::Nowhere(1)));
        assert!(after.is_some_and(|ticks| ticks <= 11), "{after:?}");
    }
}
