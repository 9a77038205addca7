//! `reprieve status`: shows a queue, its workers, their jobs and their drains.

mod intervals;
mod machines;
mod page;
mod timeline;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use reprieve::ports::{DeadLettered, Depth, Store, WorkerReport};
use reprieve::worker::{DRAINS, DrainReport, report_every};
use reprieve::{BlobName, Client, Result, StoreArgs, clock};
use reprieve_core::envelope::Envelope;
use reprieve_core::ledger::is_entry;
use reprieve_core::record::{self, Record};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

use self::timeline::Timeline;
use super::{EXIT_CODES, block_on, log_warnings};
use crate::out::Out;

/// The oldest report that is shown.
const REPORT_AGE_MAX: Duration = Duration::from_mins(10);

/// The most drains, and the most dead letters, that are shown.
const SHOWN_MAX: usize = 5;

/// The most drains, of all queues of the store, that are read to find them.
const READ_MAX: usize = 50;

/// The most records in a store in which moved jobs that wait are looked for.
const RECORDS_MAX: usize = 32;

/// The most lists of records for that: a store with few jobs may have many entries of the ledger.
const LISTS_MAX: usize = 8;

/// Shows a queue, its workers, their jobs and their drains
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Repeats the output every so many seconds [default: 1]
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    watch: Option<u64>,

    /// Prints JSON; with --watch, a document per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// All that is shown, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Status {
    /// The time of the report, in milliseconds since the Unix epoch.
    at_unix_ms: i64,
    queue: Depth,
    #[serde(serialize_with = "as_shown")]
    workers: Vec<WorkerReport>,
    /// What is announced for each VM.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timelines: Vec<Timeline>,
    /// The last ones, the newest first.
    drains: Vec<Drained>,
    /// The oldest ones.
    dead_letters: Vec<Dead>,
    /// Jobs that workers of another queue moved to this one. Not looked for with `--watch`, in an
    /// empty queue, or in a store with more than [`RECORDS_MAX`] records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moved: Vec<Moved>,
    /// The longest interval between two reports of a worker.
    #[serde(skip)]
    report_every: Duration,
}

/// Writes the reports as they are stored, but for the states of what jobs depend on, which are those of the tables and
/// of the metrics.
fn as_shown<S: Serializer>(workers: &[WorkerReport], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut dependencies = workers.iter().flat_map(|report| &report.dependencies);
    if dependencies.all(|dependency| dependency.shown().0 == dependency.state.as_str()) {
        return workers.serialize(serializer);
    }
    let mut values = serde_json::to_value(workers).map_err(S::Error::custom)?;
    for (at, report) in workers.iter().enumerate() {
        for (number, dependency) in report.dependencies.iter().enumerate() {
            let (state, since) = dependency.shown();
            let value = &mut values[at]["dependencies"][number];
            (value["state"], value["since_unix_ms"]) = (state.into(), since.into());
        }
    }
    values.serialize(serializer)
}

/// A drain that was kept, also of a worker that is no more.
#[derive(Debug, Serialize)]
struct Drained {
    worker: String,
    #[serde(flatten)]
    report: DrainReport,
}

/// A message in the poison queue.
#[derive(Debug, Serialize)]
struct Dead {
    id: String,
    /// The job and its kind; `None` when the message can't be read.
    job: Option<String>,
    kind: Option<String>,
    reason: Option<String>,
}

/// A job that was moved from another queue, and has not ended.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Moved {
    job: String,
    kind: String,
    reason: String,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        log_warnings();
        block_on(run(self))
    }
}

async fn run(args: Args) -> Result<()> {
    let client = Client::open_existing(&args.store).await?;
    let mut out = Out::new();
    let Some(seconds) = args.watch else {
        return show(&mut out, &args, &Status::read(&client, true).await?, "");
    };
    let redraws = std::io::stdout().is_terminal() && !args.json;
    let mut ticks = tokio::time::interval(Duration::from_secs(seconds));
    let mut before = if redraws { "\x1b[2J\x1b[H" } else { "" };
    while !out.closed() {
        ticks.tick().await;
        let status = match Status::read(&client, false).await {
            // The watch continues and shows the store when it answers again.
            Err(error) if error.is_temporary() => {
                crate::out::print_stderr(&format!("failed to read the status, trying again: {error}"));
                continue;
            }
            status => status?,
        };
        show(&mut out, &args, &status, before)?;
        before = match (redraws, args.json) {
            // Home and overwrite: clearing the screen each time would flicker.
            (true, _) => "\x1b[H",
            (false, true) => "",
            (false, false) => "\n",
        };
    }
    Ok(())
}

/// Shows it once, after `before`.
fn show(out: &mut Out, args: &Args, status: &Status, before: &str) -> Result<()> {
    out.text(before)?;
    match (args.json, args.watch) {
        (true, None) => out.pretty_json(status).and_then(|()| out.text("\n"))?,
        (true, Some(_)) => out.json(status).and_then(|()| out.text("\n"))?,
        (false, _) if before.contains('\x1b') => {
            // Each line, and what is below the last, is cleared to its end.
            out.text(&page::page(status).replace('\n', "\x1b[K\n"))?;
            out.text("\x1b[J")?;
        }
        (false, _) => out.text(&page::page(status))?,
    }
    out.flush()
}

