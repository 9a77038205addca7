//! The command `bench-by-hand`: what a user would write on the official SDK instead of a worker, the same on bare HTTP, and one
//! checkpoint saved or loaded. Each is a process of its own, so that its processor time and memory can be seen.

mod checkpoints;
mod raw;
mod sdk;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use reqwest::Url;

/// How long a loop waits when there is nothing to do: what our worker waits first.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a message is held: our worker's default lease.
const HELD_SECONDS: i32 = 60;

/// The most messages of one receive.
const BATCH: u32 = 32;

/// Works on storage without a worker, to be compared with one.
#[derive(Debug, Parser)]
#[command(name = "bench-by-hand")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Receives and deletes messages for ever, on the official SDK
    Sdk(Loop),
    /// Receives and deletes messages for ever, on bare HTTP
    Raw(Loop),
    /// Saves one checkpoint through our store's port
    Save(checkpoints::Checkpoint),
    /// Loads the checkpoint that was saved
    Load(checkpoints::Checkpoint),
}

/// Which messages, and how many at once.
#[derive(Debug, clap::Args)]
struct Loop {
    /// The queue's URL with a SAS
    #[arg(long, env = "BENCH_QUEUE_URL", hide_env_values = true)]
    queue: Url,

    /// How many messages may be in hand
    #[arg(long)]
    in_flight: u32,
}

/// The whole command.
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

/// Says something to whoever reads the log.
#[expect(clippy::print_stderr, reason = "this is a program's way to speak")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// On the runtime of `#[tokio::main]`, which is what a user has.
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

/// One pool of connections, as large as is needed, whose connections are given up before Azurite does so.
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
