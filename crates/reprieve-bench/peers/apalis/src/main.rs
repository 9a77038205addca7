//! apalis on SQLite, run through the benchmark's peer protocol: `throughput`, `enqueue` and `work`.
//!
//! The settings and their reasons are documented where they are made: the database and the queue in
//! `queue.rs`, the worker in `worker.rs`, the measurement in `throughput.rs`.

mod queue;
mod throughput;
mod worker;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use apalis::prelude::TaskSink;
use clap::{Args, Parser, Subcommand};

use crate::queue::Job;

/// apalis on SQLite, run through the benchmark's peer protocol.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Enqueues jobs that do nothing, drains them with worker processes and prints what that took.
    Throughput {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        jobs: usize,
        #[arg(long)]
        processes: usize,
    },
    /// Enqueues one job that appends a line to DIR/journal at each tick.
    Enqueue {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        ticks: u64,
        #[arg(long)]
        tick_ms: u64,
    },
    /// Runs a worker until SIGTERM.
    Work {
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
struct Place {
    /// Where the database and the journal are.
    #[arg(long)]
    dir: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("apalis-peer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Throughput { place, jobs, processes } => {
            let dir = place.create()?;
            let report = throughput::measure(&dir, jobs, processes).await?;
            println!("{}", serde_json::to_string(&report)?);
        }
        Command::Enqueue { place, ticks, tick_ms } => {
            let pool = queue::open(&place.create()?).await?;
            queue::of(&pool).push(Job::Ticks { count: ticks, milliseconds: tick_ms }).await?;
            pool.close().await;
        }
        Command::Work { place } => worker::run(&place.create()?).await?,
    }
    Ok(())
}

impl Place {
    fn create(self) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(&self.dir).with_context(|| format!("{} can't be created", self.dir.display()))?;
        Ok(self.dir)
    }
}
