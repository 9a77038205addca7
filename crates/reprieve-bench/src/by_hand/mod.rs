//! The command `bench-by-hand`: a loop on the official SDK, the same loop on bare HTTP, and one
//! checkpoint saved or loaded. Each runs in its own process, so that its CPU time and memory can be
//! measured.

mod checkpoints;
mod raw;
mod sdk;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use reqwest::Url;

/// The wait after an empty receive: the worker's first wait.
const PAUSE: Duration = Duration::from_millis(100);

/// The visibility timeout: the worker's default lease.
const HELD_SECONDS: i32 = 60;

/// The maximum number of messages per receive.
const BATCH: u32 = 32;

/// Works on a storage account without a worker, as a baseline for comparison.
#[derive(Debug, Parser)]
#[command(name = "bench-by-hand")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Receives and deletes messages without end, on the official SDK
    Sdk(Loop),
    /// Receives and deletes messages without end, on bare HTTP
    Raw(Loop),
    /// Saves one checkpoint through the store's port
    Save(checkpoints::Checkpoint),
    /// Loads the saved checkpoint
    Load(checkpoints::Checkpoint),
}

/// The queue, and the number of messages in flight.
#[derive(Debug, clap::Args)]
struct Loop {
    /// The queue's URL with a SAS
    #[arg(long, env = "BENCH_QUEUE_URL", hide_env_values = true)]
    queue: Url,

    /// The maximum number of messages in flight
    #[arg(long)]
    in_flight: u32,
}

/// Runs the command.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => usage.exit(),
    };
    match work(cli.what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("bench-by-hand: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line to stderr.
#[expect(clippy::print_stderr, reason = "this is a program's way to speak")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// Runs on the runtime of `#[tokio::main]`, as users do.
fn work(what: What) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match what {
            What::Sdk(what) => sdk::run(&what).await,
            What::Raw(what) => raw::run(&what).await,
            What::Save(checkpoint) => checkpoint.save().await,
            What::Load(checkpoint) => checkpoint.load().await,
        }
    })
}

/// Returns a client with an unlimited connection pool. It closes idle connections before Azurite
/// does.
fn http() -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(2))
        .timeout(Duration::from_secs(30))
        .pool_idle_timeout(Duration::from_secs(4))
        .pool_max_idle_per_host(128)
        .tcp_nodelay(true)
        .no_proxy()
        .build()
        .context("there is no HTTP client")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::noop::noops;
    use crate::site;
    use crate::tenancy::Tenancy;

    #[tokio::test]
    async fn both_loops_empty_a_queue() {
        let work = tempfile::tempdir().unwrap();
        let site = site::Kind::DOUBLE.start(work.path()).await.unwrap();
        for way in ["sdk", "raw"] {
            let tenancy = Tenancy::new(&site, work.path()).await.unwrap();
            tenancy.enqueue(noops(100).unwrap()).await.unwrap();
            let what = Loop { queue: tenancy.queue_url().unwrap(), in_flight: 64 };
            let working = async {
                let ended = if way == "sdk" { sdk::run(&what).await } else { raw::run(&what).await };
                panic!("{way} ended: {ended:?}");
            };
            tokio::select! {
                () = working => {}
                emptied = tenancy.emptied(100) => emptied.unwrap(),
            }
        }
    }
}
