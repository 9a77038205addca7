//! `cargo xtask bench`: the benchmarks.

use std::env;
use std::process::Command;

use crate::command::{Failure, become_it, builds, cargo, run as run_command, say};
use crate::install;

/// Builds the measured programs in release mode, and passes `arguments` to the benchmarks. They run
/// in the current directory, so that relative paths in the arguments work.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let packages = ["--package", "reprieve-bench", "--package", "reprieve-cli"];
    run_command(cargo(&[&["build", "--release"][..], &packages].concat()))?;
    if let Err(failure) = install::azurite() {
        say(&format!("benchmarks on Azurite are skipped: {failure}"));
    }
    let mut bench = benchmarks()?;
    bench.args(arguments);
    become_it(bench)
}

/// Returns the built program. `cargo run` would build it again: for one package alone, dependencies
/// have fewer features.
fn benchmarks() -> Result<Command, Failure> {
    Ok(Command::new(
        builds()?.join("release").join("reprieve-bench").with_extension(env::consts::EXE_EXTENSION),
    ))
}
