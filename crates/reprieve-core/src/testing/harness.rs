//! The harness: runs a job undisturbed and under every disturbance, and compares.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use std::{panic, thread};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::runtime::Builder;

use super::clock::{REAL_WAIT, Waits};
use super::difference::{Difference, Finding, compare};
use super::points::{Disturbance, Series};
use super::probe::{Part, Probe};
use super::world::{BYTES_MAX, End, STEPS_MAX, Seen, Stage, World, job_waits_within, play};
use crate::codec::{self, STACK_BYTES};
use crate::ids::BlobName;
use crate::job::Job;
use crate::worker::WorkerBuilder;

/// The most points of each kind of disturbance, unless [`Harness::points`] sets another number.
pub const POINTS_MAX: usize = 100;

/// How often a run is repeated in which the clock advanced while a step waited for something real.
const TRIES: usize = 5;

/// How long the end of a run waits, in real time, for what its steps have left on other threads.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Adds a kind of job to a worker.
type Kind<'a> = Box<dyn Fn(WorkerBuilder, Part, &Arc<Waits>) -> WorkerBuilder + Send + 'a>;

/// Looks at what a run did.
type Observer<'a> = Box<dyn FnMut(&World) -> Result<Vec<u8>, String> + Send + 'a>;

/// Runs a job in a simulated world, first undisturbed, and then once for each point at which it is
/// disturbed, and compares what the runs left behind: the result, all blobs written, and what
/// [`observe`](Self::observe) returns.
///
/// Each run has a store in memory, real workers, and a clock that advances to the next timer whenever
/// nothing else can be done, so a job that waits for an hour takes milliseconds. Everything is
/// derived from a seed. Steps run for real: with files, threads and connections. While they wait for
/// those, the clock stands still.
///
/// Without any of [`evicted_at_every_step`](Self::evicted_at_every_step),
/// [`killed_at_every_step`](Self::killed_at_every_step), [`frozen`](Self::frozen) and
/// [`failing_store`](Self::failing_store), a check does all four.
///
/// A check is a plain function: it blocks its thread, and runs the job on a thread and on a runtime of
/// its own, so it belongs in a plain `#[test]`. It also works in a `#[tokio::test]`, whose own tasks
/// then stand still. Tests may run side by side: nothing is shared between checks but what the job
/// itself shares.
///
/// # Example
/// ```
/// use reprieve_core::testing::Harness;
/// # use reprieve_core::{Job, JobContext, JobError, Step};
/// # struct Sum;
/// # #[async_trait::async_trait]
/// # impl Job for Sum {
/// #     const KIND: &'static str = "sum";
/// #     type Args = u64;
/// #     type Checkpoint = (u64, u64);
/// #     type Output = u64;
/// #     fn begin(&self, _: &u64) -> (u64, u64) { (1, 0) }
/// #     async fn step(&self, _: &JobContext, to: &u64, (at, sum): (u64, u64)) -> Result<Step<(u64, u64), u64>, JobError> {
/// #         Ok(if at > *to { Step::Done(sum) } else { Step::Continue((at + 1, sum + at)) })
/// #     }
/// # }
///
/// // In a `#[test]`:
/// let report = Harness::new(Sum).args(&10).check();
/// assert_eq!(report.steps(), 11);
/// ```
#[must_use = "nothing is run before `check`"]
pub struct Harness<'a, J> {
    job: Box<dyn Fn() -> Arc<J> + Send + 'a>,
    also: Vec<Kind<'a>>,
    worker: Box<dyn Fn(WorkerBuilder) -> WorkerBuilder + Send + 'a>,
    args: Result<Box<RawValue>, String>,
    inputs: Vec<(String, Vec<u8>)>,
    before: Vec<Box<dyn FnMut() + Send + 'a>>,
    observers: Vec<Observer<'a>>,
    series: Vec<Series>,
    points: usize,
    seed: u64,
    within: Duration,
    steps_max: u64,
    bytes_max: u64,
    real_wait: Duration,
    patience: Duration,
}

impl<'a, J: Job> Harness<'a, J> {
    /// A harness for `job`, which all workers of all runs share. For a job with a cache or anything
    /// else in memory that a process has for itself, see [`with`](Self::with).
    pub fn new(job: J) -> Self {
        let job = Arc::new(job);
        Self::of(move || Arc::clone(&job))
    }

    /// A harness for a job of which each worker makes its own, as each process does. What the job
    /// keeps in memory is then lost with the worker, and a job that needs it is found out.
    pub fn with(job: impl Fn() -> J + Send + 'a) -> Self {
        Self::of(move || Arc::new(job()))
    }

