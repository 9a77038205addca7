//! `reprieve metadata`: Azure's metadata service on this machine, in which things happen on demand.

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

/// The manual, for those who write files or speak to the mock over HTTP.
const MORE: &str = "Scenario files, faults and the HTTP API are described in docs/metadata.md.";

/// Mocks Azure's metadata service on this machine, to try out evictions
#[derive(Debug, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(crate) enum Command {
    /// Serves until it is stopped (Ctrl-C)
    #[command(after_help = EXIT_CODES)]
    Serve(serve::ServeArgs),
    /// Announces that a VM will be taken back, or withdraws that
    #[command(after_help = EXIT_CODES)]
    Evict(change::EvictArgs),
    /// Announces any event
    #[command(after_help = EXIT_CODES)]
    Announce(Box<change::AnnounceArgs>),
    /// Lets events begin, be over, or be withdrawn, now
    #[command(after_help = EXIT_CODES)]
    Event(change::EventArgs),
    /// Runs a scenario, which is a file or built in; without one, lists those there are
    #[command(after_help = format!("{MORE}\n\n{}", EXIT_CODES))]
    Scenario(scenario::ScenarioArgs),
    /// Lets requests go wrong; without a kind, shows which do
    #[command(after_help = format!("{}{MORE}\n\n{}", fault::KINDS, EXIT_CODES))]
    Fault(fault::FaultArgs),
    /// Adds a VM to the set, or removes one
    #[command(after_help = EXIT_CODES)]
    Vm(change::VmArgs),
    /// Lets everything that is announced from now on go faster than in life
    #[command(after_help = EXIT_CODES)]
    Speed(change::SpeedArgs),
    /// Begins to count documents from 1 again, as the service does when it is restarted; events stand
    #[command(after_help = EXIT_CODES)]
    Restart(change::RestartArgs),
    /// Shows the VMs, the events with their approvals, and what happened
    #[command(after_help = EXIT_CODES)]
    State(state::StateArgs),
}

/// Where a mock is.
#[derive(Debug, clap::Args)]
struct At {
    /// Where the mock is
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

/// What is not there was named on the command line, so that is wrong.
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
