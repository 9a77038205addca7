//! The `reprieve` command: enqueues jobs, shows a queue and its workers, and mocks Azure's metadata service.

mod enqueue;
mod lines;
mod metadata;
mod out;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Puts jobs into a queue
    #[command(after_help = EXIT_CODES)]
    Enqueue(enqueue::EnqueueArgs),
    /// Shows a queue, its workers, what they hold and how their drains went
    #[command(after_help = EXIT_CODES)]
    Status(status::StatusArgs),
    /// Mocks Azure's metadata service on this machine, to try out evictions
    #[command(subcommand, after_help = EXIT_CODES)]
    Metadata(metadata::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = reprieve::block_on(async {
        match cli.command {
            Command::Enqueue(args) => enqueue::run(args).await,
            Command::Status(args) => status::run(args).await,
            Command::Metadata(command) => metadata::run(command).await,
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => reprieve::fail(&error),
    }
}