    fn of(job: impl Fn() -> Arc<J> + Send + 'a) -> Self {
        Self {
            job: Box::new(job),
            also: Vec::new(),
            worker: Box::new(|worker| worker),
            args: Ok(RawValue::NULL.to_owned()),
            inputs: Vec::new(),
            before: Vec::new(),
            observers: Vec::new(),
            series: Vec::new(),
            points: POINTS_MAX,
            seed: 0,
            within: Duration::from_hours(30 * 24),
            steps_max: STEPS_MAX,
            bytes_max: BYTES_MAX,
            real_wait: REAL_WAIT,
            patience: Duration::from_mins(1),
        }
    }

    /// Sets the job's arguments: anything whose JSON the job can read. Default: `null`, which is `()`.
    pub fn args<A: Serialize + ?Sized>(mut self, args: &A) -> Self {
        self.args = codec::encode_json(args);
        self
    }

    /// Puts an input blob into the store of each run.
    pub fn input(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.inputs.push((name.into(), bytes.into()));
        self
    }

    /// Adds another kind of job to the workers, for a job that enqueues such jobs. It is not
    /// disturbed by itself, but with its worker, so that a step of it that is not safe to repeat may pass, and the
    /// [`Report`] says so: give each kind a check of its own. A run ends when no message of any job is left.
    pub fn also<K: Job>(mut self, job: K) -> Self {
        let job = Arc::new(job);
        self.also.push(Box::new(move |worker, _, waits| {
            worker.job(Probe { job: Arc::clone(&job), waits: Arc::clone(waits), part: None })
        }));
        self
    }

    /// Adds to each worker what the job needs of it, such as shared values and limits. The settings are
    /// the harness's own, and replace those that are set here.
    pub fn worker(mut self, worker: impl Fn(WorkerBuilder) -> WorkerBuilder + Send + 'a) -> Self {
        self.worker = Box::new(worker);
        self
    }

    /// Calls `reset` before each run: for what an earlier run has left outside of its store. There are
    /// more runs than points, because some are repeated.
    pub fn before_each_run(mut self, reset: impl FnMut() + Send + 'a) -> Self {
        self.before.push(Box::new(reset));
        self
    }

    /// Compares also what `look` returns at the end of each run, such as the rows of a service that
    /// the job writes to: what this one run has done, so take it, or empty the service in
    /// [`before_each_run`](Self::before_each_run). It is compared as JSON, in which the order of a
    /// map's entries does not matter and that of a list's elements does.
    pub fn observe<T: Serialize>(mut self, mut look: impl FnMut(&World) -> T + Send + 'a) -> Self {
        self.observers
            .push(Box::new(move |world| serde_json::to_vec(&look(world)).map_err(|error| error.to_string())));
        self
    }

    /// Evicts the job's worker before the first step, in each step, and after each, and continues on
    /// another worker. In a step, the notice comes at awaits that do not complete at once, which includes
    /// each call to the store before it is applied and before it answers; see [`points`](Self::points).
    pub fn evicted_at_every_step(mut self) -> Self {
        self.series.push(Series::Evicted);
        self
    }

    /// Kills the job's worker without notice in each step and at the end of each, before its state is
    /// saved, and continues on another worker when the lease has ended: once with the state before
    /// the step saved, and once with nothing saved, so that the job begins anew.
    ///
    /// A killed step is dropped, so its destructors run, which they do not when a process is really
    /// killed. Tasks that it has spawned go on.
    pub fn killed_at_every_step(mut self) -> Self {
        self.series.push(Series::Killed);
        self
    }

    /// Freezes the job's worker in each step and at the end of each, until its lease has ended and
    /// another worker has run a step of the job, or all of it; then the first one continues. What it
    /// writes into the store is refused.
    pub fn frozen(mut self) -> Self {
        self.series.push(Series::Frozen);
        self
    }

    /// Runs the job ten times on two workers whose calls to the store fail, hang for seconds, or lose
    /// their answers, as `seed` determines.
    pub fn failing_store(mut self, seed: u64) -> Self {
        self.series.push(Series::FailingStore(seed));
        self
    }

    /// Sets at how many points each kind of disturbance strikes at most. Of more, that many are chosen
    /// by the seed, and the [`Report`] says so: of a long step fewer awaits, down to three, in each step others,
    /// and then fewer of these and of the ends of steps. Default: [`POINTS_MAX`].
    pub const fn points(mut self, max: usize) -> Self {
        self.points = max;
        self
    }

