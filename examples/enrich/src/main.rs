//! Has a service price the items of catalogues, on machines that may be evicted at any moment.

mod job;
mod prices;
mod service;

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use reprieve::WorkerArgs;
use tokio::net::TcpListener;

use crate::prices::Prices;
use crate::service::Service;

/// Prices the items of catalogues, one job each, with workers that survive evictions
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Runs a worker for `enrich`, `price` and `publish` jobs until it is stopped; start as many as you like
    Work(WorkArgs),
    /// Runs the service that prices items
    Serve(ServeArgs),
}

#[derive(Debug, clap::Args)]
struct WorkArgs {
    #[command(flatten)]
    worker: WorkerArgs,

    /// The address of the service
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    service: String,

    /// How often this worker calls the service in a second
    #[arg(long, value_name = "N", default_value_t = 200)]
    calls_per_second: u32,
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// Where the service listens
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,

    /// How many calls in a second it answers
    #[arg(long, value_name = "N", default_value_t = 500)]
    calls_per_second: u32,
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Work(WorkArgs { worker, service, calls_per_second }) => reprieve::work(worker, |worker| {
            job::add(worker.share(move |_| {
                let prices = Prices::connect(&service, calls_per_second);
                async { prices }
            }))
        }),
        Command::Serve(args) => match reprieve::block_on(serve(args)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => reprieve::fail(&*error),
        },
    }
}

async fn serve(args: ServeArgs) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(args.listen).await?;
    writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?)?;
    Ok(Arc::new(Service::new(args.calls_per_second)).serve(listener).await?)
}
