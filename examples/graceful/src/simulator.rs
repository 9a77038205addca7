//! Stands in for the program that somebody else wrote: takes its time, tells how far it is, and saves when told to stop.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, thread};

use clap::value_parser;
use serde::{Deserialize, Serialize};

use crate::program::SAVED;

/// Where it saves, in its working directory: after the last throw its result, before that what it goes on from.
pub(crate) const STATE: &str = "state.json";

/// How many throws it makes before it rests, and how long: so a million take ten seconds, on any machine.
const BATCH: u64 = 1000;
const REST: Duration = Duration::from_millis(10);

/// Throws darts at a square, and counts those in the circle
#[derive(Debug, clap::Args)]
pub(crate) struct Throws {
    /// Where the darts go
    seed: u64,
    /// How many
    #[arg(value_parser = value_parser!(u64).range(1..))]
    throws: u64,
}

/// What has been thrown.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thrown {
    pub(crate) thrown: u64,
    inside: u64,
}

impl Throws {
    /// The whole program.
    pub(crate) async fn simulate(self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let mut stop = pin!(reprieve::stop_signal()?);
        thread::spawn(end_with_stdin);
        let mut at = Thrown::default();
        if Path::new(STATE).exists() {
            at = serde_json::from_slice(&fs::read(STATE)?)?;
        }
        while at.thrown < self.throws {
            for _ in 0..BATCH.min(self.throws - at.thrown) {
                at.throw(self.seed);
            }
            writeln!(io::stdout(), "{}", at.thrown)?;
            tokio::select! {
                _ = &mut stop => {
                    fs::write(STATE, serde_json::to_vec(&at)?)?;
                    return Ok(ExitCode::from(SAVED));
                }
                () = tokio::time::sleep(REST) => {}
            }
        }
        fs::write(STATE, serde_json::to_vec(&at)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits for the end of stdin, which is the end of whoever started this: nobody would read what is saved then.
fn end_with_stdin() {
    // A stdin that can't be read has ended, too.
    let _ended = io::copy(&mut io::stdin().lock(), &mut io::sink());
    std::process::exit(1);
}

impl Thrown {
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
