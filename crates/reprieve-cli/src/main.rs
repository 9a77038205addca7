//! The `reprieve` command: a demo, jobs into a queue, a look at a queue and its workers, a watch of what Azure has in store
//! for this VM, and mocks of Azure's services.

mod commands;
mod out;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{demo, doctor, enqueue, events, metadata, redrive, status, storage};
use tracing_subscriber::util::SubscriberInitExt as _;

/// How every `--help` ends.
const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage or settings.
Data goes to stdout, all else to stderr.";

/// Queue workers that survive Azure Spot evictions: jobs in, and where they are
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Renders pictures on VMs that are evicted and killed meanwhile, and shows that nothing is lost
    #[command(after_help = EXIT_CODES)]
    Demo(demo::DemoArgs),
    /// A VM of the demo
    #[command(hide = true)]
    DemoWorker(reprieve_demo::VmArgs),
    /// Puts jobs into a queue
    #[command(after_help = EXIT_CODES)]
    Enqueue(enqueue::EnqueueArgs),
    /// Shows a queue, its workers, what they hold and how their drains went
    #[command(after_help = EXIT_CODES)]
    Status(status::StatusArgs),
    /// Sends dead-lettered jobs again: each goes on from its last checkpoint, with all its attempts
    #[command(after_help = redrive::EXIT_CODES)]
    Redrive(redrive::RedriveArgs),
    /// Checks, without changing anything, whether a worker could do its work here, and says what to mend
    #[command(after_help = doctor::EXIT_CODES)]
    Doctor(Box<doctor::DoctorArgs>),
    /// Watches what Azure has in store for this VM, runs commands for it, and approves it
    #[command(subcommand, after_help = EXIT_CODES)]
    Events(events::Command),
    /// Mocks Azure's metadata service on this machine, to try out evictions
    #[command(subcommand, after_help = EXIT_CODES)]
    Metadata(metadata::Command),
    /// Mocks Azure's queue and blob storage on this machine, to try out load and failures
    #[command(subcommand, after_help = EXIT_CODES)]
    Storage(storage::Command),
}

/// Says on stderr what goes wrong while a command still tries, so that nobody waits in silence.
fn say_warnings() {
    const OURS: &str = "off,reprieve=warn,reprieve_core=warn,reprieve_azure=warn,reprieve_local=warn";
    let log = tracing_subscriber::fmt().with_env_filter(OURS).with_writer(std::io::stderr);
    let log = log.without_time().with_target(false).with_ansi(false).finish();
    // Nothing else in this program sets one.
    let _first = log.try_init();
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if matches!(command, Command::Enqueue(_) | Command::Status(_) | Command::Redrive(_)) {
        say_warnings();
    }
    let done = match command {
        // A worker has runtimes of its own.
        Command::DemoWorker(args) => return reprieve_demo::work(args),
        // Its exit code says what it found.
        Command::Doctor(args) => return doctor::main(&args),
        Command::Demo(args) => reprieve::block_on(demo::run(args)),
        Command::Enqueue(args) => reprieve::block_on(enqueue::run(args)),
        Command::Status(args) => reprieve::block_on(status::run(args)),
        Command::Redrive(args) => reprieve::block_on(redrive::run(args)),
        Command::Events(command) => reprieve::block_on(events::run(command)),
        Command::Metadata(command) => reprieve::block_on(metadata::run(command)),
        Command::Storage(command) => reprieve::block_on(storage::run(command)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => reprieve::fail(&error),
    }
}
