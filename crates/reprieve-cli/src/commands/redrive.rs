//! `reprieve redrive`: sends dead-lettered jobs again.

use std::fmt::Write as _;
use std::process::ExitCode;

use reprieve::{Client, Error, ErrorKind, JobId, Redrive, RedriveFailure, Redriven, Result, StoreArgs};

use super::{block_on, log_warnings};
use crate::out::{answer, print_stderr};

const EXIT_CODES: &str = "\
Exit codes: 0 every requested job is redriven; 1 failed, or a job stays in the poison queue, because
another redrive holds it or its record has a newer format; 2 wrong usage or settings.
Data goes to stdout, everything else to stderr.";

/// Redrives dead-lettered jobs: each resumes at its last checkpoint, with all its attempts
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The id of the job to redrive, as in `reprieve status` and the log
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    id: Option<String>,

    /// Redrives every job in the poison queue
    #[arg(long)]
    all: bool,

    /// Prints {"jobs": [...], "unreadable": N, "held": N, "failures": [...]} instead of one id per
    /// line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        log_warnings();
        block_on(run(self))
    }
}

async fn run(args: Args) -> Result<()> {
    let which = match &args.id {
        Some(id) => Redrive::Job(JobId::parse(id.as_str())?),
        None => Redrive::All,
    };
    let client = Client::open_existing(&args.store).await?;
    let redriven = client.store().redrive(&which).await?;
    if redriven.unreadable > 0 && args.all {
        print_stderr(&match redriven.unreadable {
            1 => "1 message in the poison queue can't be read as a job and stays there".to_owned(),
            count => format!("{count} messages in the poison queue can't be read as jobs and stay there"),
        });
    }
    let held = held(&redriven);
    if let (Some(id), true, true) = (&args.id, redriven.jobs.is_empty(), redriven.failures.is_empty()) {
        return Err(missing(id, &client, held));
    }
    answer(args.json, &redriven, || page(&redriven))?;
    let held = held.filter(|_| args.all);
    if redriven.failures.is_empty() {
        let unfinished = |held| Error::new(ErrorKind::Unavailable, "redrive all jobs", held);
        return held.map(unfinished).map_or(Ok(()), Err);
    }
    if let Some(held) = held {
        print_stderr(&held);
    }
    report(redriven.failures)
}

/// The number of dead letters that another redrive holds, as a sentence; `None` when it holds none.
fn held(redriven: &Redriven) -> Option<String> {
    let held = match redriven.held {
        None | Some(0) => return None,
        Some(1) => "1 dead letter is held by another redrive, which may have died".to_owned(),
        Some(count) => format!("{count} dead letters are held by another redrive, which may have died"),
    };
    let minutes = Redriven::RETRY_AFTER.as_secs() / 60;
    Some(format!("{held}; try again in {minutes} minutes"))
}

/// The error of a job that has no dead letter, or none that can be received now.
fn missing(id: &str, client: &Client, held: Option<String>) -> Error {
    let (kind, why) = match held {
        Some(held) => (ErrorKind::Unavailable, format!("may be one that can't be received now: {held}")),
        None => (
            ErrorKind::NotFound,
            format!(
                "is not in the poison queue of {}; `reprieve status` lists its dead letters",
                client.queue()
            ),
        ),
    };
    Error::new(kind, "redrive a job", format!("job {id} {why}"))
}

/// Reports every failure. The last one, which may have ended the redrive, is the command's error.
fn report(mut failures: Vec<RedriveFailure>) -> Result<()> {
    let Some(last) = failures.pop() else { return Ok(()) };
    for failure in failures {
        print_stderr(&format!("failed to {}", named(failure)));
    }
    Err(named(last))
}

/// The error with the job that it is about.
fn named(RedriveFailure { job, error }: RedriveFailure) -> Error {
    let Some(job) = job else { return error };
    Error::new(error.kind(), "redrive a job", format!("job {job}: {}", error.message())).with_source(error)
}

/// One id per line.
fn page(redriven: &Redriven) -> String {
    let mut page = String::new();
    for job in &redriven.jobs {
        // Writing to a string can't fail.
        let _infallible = writeln!(page, "{job}");
    }
    page
}
