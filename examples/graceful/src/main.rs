//! A worker whose jobs run another program for minutes at a time, and that stops it well when the machine has to go.

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
use crate::simulator::Throws;

/// Estimates pi with a simulator that takes its time, on machines that may be taken away at any moment
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Runs the simulations that were asked for, until it is stopped; run as many as you like
    Work(Work),
    /// Is the simulator
    #[command(hide = true)]
    Simulate(Throws),
}

#[derive(Debug, clap::Args)]
struct Work {
    #[command(flatten)]
    worker: WorkerArgs,

    /// Where simulators leave their files while they run [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// The simulator and its first arguments, when it is not the one that comes with this worker
    #[arg(long, value_name = "COMMAND", num_args = 1..)]
    simulator: Option<Vec<OsString>>,
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Work(args) => match estimate_pi(args.scratch, args.simulator) {
            Ok(job) => reprieve::work(args.worker, |worker| worker.job(job)),
            Err(error) => reprieve::fail(&error),
        },
        Command::Simulate(throws) => match reprieve::block_on(throws.simulate()) {
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
    // A directory of its own below the one that was given: what is found in it is removed.
    let scratch = scratch.unwrap_or_else(std::env::temp_dir).join("graceful");
    Ok(EstimatePi { simulator, scratch })
}