impl Status {
    async fn read(client: &Client, with_moved: bool) -> Result<Self> {
        let store = client.store();
        // Read once, because each is a request where the store is an account. They are some seconds old in any
        // case: the page says so where they hold other jobs than the queue counts.
        let mut workers = store.roster.reports(REPORT_AGE_MAX).await?;
        let queue = store.queue.depth().await?;
        // The roster is the whole store's, and a store may have several queues.
        let ours = |queue: &str| queue.is_empty() || client.shares_a_queue_with(queue);
        workers.retain(|report| ours(&report.queue));
        let dead_letters = store.queue.dead_letters(SHOWN_MAX).await?.iter().map(Dead::read).collect();
        let mut drains = Vec::new();
        // Their names begin with their time.
        for name in store.blobs.list(DRAINS).await?.iter().rev().take(READ_MAX) {
            let drained = Drained::read(store, name).await?;
            drains.extend(drained.filter(|drained| ours(&drained.report.queue)));
            if drains.len() == SHOWN_MAX {
                break;
            }
        }
        let moved = if with_moved && queue.total > 0 { Moved::all(client).await? } else { Vec::new() };
        let report_every = report_every(&*store.roster);
        let status = Self {
            at_unix_ms: clock::unix_millis(),
            queue,
            workers,
            timelines: Vec::new(),
            drains,
            dead_letters,
            moved,
            report_every,
        };
        Ok(Self { timelines: status.timelines(), ..status })
    }

    /// Returns what the workers report of the events of their VMs.
    fn timelines(&self) -> Vec<Timeline> {
        let (now, silent_after) = (self.at_unix_ms, page::silent_after(self.report_every));
        timeline::timelines(&self.workers, now, |report| page::is_silent(report, now, silent_after))
    }
}

impl Drained {
    /// `None` for one that another version wrote, or that is gone by now.
    async fn read(store: &Store, name: &BlobName) -> Result<Option<Self>> {
        let stem = name.as_str().trim_start_matches(DRAINS).trim_end_matches(".json");
        let worker = stem.split_once('-').map_or("", |(_time, worker)| worker).to_owned();
        let json = store.blobs.get(name).await?.unwrap_or_default();
        Ok(serde_json::from_slice(&json).ok().map(|report| Self { worker, report }))
    }
}

impl Moved {
    /// Reads the records of a small store.
    async fn all(client: &Client) -> Result<Vec<Self>> {
        let records = &client.store().records;
        let (mut jobs, mut moved, mut at) = (Vec::new(), Vec::new(), None);
        for _ in 0..LISTS_MAX {
            let page = records.page("", at.as_deref()).await?;
            jobs.extend(page.entries.into_iter().filter(|listed| !is_entry(&listed.job)));
            at = page.next;
            if at.is_none() || jobs.len() > RECORDS_MAX {
                break;
            }
        }
        if at.is_some() || jobs.len() > RECORDS_MAX {
            return Ok(moved);
        }
        for listed in jobs {
            let Some(stored) = records.load(&listed.job).await? else { continue };
            // A damaged record, or one of a newer version, is for the workers to report.
            let Ok(record) = record::open(&stored.bytes) else { continue };
            moved.extend(Self::read(record, |queue| client.shares_a_queue_with(queue)));
        }
        Ok(moved)
    }

    /// `None` for a job that was not moved to one of the queues, or has ended.
    fn read(record: Record, is_ours: impl Fn(&str) -> bool) -> Option<Self> {
        use record::Status::{Escalated, Running, Waiting};
        let (queue, reason) = match (record.status, record.escalated) {
            // No worker of the other queue has claimed it yet.
            (Escalated { queue, why }, _) => (queue, why),
            (Running | Waiting { .. }, Some(moved)) => (moved.queue, moved.why),
            _ => return None,
        };
        is_ours(&queue).then(|| Self { job: record.job.to_string(), kind: record.kind, reason })
    }
}

impl Dead {
    fn read(letter: &DeadLettered) -> Self {
        let envelope = Envelope::read(&letter.body, &letter.id, None).ok();
        Self {
            id: letter.id.to_string(),
            job: envelope.as_ref().map(|envelope| envelope.job.to_string()),
            kind: envelope.map(|envelope| envelope.kind),
            reason: letter.reason.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn moved(status: &Value, escalated: Option<Value>) -> Option<String> {
        let owner = json!({"message": "m", "count": 1, "worker": "w", "nonce": "n"});
        let mut record = json!({
            "job": "order-1", "kind": "count-to", "generation": 1, "owner": owner, "status": status, "account": {},
            "sequence": 3, "changed_unix_ms": 0, "abandoned_after_ms": 0,
        });
        if let Some(escalated) = escalated {
            record["escalated"] = escalated;
        }
        let record = serde_json::from_value(record).expect("a record");
        Moved::read(record, |queue| queue == "calm").map(|moved| moved.reason)
    }

    #[test]
    fn a_moved_job_is_shown_by_its_new_queue_until_it_ends() {
        let to = |queue: &str| Some(json!({"queue": queue, "why": "3 ended", "at_unix_ms": 0}));
        let leaves = |queue: &str| json!({"is": "escalated", "queue": queue, "why": "3 ended"});
        let shown = Some("3 ended".to_owned());
        assert_eq!(moved(&leaves("calm"), None), shown);
        assert_eq!(moved(&leaves("other"), None), None);
        assert_eq!(moved(&json!({"is": "running"}), to("calm")), shown);
        assert_eq!(moved(&json!({"is": "waiting", "due_unix_ms": 9}), to("calm")), shown);
        assert_eq!(moved(&json!({"is": "running"}), to("other")), None);
        assert_eq!(moved(&json!({"is": "running"}), None), None);
        assert_eq!(moved(&json!({"is": "done"}), to("calm")), None);
    }
}
