//! Makes thumbnails of directories and containers of pictures, on machines that may be taken away at any moment.

mod enqueue;
mod find;
mod job;
mod picture;
mod say;
mod wait;

use std::process::ExitCode;

use clap::Parser;
use reprieve::WorkerArgs;

use crate::enqueue::EnqueueArgs;
use crate::job::Thumbnails;

/// Thumbnails of many pictures, made by workers that survive evictions
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Asks for the thumbnails of a directory's pictures, or of those that are in the store already
    Enqueue(EnqueueArgs),
    /// Makes the thumbnails that were asked for, until it is stopped; run as many as you like
    Work(WorkerArgs),
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Work(args) => reprieve::work(args, |worker| worker.job(Thumbnails)),
        Command::Enqueue(args) => match reprieve::block_on(enqueue::enqueue(args)) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => reprieve::fail(&*error),
        },
    }
}
