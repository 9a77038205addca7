//! `reprieve doctor`: tries what a worker with the same settings needs, and changes nothing.

mod account;
mod dependencies;
mod disk;
mod embedded;
mod finding;
mod metadata;
mod pace;
mod page;
mod queues;
mod roles;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use reprieve::checkup::{Checkup, Setting, StoreAddress};
use reprieve::{Error, ErrorKind, Result, WorkerArgs, clock};
use serde::Serialize;

use self::finding::{Finding, State};
use crate::out::Out;

/// The end of `doctor --help`.
const EXIT_CODES: &str = "\
Durations are a number and a unit: 500ms, 10s, 5m, 1h.
Exit codes: 0 no problem; 1 a problem was found; 2 wrong usage or settings.
Data goes to stdout, everything else to stderr.";

/// The exit code when there is a problem.
const PROBLEM: u8 = 1;

/// Checks what a worker with these settings needs, and says how to fix what fails; changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Prints JSON: every setting, every finding, every figure
    #[arg(long)]
    json: bool,

    /// The flags of a worker, read from the same places.
    #[command(flatten)]
    worker: WorkerArgs,
}

/// The whole report, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    /// The time of the report, in milliseconds since the Unix epoch.
    at_unix_ms: i64,
    problems: usize,
    warnings: usize,
    settings: Vec<Shown>,
    findings: Vec<Finding>,
}

/// A setting as it was read.
#[derive(Debug, Serialize)]
struct Shown {
    name: &'static str,
    value: String,
    /// The flag, the variable or the file; `null` for a default.
    from: Option<String>,
}

impl Args {
    /// Checks, prints, and returns the exit code for what was found.
    pub(crate) fn run(self) -> ExitCode {
        match examined(&self).and_then(|report| print(&self, &report).map(|()| report)) {
            Ok(report) if report.problems > 0 => ExitCode::from(PROBLEM),
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => reprieve::fail(&error),
        }
    }
}

fn examined(args: &Args) -> Result<Report> {
    let checkup = Checkup::read(&args.worker)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Internal, "start the runtime", error.to_string()).with_source(error)
    })?;
    let findings = runtime.block_on(examine(&checkup));
    // A name service or a file system that does not answer may hold a thread for minutes.
    runtime.shutdown_timeout(Duration::ZERO);
    Ok(Report::new(checkup.origins, findings))
}

/// Every check. Each takes 10 s at the most, and all together less than a minute.
async fn examine(checkup: &Checkup) -> Vec<Finding> {
    let store = async {
        match &checkup.store {
            StoreAddress::Local(address) => embedded::examine(checkup, address).await,
            StoreAddress::Azure(address) => Box::pin(account::examine(checkup, address)).await,
        }
    };
    let (mut findings, metadata, dependencies) =
        tokio::join!(store, metadata::examine(checkup), dependencies::examine(checkup));
    findings.extend(metadata.into_iter().chain(dependencies));
    findings.extend(checkup.too_much_memory().into_iter().map(|sentence| {
        Finding::warning("memory", sentence, "see \"A memory reserve\" in docs/pressure.md")
    }));
    findings
}

fn print(args: &Args, report: &Report) -> Result<()> {
    let mut out = Out::new();
    if args.json {
        out.pretty_json(report)?;
        out.text("\n")?;
    } else {
        out.text(&page::page(report, std::io::stdout().is_terminal()))?;
    }
    out.flush()
}

impl Report {
    fn new(settings: Vec<Setting>, findings: Vec<Finding>) -> Self {
        let count = |state| findings.iter().filter(|finding| finding.state == state).count();
        let shown = |Setting { name, value, from }| Shown { name, value, from };
        Self {
            at_unix_ms: clock::unix_millis(),
            problems: count(State::Problem),
            warnings: count(State::Warning),
            settings: settings.into_iter().map(shown).collect(),
            findings,
        }
    }
}
