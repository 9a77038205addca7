//! The simulator: an example of a slow program that reports its progress, and saves on SIGTERM.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, thread};

use clap::value_parser;
use serde::{Deserialize, Serialize};

use crate::program::EXIT_SAVED;

/// The file in the working directory with the [`Counts`]: the result of a finished simulation, or
/// the saved state of an unfinished one.
pub(crate) const STATE_FILE: &str = "state.json";

/// The number of throws between two pauses. A million throws take ten seconds on any machine.
const BATCH: u64 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Throws darts at a square, and counts those inside the circle
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// The seed of the random numbers
    seed: u64,
    /// The number of darts
    #[arg(value_parser = value_parser!(u64).range(1..))]
    throws: u64,
}

/// The number of darts thrown, and how many of them are inside the circle.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) thrown: u64,
    inside: u64,
}

impl SimulateArgs {
    /// Runs the simulation from the saved state, if there is one, to the end or to a stop signal.
    pub(crate) async fn simulate(self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let mut stop = pin!(reprieve::stop_signal()?);
        thread::spawn(exit_with_stdin);
        let mut counts = Counts::default();
        if Path::new(STATE_FILE).exists() {
            counts = serde_json::from_slice(&fs::read(STATE_FILE)?)?;
        }
        while counts.thrown < self.throws {
            for _ in 0..BATCH.min(self.throws - counts.thrown) {
                counts.throw(self.seed);
            }
            writeln!(io::stdout(), "{}", counts.thrown)?;
            tokio::select! {
                _ = &mut stop => {
                    fs::write(STATE_FILE, serde_json::to_vec(&counts)?)?;
                    return Ok(ExitCode::from(EXIT_SAVED));
                }
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        fs::write(STATE_FILE, serde_json::to_vec(&counts)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Exits when stdin is closed: the worker was killed, and would not read a saved state.
fn exit_with_stdin() {
    // A failed read means the same as the end of stdin.
    let _end = io::copy(&mut io::stdin().lock(), &mut io::sink());
    std::process::exit(1);
}

impl Counts {
    fn throw(&mut self, seed: u64) {
        let dart = mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.thrown);
        let (x, y) = (dart >> 33, dart & 0x7fff_ffff);
        self.inside += u64::from(x * x + y * y < 1 << 62);
        self.thrown += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.thrown += other.thrown;
        self.inside += other.inside;
    }

    #[expect(clippy::cast_precision_loss, reason = "it is an estimate")]
    pub(crate) fn pi(&self) -> f64 {
        4.0 * self.inside as f64 / self.thrown as f64
    }
}

/// The finalizer of `SplitMix64`: every bit of the result depends on every bit of `n`.
/// <https://prng.di.unimi.it/splitmix64.c>
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
