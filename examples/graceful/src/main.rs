//! A worker whose jobs run another program for minutes, and stop it in time when the machine is
//! evicted.

mod job;
mod program;
mod scratch;
mod simulator;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use reprieve::WorkerArgs;

use crate::job::EstimatePi;
use crate::simulator::SimulateArgs;

/// Estimates pi with a slow simulator, on machines that may be evicted at any moment
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Runs a worker for `estimate-pi` jobs until it is stopped; start as many as you like
    Work(WorkArgs),
    /// Runs the simulator itself
    #[command(hide = true)]
    Simulate(SimulateArgs),
}

#[derive(Debug, clap::Args)]
struct WorkArgs {
    #[command(flatten)]
    worker: WorkerArgs,

    /// The directory for the simulator's files [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// The simulator and its first arguments [default: the simulator built into this program]
    #[arg(long, value_name = "COMMAND", num_args = 1..)]
    simulator: Option<Vec<OsString>>,
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Work(args) => match estimate_pi(args.scratch, args.simulator) {
            Ok(job) => reprieve::work(args.worker, |worker| worker.job(job)),
            Err(error) => reprieve::fail(&error),
        },
        Command::Simulate(args) => match reprieve::block_on(args.simulate()) {
            Ok(code) => code,
            Err(error) => reprieve::fail(&*error),
        },
    }
}

fn estimate_pi(scratch: Option<PathBuf>, simulator: Option<Vec<OsString>>) -> std::io::Result<EstimatePi> {
    let simulator = match simulator {
        Some(command) => command,
        None => vec![std::env::current_exe()?.into(), "simulate".into()],
    };
    // A subdirectory, because workers remove the directories that they find in it.
    let scratch = scratch.unwrap_or_else(std::env::temp_dir).join("graceful");
    Ok(EstimatePi { simulator, scratch })
}
