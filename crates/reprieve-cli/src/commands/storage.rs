//! `reprieve storage`: a mock of Azure's queue and blob storage, with faults on demand.

use std::process::ExitCode;

use clap::Subcommand;
use reprieve::{Error, ErrorKind, Result};
use reprieve_sim::storage::{Config, Counts, Latency, Rule, StorageServer, client};
use serde::Serialize;

use super::{EXIT_CODES, block_on};
use crate::format::table;
use crate::out::answer;

/// Where Azurite listens, too.
const BLOB_PORT: u16 = 10_000;
const QUEUE_PORT: u16 = 10_001;

/// The syntax of a rule.
const RULE_HELP: &str = r#"A RULE is JSON. Only "action" is required; the other keys choose the requests:
  {"operation": "receive", "prefix": "work", "skip": 0, "times": 3,
   "probability": 0.1, "seed": 7, "action": {"kind": "lose-answer"}}

  operation    any, send, receive, peek, update, delete, clear, queue-create, queue-delete,
               queue-properties, queue-metadata, blob-put, block-put, block-list, blob-get,
               blob-properties, blob-metadata, blob-delete, blob-list, container-create,
               container-delete, container-properties; default: any
  prefix       the beginning of the queue's or container's name, or of CONTAINER/BLOB
  skip, times  how many matching requests succeed first, how many fail then; default: 0, all
  probability  from 0 to 1, drawn from the seed; default: 1

Actions:
  {"kind": "delay", "ms": 500}              applied at once, answered late
  {"kind": "apply-late", "ms": 5000}        applied late, even if its client has disconnected
  {"kind": "server-busy"}                   503; takes "retry_after_seconds"
  {"kind": "too-many-requests"}             429; takes "retry_after_seconds"
  {"kind": "operation-timed-out"}           500
  {"kind": "permission-mismatch"}           403, as for an identity without the role
  {"kind": "refuse", "status": 409, "code": "QueueBeingDeleted"}
  {"kind": "reset"}                         not applied, connection reset
  {"kind": "lose-answer"}                   applied, connection reset
  {"kind": "hang", "applied": true}         never answered
  {"kind": "truncate"}                      applied, answered with half a body
  {"kind": "skew-clock", "seconds": -3600}  in the Date header

The same over HTTP, on either port:
  GET, POST and DELETE /_control/faults; DELETE /_control/faults/ID
  GET and DELETE /_control/counts
  GET and PUT /_control/latency, {"fixed_ms", "jitter_ms", "seed"}

"#;

/// Mocks Azure's queue and blob storage on this machine, to try out load and failures
#[derive(Debug, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(crate) enum Command {
    /// Serves until it is stopped (Ctrl-C); its data is lost then
    #[command(after_help = EXIT_CODES)]
    Serve(ServeArgs),
    /// Injects faults; without a rule, lists the active ones
    #[command(after_help = format!("{RULE_HELP}{}", EXIT_CODES))]
    Fault(FaultArgs),
    /// Counts the requests: the storage transactions that Azure would bill
    #[command(after_help = EXIT_CODES)]
    Counts(CountsArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The port for blobs on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = BLOB_PORT)]
    blob_port: u16,

    /// The port for queues on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = QUEUE_PORT)]
    queue_port: u16,

    /// The latency of every request, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    latency_ms: u64,

    /// The maximum random delay added to the latency, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    jitter_ms: u64,

    /// Prints a JSON object with the connection string and both URLs
    #[arg(long)]
    json: bool,
}

/// The address of a running mock.
#[derive(Debug, clap::Args)]
struct At {
    /// The address of the mock, with either of its ports
    #[arg(long, value_name = "URL", default_value_t = format!("http://127.0.0.1:{QUEUE_PORT}"))]
    url: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FaultArgs {
    /// The fault, in JSON (see below)
    rule: Option<String>,

    /// Removes all rules first
    #[arg(long)]
    clear: bool,

    #[command(flatten)]
    at: At,

    /// Prints the active rules as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CountsArgs {
    /// Resets the counts after printing them
    #[arg(long)]
    reset: bool,

    #[command(flatten)]
    at: At,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Served {
    connection_string: String,
    blob_url: String,
    queue_url: String,
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        block_on(run(self))
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Serve(args) => serve(args).await,
        Command::Fault(args) => fault(args).await,
        Command::Counts(args) => counts(args).await,
    }
}

async fn serve(args: ServeArgs) -> Result<()> {
    // Installed before the address is printed, so that a caller may send the signal from then on.
    let stopped = reprieve::stop_signal()?;
    let latency = Latency { fixed_ms: args.latency_ms, jitter_ms: args.jitter_ms, ..Latency::default() };
    let ServeArgs { blob_port, queue_port, .. } = args;
    let server = StorageServer::start(Config { blob_port, queue_port, latency, ..Config::default() }).await?;
    let addresses = Served {
        connection_string: server.connection_string(),
        blob_url: server.blob_url(),
        queue_url: server.queue_url(),
    };
    answer(args.json, &addresses, || format!("{}\n", addresses.connection_string))?;
    crate::out::print_stderr(&format!(
        "set REPRIEVE_STORE to the connection string; inject faults with `reprieve storage fault --url {}`",
        server.control_url()
    ));
    stopped.await;
    server.stop().await;
    Ok(())
}

async fn fault(args: FaultArgs) -> Result<()> {
    let FaultArgs { rule, clear, at: At { url }, json } = args;
    // Read first: a rule that is wrong changes nothing.
    let rule: Option<Rule> = rule.map(|rule| serde_json::from_str(&rule)).transpose().map_err(|error| {
        let message = format!("the rule is invalid: {error}; see `reprieve storage fault --help`");
        Error::new(ErrorKind::Invalid, "add a fault", message).with_source(error)
    })?;
    if clear {
        client::clear_faults(&url).await?;
    }
    if let Some(rule) = rule {
        client::add_fault(&url, &rule).await?;
    }
    let active = client::faults(&url).await?;
    answer(json, &active, || {
        let rows: Vec<_> = active
            .iter()
            .map(|fault| {
                let rule = serde_json::to_string(&fault.rule).unwrap_or_default();
                [fault.id.to_string(), fault.matched.to_string(), fault.injected.to_string(), rule]
            })
            .collect();
        table(["ID", "MATCHED", "INJECTED", "RULE"], &rows)
    })
}

async fn counts(args: CountsArgs) -> Result<()> {
    let CountsArgs { reset, at: At { url }, json } = args;
    let counts = client::counts(&url).await?;
    if reset {
        client::reset_counts(&url).await?;
    }
    answer(json, &counts, || shown(&counts))
}

/// The counts as a table, with their sum at its end.
fn shown(counts: &Counts) -> String {
    let mut rows: Vec<_> = counts
        .operations
        .iter()
        .map(|(operation, counts)| {
            let statuses = counts.statuses.iter().map(|(status, times)| format!("{status}: {times}"));
            let statuses = statuses.collect::<Vec<_>>().join(", ");
            [operation.to_string(), counts.requests.to_string(), statuses]
        })
        .collect();
    rows.push(["total".to_owned(), counts.total().to_string(), String::new()]);
    table(["OPERATION", "REQUESTS", "ANSWERED"], &rows)
}
