//! `reprieve metadata`: a mock of Azure's instance metadata service, with events on demand.

mod change;
mod fault;
mod scenario;
mod serve;
mod state;

use std::process::ExitCode;

use clap::Subcommand;
use reprieve::{Error, ErrorKind, Result};
use serde::Serialize;

use super::{EXIT_CODES, block_on};
use crate::out::answer;

/// The reference to the manual.
const MORE: &str = "Scenario files, faults and the HTTP API are described in docs/metadata.md.";

/// Mocks Azure's instance metadata service on this machine, to try out evictions
#[derive(Debug, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(crate) enum Command {
    /// Serves until it is stopped (Ctrl-C)
    #[command(after_help = EXIT_CODES)]
    Serve(serve::ServeArgs),
    /// Announces a VM's eviction, or withdraws it
    #[command(after_help = EXIT_CODES)]
    Evict(change::EvictArgs),
    /// Announces any event
    #[command(after_help = EXIT_CODES)]
    Announce(Box<change::AnnounceArgs>),
    /// Starts, completes or withdraws events now
    #[command(after_help = EXIT_CODES)]
    Event(change::EventArgs),
    /// Runs a scenario, built in or from a file; without one, lists them
    #[command(after_help = format!("{MORE}\n\n{}", EXIT_CODES))]
    Scenario(scenario::ScenarioArgs),
    /// Injects faults; without a kind, lists the active ones
    #[command(after_help = format!("{}{MORE}\n\n{}", fault::KINDS, EXIT_CODES))]
    Fault(fault::FaultArgs),
    /// Adds a VM to the set or removes one
    #[command(after_help = EXIT_CODES)]
    Vm(change::VmArgs),
    /// Speeds up events announced from now on
    #[command(after_help = EXIT_CODES)]
    Speed(change::SpeedArgs),
    /// Restarts the document incarnation at 1, as a restart of the service does; events stay active
    #[command(after_help = EXIT_CODES)]
    Restart(change::RestartArgs),
    /// Shows the VMs, the events with their approvals, and the log
    #[command(after_help = EXIT_CODES)]
    State(state::StateArgs),
}

/// The address of a running mock.
#[derive(Debug, clap::Args)]
struct At {
    /// The address of the mock
    #[arg(long, value_name = "URL", default_value_t = default_url())]
    url: String,
}

fn default_url() -> String {
    format!("http://127.0.0.1:{}", reprieve_sim::DEFAULT_PORT)
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        block_on(run(self))
    }
}

async fn run(command: Command) -> Result<()> {
    let done = match command {
        Command::Serve(args) => return serve::run(args).await,
        Command::Evict(args) => change::evict(args).await,
        Command::Announce(args) => change::announce(*args).await,
        Command::Event(args) => change::event(args).await,
        Command::Scenario(args) => scenario::run(args).await,
        Command::Fault(args) => fault::run(args).await,
        Command::Vm(args) => change::vm(args).await,
        Command::Speed(args) => change::speed(args).await,
        Command::Restart(args) => change::restart(args).await,
        Command::State(args) => state::run(args).await,
    };
    done.map_err(wrong_name)
}

/// Turns a missing thing into a usage error, because the command line named it.
fn wrong_name(error: Error) -> Error {
    if error.kind() == ErrorKind::NotFound {
        return Error::new(ErrorKind::Invalid, error.operation(), error.message());
    }
    error
}

/// Prints a document as one line of JSON, or else the line.
fn print(json: bool, document: &impl Serialize, line: &str) -> Result<()> {
    answer(json, document, || format!("{line}\n"))
}
