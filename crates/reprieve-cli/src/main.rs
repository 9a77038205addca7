//! The `reprieve` command: runs a demo, enqueues jobs, shows and redrives them, prints their
//! results, plans batches, checks a worker's settings, watches Azure's Scheduled Events, and serves mocks of
//! Azure's services.

mod commands;
mod files;
mod format;
mod out;
mod stderr;
mod values;

use std::process::ExitCode;

use clap::Parser;
use commands::{Command, EXIT_CODES};

/// Queue workers that survive Azure Spot evictions: enqueue jobs, inspect queues, try out evictions
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    Cli::parse().command.run()
}