    /// Sets the seed from which the worker's random choices and the choice of points are derived.
    /// Default: 0.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets how long a run may take at most, in simulated time: less than the default where the job could poll for
    /// what never comes. Default: 30 days.
    ///
    /// Whatever the time, a run is given up after 100,000 steps, with those of jobs that it enqueues, and after as many
    /// saves of new states, outputs, or waits for something real, such as a [`compute`](crate::JobContext::compute);
    /// after 20,000 jobs that it enqueues; and beyond 1 GiB of blobs.
    pub const fn within(mut self, limit: Duration) -> Self {
        self.within = limit;
        self
    }

    /// Sets for how long, in real time, the clock stands still where a step waits for the first time for
    /// one of several things, which may be an answer and a timeout. An answer that takes longer may be
    /// overtaken by the timeout. Default: 1 s.
    pub const fn real_waits_up_to(mut self, longest: Duration) -> Self {
        self.real_wait = longest;
        self
    }

    /// Sets for how long, in real time, no step may begin, end, save, call the store, or go on after a wait. A run that
    /// stands still for longer is given up, such as one in which a step waits for what nothing ends. A long
    /// [`compute`](crate::JobContext::compute), a slow answer, or a long sleep may need more. After half
    /// as long again, and two seconds at least, the process ends, if a step blocks the thread of the test.
    ///
    /// A run that moves and gets nowhere is given up, too, such as one that polls for what never comes, by sleeping or by
    /// [`Step::Wait`](crate::Step::Wait): in it no step began in a state of its job that was not before on its worker,
    /// saved one, ended a job, or had more outputs than before. It may take as long, and 300 moves; or ten times as long,
    /// if its steps compute, at least 2 ms for each move, or wait for anything real. The first 15,000 waits by
    /// [`Step::Wait`](crate::Step::Wait) in a run get somewhere, or 250 for each second of another time. A run that gets
    /// somewhere prints after each such time how far it is.
    ///
    /// Counted in whole seconds, at least one. Default: a minute.
    pub const fn patience(mut self, longest: Duration) -> Self {
        self.patience = longest;
        self
    }

    /// Runs the job, and returns what was done.
    ///
    /// # Panics
    /// At the first difference, with its [message](Difference), and when the undisturbed job is not
    /// done or is not the same twice.
    #[track_caller]
    pub fn check(self) -> Report {
        match self.try_check() {
            Ok(report) => report,
            Err(difference) => panic!("{difference}"),
        }
    }

    /// Does the same as [`check`](Self::check), and returns the difference.
    ///
    /// # Errors
    /// The first difference.
    pub fn try_check(self) -> Result<Report, Difference> {
        let checked = thread::scope(|scope| {
            // A clock and a seed belong to a thread, and the one of a test may be in a runtime.
            let thread = thread::Builder::new().name("reprieve-test".to_owned()).stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, || self.run()).map(thread::ScopedJoinHandle::join)
        });
        match checked {
            Ok(Ok(checked)) => checked,
            Ok(Err(panicked)) => panic::resume_unwind(panicked),
            Err(error) => {
                Err(unable(J::KIND, Disturbance::None, format!("no thread can be started: {error}")))
            }
        }
    }

    fn run(self) -> Result<Report, Difference> {
        let (points, seed, also) = (self.points, self.seed, self.also.len());
        let series = if self.series.is_empty() {
            vec![Series::Evicted, Series::Killed, Series::Frozen, Series::FailingStore(seed)]
        } else {
            self.series.clone()
        };
        let mut check = Check::new(self)?;
        let (undisturbed, observed) = check.play(Disturbance::None)?;
        if undisturbed.end != End::Done {
            let finding = Finding {
                what: "how it ends".to_owned(),
                expected: End::Done.to_string(),
                seen: undisturbed.end.to_string(),
                is_unfinished: matches!(undisturbed.end, End::Unfinished(_)),
            };
            return Err(Difference::new(J::KIND, Disturbance::None, None, finding));
        }
        let steps = undisturbed.awaits.len();
        let mut report = Report { kind: J::KIND, steps, runs: 1, series: Vec::new(), seed, also };
        let mut compare_with = |disturbance| -> Result<bool, Difference> {
            let (disturbed, now_observed) = check.play(disturbance)?;
            match compare((&undisturbed, &observed), (&disturbed, &now_observed)) {
                Some(finding) => Err(Difference::new(J::KIND, disturbance, Some(steps), finding)),
                None => Ok(disturbed.has_struck),
            }
        };
        compare_with(Disturbance::None)?;
        report.runs += 1;
        for series in series {
            let (chosen, of) = series.choose(&undisturbed.awaits, points, seed);
            let mut done = SeriesReport { name: series.name(), points: chosen.len(), of, missed: 0 };
            for disturbance in chosen {
                let has_struck = compare_with(disturbance)?;
                done.missed += usize::from(disturbance.step().is_some() && !has_struck);
                report.runs += 1;
            }
            report.series.push(done);
        }
        Ok(report)
    }
}

