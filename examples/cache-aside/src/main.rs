//! Prices the items of an order through a Redis cache, on machines that may be evicted and with a cache that may
//! fail over at any moment.

mod cache;
mod job;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use reprieve::WorkerArgs;

use crate::store::Store;

/// Prices the items of an order through a Redis cache, with workers that survive evictions
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Runs a worker for `quote` jobs until it is stopped; start as many as you like
    Work(WorkerArgs),
    /// Makes a database of products, whose prices change while orders are priced
    Prepare {
        /// The file; it must not exist
        #[arg(value_name = "FILE")]
        database: PathBuf,
    },
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Work(args) => reprieve::work(args, job::add),
        Command::Prepare { database } => match Store::prepare(&database) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => reprieve::fail(&error),
        },
    }
}
