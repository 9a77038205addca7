//! `reprieve cancel`: cancels jobs.

use std::fmt::Write as _;
use std::io::BufRead as _;
use std::process::ExitCode;

use reprieve::{Cancel, Client, Error, ErrorKind, JobEnd, JobId, Result, StoreArgs};
use serde::Serialize;

use super::{block_on, log_warnings};
use crate::out::{answer, print_stderr};

const EXIT_CODES: &str = "\
Exit codes: 0 every job is cancelled; 1 failed, or a job had ended before; 2 wrong usage or settings.
Data goes to stdout, everything else to stderr.";

/// Cancels jobs: one that waits is not run, one that runs is asked to yield and stopped within ten seconds
///
/// A cancelled job ends as cancelled and is in no poison queue. Its outputs and its children stay. A job
/// that has ended stays as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The ids of the jobs, as in `reprieve status` and the log; - reads them from stdin, one per line
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    /// Prints an array of {"job", "state"}, with a "reason" for a failed job, instead of one line per job
    ///
    /// The state is cancelled; untraced (cancelled, but no worker has received it or saved anything of it,
    /// or it is over without a result, or it was never enqueued); done; or failed.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// The outcome of a request to cancel a job.
#[derive(Debug, Serialize)]
struct Answer {
    job: JobId,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        log_warnings();
        block_on(run(self))
    }
}

async fn run(args: Args) -> Result<()> {
    let jobs = jobs(&args.ids)?;
    let client = Client::open_existing(&args.store).await?;
    let cancels = client.cancel_all(&jobs).await?;
    let answers: Vec<_> =
        jobs.into_iter().zip(cancels).map(|(job, cancel)| Answer::new(job, cancel)).collect();
    answer(args.json, &answers, || page(&answers))?;
    let over: Vec<_> = answers.iter().filter(|answer| answer.has_ended()).collect();
    let untraced = answers.iter().filter(|answer| answer.state == "untraced").count();
    if untraced > 0 {
        print_stderr(&format!(
            "the store has no trace of {untraced} of the jobs: no worker has received them, or they are over, or \
             the ids are wrong"
        ));
    }
    match over.as_slice() {
        [] => Ok(()),
        [one] => Err(ended(format!("job {} had ended before; nothing is changed", one.job))),
        [first, ..] => Err(ended(format!(
            "{} jobs had ended before, such as {}; nothing is changed",
            over.len(),
            first.job
        ))),
    }
}

fn ended(message: String) -> Error {
    Error::new(ErrorKind::Conflict, "cancel a job", message)
}

/// Reads the ids of the arguments, and those of stdin.
fn jobs(ids: &[String]) -> Result<Vec<JobId>> {
    let mut jobs = Vec::new();
    for id in ids {
        if id != "-" {
            jobs.push(JobId::parse(id.as_str())?);
            continue;
        }
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|error| {
                Error::new(ErrorKind::Invalid, "read the ids from stdin", error.to_string())
            })?;
            if !line.trim().is_empty() {
                jobs.push(JobId::parse(line.trim())?);
            }
        }
    }
    Ok(jobs)
}

impl Answer {
    fn new(job: JobId, cancel: Cancel) -> Self {
        let (state, reason) = match cancel {
            Cancel::Cancelled | Cancel::Over(JobEnd::Cancelled) => ("cancelled", None),
            Cancel::Untraced => ("untraced", None),
            Cancel::Over(JobEnd::Done(())) => ("done", None),
            Cancel::Over(JobEnd::Failed(reason)) => ("failed", Some(reason)),
        };
        Self { job, state, reason }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, "done" | "failed")
    }
}

/// One job per line.
fn page(answers: &[Answer]) -> String {
    let mut page = String::new();
    for Answer { job, state, .. } in answers {
        let state = if *state == "untraced" { "cancelled, if it waits or runs" } else { state };
        // Writing to a string can't fail.
        let _infallible = writeln!(page, "{job} {state}");
    }
    page
}