/// A check that is under way.
struct Check<'a> {
    stage: Stage<'a>,
    before: Vec<Box<dyn FnMut() + Send + 'a>>,
    observers: Vec<Observer<'a>>,
}

impl<'a> Check<'a> {
    fn new<J: Job>(harness: Harness<'a, J>) -> Result<Self, Difference> {
        let unable = |why| unable(J::KIND, Disturbance::None, why);
        let Harness { job, also, worker, args, inputs, before, observers, .. } = harness;
        let Harness { seed, within, steps_max, bytes_max, real_wait, patience, .. } = harness;
        let args = args.map_err(|why| unable(format!("the arguments: {why}")))?;
        let name = |(name, bytes)| Ok((BlobName::parse(name)?, bytes));
        let inputs: crate::error::Result<_> = inputs.into_iter().map(name).collect();
        let jobs = move |builder: WorkerBuilder, part: Part, waits: &Arc<Waits>| {
            let mut builder = builder;
            for kind in &also {
                builder = kind(builder, part.clone(), waits);
            }
            // Last, because limits are set for kinds that the worker has.
            worker(builder.job(Probe { job: job(), waits: Arc::clone(waits), part: Some(part) }))
        };
        let stage = Stage {
            kind: J::KIND,
            jobs: Box::new(jobs),
            args,
            inputs: inputs.map_err(|error| unable(error.to_string()))?,
            seed,
            within,
            steps_max,
            bytes_max,
            waits: Arc::new(Waits::new(real_wait, job_waits_within(patience))),
            patience,
        };
        Ok(Self { stage, before, observers })
    }

    /// Runs the job under `disturbance`: again, if the clock advanced while a step waited for something
    /// real, because now it is known how long that takes.
    fn play(&mut self, disturbance: Disturbance) -> Result<(Seen, Vec<Vec<u8>>), Difference> {
        let mut tries = 1;
        loop {
            let played = self.play_once(disturbance);
            if !self.stage.waits.take_late() || tries == TRIES {
                return played.map_err(|why| unable(self.stage.kind, disturbance, why));
            }
            tries += 1;
        }
    }

    fn play_once(&mut self, disturbance: Disturbance) -> Result<(Seen, Vec<Vec<u8>>), String> {
        self.before.iter_mut().for_each(|reset| reset());
        let waits = Arc::clone(&self.stage.waits);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .on_thread_park(move || waits.note_idle())
            .build()
            .map_err(|error| error.to_string())?;
        let (stage, observers) = (&self.stage, &mut self.observers);
        let seen = runtime.block_on(async {
            let seen = play(stage, disturbance).await.map_err(|error| error.to_string())?;
            let observed: Result<Vec<_>, _> = observers.iter_mut().map(|look| look(&seen.world)).collect();
            Ok((seen, observed?))
        });
        runtime.shutdown_timeout(SHUTDOWN);
        seen
    }
}

/// A check that can't be done.
fn unable(kind: &'static str, disturbance: Disturbance, why: String) -> Difference {
    let finding = Finding {
        what: "the set-up".to_owned(),
        expected: "a run".to_owned(),
        seen: why,
        ..Finding::default()
    };
    Difference::new(kind, disturbance, None, finding)
}

impl<J: Job> fmt::Debug for Harness<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("kind", &J::KIND)
            .field("series", &self.series)
            .field("points", &self.points)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// What a check has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    kind: &'static str,
    steps: usize,
    runs: usize,
    series: Vec<SeriesReport>,
    seed: u64,
    /// The number of other kinds.
    also: usize,
}

/// One kind of disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeriesReport {
    name: &'static str,
    points: usize,
    of: usize,
    /// Points that did not come, because the run had fewer steps.
    missed: usize,
}

impl Report {
    /// The number of steps of the undisturbed job.
    #[must_use]
    pub const fn steps(&self) -> usize {
        self.steps
    }

    /// The number of runs, without those that were repeated.
    #[must_use]
    pub const fn runs(&self) -> usize {
        self.runs
    }

