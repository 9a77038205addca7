//! The demo: renders a zoom into the Mandelbrot set on VMs that are evicted and killed, and checks
//! that nothing is lost.
//!
//! [`run`] starts the VMs as processes of the calling program, with `demo-worker` and [`VmArgs`] as
//! their command line: that command calls [`work`].

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

use directory::Place;
use fleet::Fleet;
use format::count;
use history::Story;
use outputs::Outputs;
use reconstruct::Seen;
use reprieve::ports::Store;
use reprieve::{Error, ErrorKind, NewJob, Producer, Result};
use run::Stage;
use store::{Home, StoreKind};
pub use summary::Summary;
use worker::{Frame, Render};
pub use worker::{VmArgs, work};

/// The longest notice: what Azure says it gives.
const NOTICE_MAX: Duration = Duration::from_secs(30);

/// The most that strikes a job on average; with more the demo would be about little else.
const FAULTS_PER_JOB_MAX: usize = 2;

/// The settings of a demo, as flags.
#[derive(Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
pub struct DemoArgs {
    /// How many frames to render, 1 to 200; a job each, of about ten seconds
    #[arg(long, value_name = "NUMBER", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=200))]
    jobs: u32,

    /// How many VMs there are at a time, 1 to 16; each is a process that renders two frames at once
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    vms: u32,

    /// How many VMs are evicted: told so, and killed when the notice is over
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    evictions: u32,

    /// How many VMs are killed without notice
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    kills: u32,

    /// How long before its end a VM is told, 0s to 30s
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    notice: Duration,

    /// Decides who is struck and when, the same way every time [default: a random one]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Where jobs are kept: sqlite, an embedded store in --dir, or azurite, the storage emulator on this machine, on its
    /// usual ports or where a connection string in REPRIEVE_STORE says; never a real account
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: String,

    /// Where the frames, the report and everything else are kept; an earlier demo there is replaced
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
                Err(Error::new(ErrorKind::Internal, "show what was promised", message))
            }
        }
    }
}

/// Runs a demo to its end, with nothing left running however it ends. Progress goes to stderr.
pub async fn run(args: DemoArgs) -> Result<Outcome> {
    let kind = args.check()?;
    let mut stopped = Box::pin(reprieve::stop_signal()?);
    let home = unless(&mut stopped, Home::find(kind)).await?;
    let place = Place::take(&args.dir)?;
    let played = args.play(&place, &home, &mut stopped).await;
    if let Some(left) = home.clear().await {
        screen::say(&left);
    }
    let (story, summary) = played.map_err(|error| {
        let message = format!("{}; its files are in {}", error.message(), place.shown().display());
        Error::new(error.kind(), "finish the demo", message).with_source(error)
    })?;
    report(&place, &story, summary)
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
            return refused(format!("--notice {:?} is over 30s, the longest that Azure gives", self.notice));
        }
        StoreKind::parse(&self.store)
    }

    /// From an empty directory to the story, with nothing left running however it ends.
    async fn play(
        &self,
        place: &Place,
        home: &Home,
        stopped: &mut (impl Future<Output = &'static str> + Unpin),
    ) -> Result<(Story, Summary)> {
        // A random one is short enough to be typed.
        let seed = self.seed.unwrap_or_else(|| rand::random::<u32>().into());
        let (evictions, kills) = (self.evictions as usize, self.kills as usize);
        let schedule = schedule::plan(seed, evictions, kills, self.vms as usize);
        self.announce(seed, home);
        let store = unless(stopped, home.open(place)).await?;
        let ids = unless(stopped, enqueue(&store, self.jobs)).await?;
        let fleet = Fleet::start(place, home, self.vms as usize, self.notice).await?;
        let mut stage = Stage::new(place, store.clone(), &ids, fleet, self.notice, schedule.clone());
        let played = unless(stopped, stage.play()).await;
        if let Err(error) = played {
            stage.stop().await;
            return Err(error);
        }
        let (lives, watch) = stage.finish().await?;
        screen::say("all done; rendering every frame again, without interruption, to compare");
        let Outputs { all, digest, reference_digest } =
            unless(stopped, outputs::collect(place, &store, ids)).await?;
        let depth = unless(stopped, store.queue.depth()).await?;
        let all_seen = Seen {
            seed,
            store: home.kind(),
            notice: self.notice,
            checkpoint_every: fleet::CHECKPOINT_EVERY,
            steps_per_job: frame::BANDS,
            outputs: all,
            output_digest: digest,
            reference_digest,
            lives,
            entries: watch.entries,
            logged: watch.logged,
        };
        let told = all_seen.tell();
        let summary = Summary::of(&told, schedule, depth.total + depth.poisoned.unwrap_or_default());
        Ok((told, summary))
    }

    fn announce(&self, seed: u64, home: &Home) {
        let Self { jobs, vms, evictions, kills, .. } = self;
        let of = |number: &u32, what: &str| count(*number, what);
        screen::say(&format!(
            "{} of a zoom into the Mandelbrot set, rendered on {} at a time;\n{} and {} will strike; seed {seed}",
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
            Err(Error::new(ErrorKind::Internal, "finish the demo", format!("{signal} ended it")))
        }
        done = work => done,
    }
}

/// Writes the report and the summary into the demo's directory.
fn report(place: &Place, story: &Story, summary: Summary) -> Result<Outcome> {
    let report = place.write_report(&report::page(story, &summary))?;
    let document = serde_json::to_vec_pretty(&summary).map_err(|error| {
        Error::new(ErrorKind::Internal, "write the summary", error.to_string()).with_source(error)
    })?;
    place.write_summary(&document)?;
    let table = table::table(story, &summary);
    Ok(Outcome { table, summary, report, directory: place.shown().to_owned() })
}
