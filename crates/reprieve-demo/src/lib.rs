//! The demo: renders a zoom into the Mandelbrot set on VMs that are evicted and killed, and checks
//! that nothing is lost.
//!
//! [`run()`] starts the VMs as processes of the calling program, with `demo-worker` and [`VmArgs`]
//! as their command line: that command calls [`work`].

mod directory;
#[cfg(test)]
mod fixtures;
mod fleet;
mod format;
mod frame;
mod history;
mod journal;
mod log;
mod observer;
mod outputs;
pub mod page;
mod progress;
mod reconstruct;
mod report;
mod run;
mod schedule;
mod screen;
mod store;
mod summary;
mod table;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use directory::DemoDirectory;
use fleet::Fleet;
use format::count;
use history::History;
use outputs::Outputs;
use reconstruct::Observations;
use reprieve::ports::Store;
use reprieve::{Error, ErrorKind, NewJob, Producer, Result};
use run::Run;
use store::{DemoStore, StoreKind};
pub use summary::Summary;
use worker::{Frame, Render};
pub use worker::{VmArgs, work};

/// The longest notice, as Azure documents it.
const NOTICE_MAX: Duration = Duration::from_secs(30);

/// The most faults per job on average.
const FAULTS_PER_JOB_MAX: usize = 2;

/// The settings of a demo, as flags.
#[derive(Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
pub struct DemoArgs {
    /// The number of frames, 1 to 200; each is a job of about ten seconds
    #[arg(long, value_name = "NUMBER", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=200))]
    jobs: u32,

    /// The number of VMs at a time, 1 to 16; each is a process that renders two frames at once
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    vms: u32,

    /// The number of evictions: a VM gets a notice, and is killed when it ends
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    evictions: u32,

    /// The number of VMs that are killed without notice
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    kills: u32,

    /// The time from an eviction's notice to the VM's end, 0s to 30s
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    notice: Duration,

    /// Selects the VMs that are evicted and killed, and when; the same for the same seed [default:
    /// random]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// The store: sqlite, an embedded store in --dir, or azurite, the storage emulator on this
    /// machine, on its usual ports or at the connection string in REPRIEVE_STORE; never a real
    /// account
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: String,

    /// The directory for the frames, the report and everything else; an earlier demo there is
    /// replaced
    #[arg(long, value_name = "PATH", default_value = "reprieve-demo")]
    dir: PathBuf,
}

/// Reads a duration; clap adds the name of the flag to the error.
fn duration(text: &str) -> Result<Duration, String> {
    reprieve::parse_duration(text).map_err(|error| error.message().to_owned())
}

/// The outcome of a demo that ran to its end.
#[derive(Debug)]
pub struct Outcome {
    /// The results in words, a line for each.
    pub table: String,
    /// The results in numbers.
    pub summary: Summary,
    /// The path of the report, below the directory as it was given.
    pub report: PathBuf,
    directory: PathBuf,
}

impl Outcome {
    /// Fails when the demo did not show what it promises: work was lost, done twice or differs.
    pub fn verdict(&self) -> Result<()> {
        match self.summary.faults() {
            faults if faults.is_empty() => Ok(()),
            faults => {
                let message = format!("{}; the logs are in {}", faults.join(", "), self.directory.display());
                Err(Error::new(ErrorKind::Internal, "pass the demo's checks", message))
            }
        }
    }
}

/// Runs a demo to its end, with nothing left running however it ends. Progress goes to stderr.
pub async fn run(args: DemoArgs) -> Result<Outcome> {
    let kind = args.check()?;
    let mut stopped = Box::pin(reprieve::stop_signal()?);
    let home = unless(&mut stopped, DemoStore::find(kind)).await?;
    let directory = DemoDirectory::take(&args.dir)?;
    let played = args.play(&directory, &home, &mut stopped).await;
    if let Some(left) = home.clear().await {
        screen::say(&left);
    }
    let (history, summary) = played.map_err(|error| {
        let message = format!("{}; its files are in {}", error.message(), directory.shown().display());
        Error::new(error.kind(), "finish the demo", message).with_source(error)
    })?;
    report(&directory, &history, summary)
}

