//! `reprieve events`: watches Azure's Scheduled Events for this VM, and approves them.

mod approve;
mod change;
mod exec;
mod live;
mod printer;
mod service;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;
use reprieve::Result;

use super::{EXIT_CODES, block_on};

/// Watches Azure's Scheduled Events for this VM, runs commands for them, and approves them
#[derive(Debug, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(crate) enum Command {
    /// Prints the changes of this VM's events, and can run a command for each
    #[command(after_help = watch::AFTER_HELP)]
    Watch(watch::WatchArgs),
    /// Approves events, so that they start now instead of at their time
    #[command(after_help = approve::AFTER_HELP)]
    Approve(approve::ApproveArgs),
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        block_on(run(self))
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Watch(args) if args.once => watch::once(&args).await,
        Command::Watch(args) => live::run(&args).await,
        Command::Approve(args) => approve::run(args).await,
    }
}