    /// Whether some points were left out; see [`Harness::points`].
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.series.iter().any(|series| series.points < series.of)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the job {:?} survives: {} steps, {} runs", self.kind, self.steps, self.runs)?;
        for SeriesReport { name, points, of, missed } in &self.series {
            write!(f, "; {name}: {points} points")?;
            if points < of {
                write!(f, " of {of}, chosen by seed {}", self.seed)?;
            }
            if *missed > 0 {
                write!(f, ", {missed} of which did not come")?;
            }
        }
        match self.also {
            0 => Ok(()),
            1 => f.write_str("; not in the steps of one other kind, which needs a check of its own"),
            also => write!(f, "; not in the steps of {also} other kinds, which need checks of their own"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::JobContext;
    use crate::job::{JobError, Step};
    use crate::producer::NewJob;

    /// Each enqueues the next one.
    #[derive(Debug)]
    struct Again;

    #[async_trait::async_trait]
    impl Job for Again {
        const KIND: &'static str = "again";
        type Args = u64;
        type Checkpoint = ();
        type Output = ();

        fn begin(&self, _: &u64) {}

        async fn step(&self, cx: &JobContext, number: &u64, (): ()) -> Result<Step<(), ()>, JobError> {
            cx.enqueue(vec![NewJob::of::<Self>(&(number + 1))?]).await?;
            Ok(Step::Done(()))
        }
    }

    #[derive(Debug)]
    struct First;

    #[async_trait::async_trait]
    impl Job for First {
        const KIND: &'static str = "first";
        type Args = ();
        type Checkpoint = ();
        type Output = ();

        fn begin(&self, (): &()) {}

        async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
            cx.enqueue(vec![NewJob::of::<Again>(&0)?]).await?;
            Ok(Step::Done(()))
        }
    }

    #[test]
    fn jobs_that_enqueue_jobs_without_end_are_given_up() {
        let harness = Harness { steps_max: 500, ..Harness::new(First).also(Again) };
        let message = harness.try_check().expect_err("it has no end").to_string();
        // Jobs are counted each second.
        let whats = [
            "it takes more than 100 jobs",
            "it takes more than 500 steps, with those of jobs that it enqueues",
        ];
        assert!(whats.iter().any(|what| message.contains(what)), "{message}");
        assert!(message.contains("give it less to do"), "{message}");
    }

    #[test]
    fn a_report_says_which_kinds_were_not_disturbed() {
        let report = Report { kind: "k", steps: 1, runs: 2, series: Vec::new(), seed: 0, also: 0 };
        assert_eq!(report.to_string(), "the job \"k\" survives: 1 steps, 2 runs");
        let report = Report { also: 2, ..report }.to_string();
        assert!(
            report.ends_with("; not in the steps of 2 other kinds, which need checks of their own"),
            "{report}"
        );
    }

    /// Does this for ever in its one step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Endless {
        Saves,
        Writes,
        Computes,
        Enqueues,
        WritesMuch,
    }

    #[async_trait::async_trait]
    impl Job for Endless {
        const KIND: &'static str = "endless";
        type Args = ();
        type Checkpoint = u64;
        type Output = ();

        fn begin(&self, (): &()) -> u64 {
            0
        }

        async fn step(&self, cx: &JobContext, (): &(), mut at: u64) -> Result<Step<u64, ()>, JobError> {
            loop {
                at += 1;
                match self {
                    Self::Saves => drop(cx.save::<Self>(&at).await?),
                    Self::Writes => cx.put_output(&format!("out-{at}"), Vec::new()).await?,
                    Self::Computes => cx.compute(|| ()).await,
                    // Of a kind that no worker has.
                    Self::Enqueues => drop(cx.enqueue(vec![NewJob::of::<Again>(&at)?]).await?),
                    Self::WritesMuch => cx.put_output(&format!("out-{at}"), vec![0; 1 << 20]).await?,
                }
            }
        }
    }

    #[test]
    fn a_step_that_leaves_something_new_without_end_is_given_up() {
        for (endless, what) in [
            (Endless::Saves, "500 saves of new states"),
            (Endless::Writes, "500 outputs"),
            (Endless::Computes, "500 waits for computations"),
            (Endless::Enqueues, "100 jobs"),
            (Endless::WritesMuch, "20 MiB of blobs"),
        ] {
            let harness = Harness { steps_max: 500, bytes_max: 20 << 20, ..Harness::new(endless) };
            let message = harness.try_check().expect_err("it has no end").to_string();
            assert!(message.contains(&format!("it takes more than {what}")), "{message}");
            assert!(message.contains("give it less to do"), "{message}");
        }
    }
}
