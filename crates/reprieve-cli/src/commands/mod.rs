//! The commands, a file or a folder each: its flags, its help and its `run`.
//!
//! A new command is a file, and here its module, its variant and its line in [`Command::run`].

mod blobs;
mod cancel;
mod clean;
mod demo;
mod doctor;
mod enqueue;
mod events;
mod metadata;
mod plan;
mod prices;
mod redis;
mod redrive;
mod report;
mod status;
mod storage;

use std::process::ExitCode;

use clap::Subcommand;
use reprieve::Result;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The end of every `--help`, where a command has no exit codes of its own.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage or settings.
Data goes to stdout, everything else to stderr.";

/// A command with its arguments. Its help is the doc comment of its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
    Enqueue(enqueue::Args),
    Status(status::Args),
    Cancel(cancel::Args),
    Redrive(redrive::Args),
    Report(Box<report::Args>),
    Prices(Box<prices::Args>),
    Plan(Box<plan::Args>),
    #[command(subcommand)]
    Blobs(blobs::Command),
    Clean(clean::Args),
    Doctor(Box<doctor::Args>),
    #[command(subcommand)]
    Events(events::Command),
    #[command(subcommand)]
    Metadata(metadata::Command),
    #[command(subcommand)]
    Redis(redis::Command),
    #[command(subcommand)]
    Storage(storage::Command),
}

impl Command {
    /// Runs the command to its end.
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Demo(args) => args.run(),
            Self::DemoWorker(args) => args.run(),
            Self::Enqueue(args) => args.run(),
            Self::Status(args) => args.run(),
            Self::Cancel(args) => args.run(),
            Self::Redrive(args) => args.run(),
            Self::Report(args) => args.run(),
            Self::Prices(args) => args.run(),
            Self::Plan(args) => args.run(),
            Self::Blobs(command) => command.run(),
            Self::Clean(args) => args.run(),
            Self::Doctor(args) => args.run(),
            Self::Events(command) => command.run(),
            Self::Metadata(command) => command.run(),
            Self::Redis(command) => command.run(),
            Self::Storage(command) => command.run(),
        }
    }
}

/// Runs a command's future and returns the exit code for its result.
fn block_on(command: impl Future<Output = Result<()>>) -> ExitCode {
    match reprieve::block_on(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => reprieve::fail(&error),
    }
}

/// Prints on stderr what the store logs while it retries, so that a slow command shows why it
/// waits.
fn log_warnings() {
    const OURS: &str = "off,reprieve=warn,reprieve_core=warn,reprieve_azure=warn,reprieve_local=warn";
    let log = tracing_subscriber::fmt().with_env_filter(OURS).with_writer(std::io::stderr);
    let log = log.without_time().with_target(false).with_ansi(false).finish();
    // Nothing else in this program sets one.
    let _first = log.try_init();
}
