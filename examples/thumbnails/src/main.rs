//! Makes thumbnails of many pictures, on machines that may be evicted at any moment.

mod enqueue;
mod find;
mod job;
mod picture;
mod terminal;
mod wait;

use std::process::ExitCode;

use clap::Parser;
use reprieve::WorkerArgs;

use crate::enqueue::EnqueueArgs;
use crate::job::Thumbnails;

/// Makes thumbnails of many pictures, with workers that survive evictions
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Enqueues thumbnail jobs for the pictures in a directory, or for pictures already in the
    /// store
    Enqueue(EnqueueArgs),
    /// Runs a worker for `thumbnails` jobs until it is stopped; start as many as you like
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