impl DemoArgs {
    /// Refuses what is wrong, before anything is made. Returns which kind of store is asked for.
    fn check(&self) -> Result<StoreKind> {
        let refused = |message: String| Err(Error::new(ErrorKind::Invalid, "prepare the demo", message));
        let faults_max = self.jobs as usize * FAULTS_PER_JOB_MAX;
        let faults = self.evictions as usize + self.kills as usize;
        if faults > faults_max {
            return refused(format!(
                "{faults} evictions and kills are too many for {}; use {faults_max} or fewer",
                count(self.jobs, "job")
            ));
        }
        if self.notice > NOTICE_MAX {
            return refused(format!("--notice {:?} is over 30s, Azure's longest notice", self.notice));
        }
        StoreKind::parse(&self.store)
    }

    /// Runs the demo in an empty directory, and leaves no process running however it ends.
    async fn play(
        &self,
        directory: &DemoDirectory,
        home: &DemoStore,
        stopped: &mut (impl Future<Output = &'static str> + Unpin),
    ) -> Result<(History, Summary)> {
        // A random one is short enough to be typed.
        let seed = self.seed.unwrap_or_else(|| rand::random::<u32>().into());
        let (evictions, kills) = (self.evictions as usize, self.kills as usize);
        let schedule = schedule::plan(seed, evictions, kills, self.vms as usize);
        self.announce(seed, home);
        let store = unless(stopped, home.open(directory)).await?;
        let ids = unless(stopped, enqueue(&store, self.jobs)).await?;
        let fleet = Fleet::start(directory, home, self.vms as usize, self.notice).await?;
        let mut stage = Run::new(directory, store.clone(), &ids, fleet, self.notice, schedule.clone());
        let played = unless(stopped, stage.play()).await;
        if let Err(error) = played {
            stage.stop().await;
            return Err(error);
        }
        let (lifetimes, observer) = stage.finish().await?;
        screen::say("all jobs are completed; rendering every frame again, without interruption, to compare");
        let Outputs { all, digest, reference_digest } =
            unless(stopped, outputs::collect(directory, &store, ids)).await?;
        let depth = unless(stopped, store.queue.depth()).await?;
        let all_seen = Observations {
            seed,
            store: home.kind(),
            notice: self.notice,
            checkpoint_every: fleet::CHECKPOINT_EVERY,
            steps_per_job: frame::BANDS,
            outputs: all,
            output_digest: digest,
            reference_digest,
            lifetimes,
            entries: observer.entries,
            logged: observer.logged,
        };
        let history = all_seen.reconstruct();
        let summary = Summary::of(&history, schedule, depth.total + depth.poisoned.unwrap_or_default());
        Ok((history, summary))
    }

    fn announce(&self, seed: u64, home: &DemoStore) {
        let Self { jobs, vms, evictions, kills, .. } = self;
        let of = |number: &u32, what: &str| count(*number, what);
        screen::say(&format!(
            "{} of a zoom into the Mandelbrot set, rendered on {} at a time;\nwith {} and {}; seed {seed}",
            of(jobs, "frame"),
            of(vms, "VM"),
            of(evictions, "eviction"),
            of(kills, "kill")
        ));
        if let Some(remark) = home.remark() {
            screen::say(&remark);
        }
    }
}

/// Fills the queue; returns the jobs' ids, in the order of the frames.
async fn enqueue(store: &Store, jobs: u32) -> Result<Vec<String>> {
    let frames = (0..jobs).map(|number| NewJob::of::<Render>(&Frame { number, of: jobs }));
    let ids = Producer::new(store.clone()).enqueue(frames.collect::<Result<_>>()?).await?;
    Ok(ids.into_iter().map(String::from).collect())
}

/// Works until the operating system asks for an end.
async fn unless<T>(
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        biased;
        signal = stopped => {
            Err(Error::new(ErrorKind::Internal, "finish the demo", format!("{signal} stopped it")))
        }
        done = work => done,
    }
}

/// Writes the report and the summary into the demo's directory.
fn report(directory: &DemoDirectory, history: &History, summary: Summary) -> Result<Outcome> {
    let report = directory.write_report(&report::page(history, &summary))?;
    let document = serde_json::to_vec_pretty(&summary).map_err(|error| {
        Error::new(ErrorKind::Internal, "write the summary", error.to_string()).with_source(error)
    })?;
    directory.write_summary(&document)?;
    let table = table::table(history, &summary);
    Ok(Outcome { table, summary, report, directory: directory.shown().to_owned() })
}
