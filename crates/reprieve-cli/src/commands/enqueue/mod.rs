//! `reprieve enqueue`: puts one job, or one per line of a file, into a queue.

mod jsonl;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use reprieve::{Client, Error, ErrorKind, JobId, NewJob, Producer, Result, StoreArgs};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::{EXIT_CODES, block_on, log_warnings};
use crate::out::Out;
use jsonl::Batch;

/// The oldest report of a running worker: workers report every ten seconds.
const REPORT_AGE_MAX: Duration = Duration::from_secs(30);

/// The longest arguments read from a file.
const ARGS_BYTES_MAX: u64 = 16 << 20;

/// Enqueues jobs
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The kind of the jobs: `Job::KIND` in the worker's code
    kind: String,

    /// The arguments of one job, as JSON [default: null]
    #[arg(long = "args", value_name = "JSON", group = "source", allow_hyphen_values = true)]
    one: Option<String>,

    /// A file with the arguments of one job; - is stdin
    #[arg(long = "args-file", value_name = "PATH", group = "source")]
    file: Option<PathBuf>,

    /// A file with the arguments of one job per line; - is stdin
    ///
    /// Jobs are enqueued in batches. A line that is not JSON ends the command: all lines before it
    /// are enqueued, none after it.
    #[arg(long, value_name = "PATH", group = "source")]
    jsonl: Option<PathBuf>,

    /// How long the jobs are delayed, such as 5m; at most seven days (168h) [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration)]
    delay: Option<Duration>,

    /// An id of your own for the one job: enqueued again under it, it is the same job
    ///
    /// It is not run a second time, while it waits or runs, and after its end as long as results are
    /// kept, but at least 30 days. The same id with another kind or other arguments is an error.
    /// 1 to 128 of A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "ID", conflicts_with = "jsonl", value_parser = |id: &str| JobId::parse(id))]
    id: Option<JobId>,

    /// Enqueues jobs even when no running worker of the queue knows their kind
    #[arg(long)]
    force: bool,

    /// Prints an array of {"id", "kind"} instead of one id per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// The output for an enqueued job.
#[derive(Debug, Serialize)]
struct Enqueued<'a> {
    id: &'a str,
    kind: &'a str,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        log_warnings();
        block_on(run(self))
    }
}

async fn run(args: Args) -> Result<()> {
    if args.kind.trim().is_empty() {
        return Err(fault("the kind is empty"));
    }
    let jobs = source(&args)?;
    let client = Client::open(&args.store).await?;
    if !args.force {
        check_kind(&client, &args.kind).await?;
    }
    let mut printer = Printer { out: Out::new(), kind: &args.kind, json: args.json, printed: 0 };
    printer.begin()?;
    let enqueued = enqueue(&args, client.producer(), jobs, &mut printer).await;
    // The ids so far are printed and the array is closed, also after an error.
    printer.end()?;
    enqueued
}

/// Refuses a kind that is most likely a typing error: workers of this queue run, and none knows it.
/// Without a running worker any kind is accepted, and by an identity that may not read of them.
async fn check_kind(client: &Client, kind: &str) -> Result<()> {
    let members = match client.store().roster.members(REPORT_AGE_MAX).await {
        Ok(members) => members,
        Err(error) if error.kind() == ErrorKind::Denied => return Ok(()),
        Err(error) => return Err(error),
    };
    let ours = members.iter().filter(|member| client.shares_a_queue_with(&member.queue));
    let known: BTreeSet<_> = ours.flat_map(|member| &member.kinds).map(String::as_str).collect();
    if known.is_empty() || known.contains(kind) {
        return Ok(());
    }
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(fault(format!(
        "no running worker of queue {:?} knows kind {kind:?}; known kinds: {known}; start a worker that knows it first, or add --force",
        client.queue()
    )))
}

fn fault(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, jsonl::OPERATION, message)
}

/// The arguments of the jobs. One job's are checked right here, before a store is made for them.
fn source(args: &Args) -> Result<mpsc::Receiver<Batch>> {
    if let Some(path) = &args.jsonl {
        let (file, name) = jsonl::open(path)?;
        return Ok(jsonl::read(file, name));
    }
    let one = match (&args.one, &args.file) {
        (Some(json), _) => jsonl::parse("--args", json)?,
        (None, Some(path)) => {
            let (file, name) = jsonl::open(path)?;
            let mut text = String::new();
            let read = file.take(ARGS_BYTES_MAX + 1).read_to_string(&mut text);
            read.map_err(|error| fault(format!("{name} can't be read: {error}")))?;
            if text.len() as u64 > ARGS_BYTES_MAX {
                return Err(fault(format!("{name} has more than {ARGS_BYTES_MAX} bytes")));
            }
            jsonl::parse(&name, &text)?
        }
        (None, None) => RawValue::NULL.to_owned(),
    };
    let (sender, receiver) = mpsc::channel(1);
    // The channel is new and takes one.
    let _sent = sender.try_send(Ok(vec![one]));
    Ok(receiver)
}

async fn enqueue(
    args: &Args,
    producer: Producer,
    mut jobs: mpsc::Receiver<Batch>,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let delay = args.delay.unwrap_or_default();
    let job = |of| NewJob { id: args.id.clone(), ..NewJob::new(&args.kind, of).after(delay) };
    while let Some(batch) = jobs.recv().await {
        let enqueued = match batch {
            Ok(batch) => producer.enqueue(batch.into_iter().map(job).collect()).await,
            Err(error) => Err(error),
        };
        let ids = enqueued.map_err(|error| add_progress(error, printer.printed))?;
        for id in &ids {
            printer.print(id.as_str())?;
        }
        printer.out.flush()?;
    }
    Ok(())
}

/// Adds the number of jobs that were enqueued before the error.
fn add_progress(error: Error, enqueued: u64) -> Error {
    if enqueued == 0 {
        return error;
    }
    let (kind, whole) = (error.kind(), error.to_string());
    let cause = whole.strip_prefix(jsonl::OPERATION).map_or(&*whole, |cause| cause.trim_start_matches(": "));
    let message = format!("{cause}; the {enqueued} jobs before it are enqueued");
    Error::new(kind, jsonl::OPERATION, message).with_source(error)
}

/// Prints ids as they come, so that a million of them take no memory.
#[derive(Debug)]
struct Printer<'a> {
    out: Out,
    kind: &'a str,
    json: bool,
    printed: u64,
}

impl Printer<'_> {
    fn begin(&mut self) -> Result<()> {
        if self.json { self.out.text("[") } else { Ok(()) }
    }

    /// Goes on when stdout is closed: the jobs matter, not their ids.
    fn print(&mut self, id: &str) -> Result<()> {
        let separator = match (self.json, self.printed) {
            (true, 0) => "\n",
            (true, _) => ",\n",
            (false, _) => "",
        };
        self.printed += 1;
        self.out.text(separator)?;
        if self.json {
            self.out.json(&Enqueued { id, kind: self.kind })
        } else {
            self.out.text(id)?;
            self.out.text("\n")
        }
    }

    fn end(&mut self) -> Result<()> {
        if self.json {
            self.out.text(if self.printed == 0 { "]\n" } else { "\n]\n" })?;
        }
        self.out.flush()
    }
}
