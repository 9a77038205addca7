//! `cargo xtask bench`: what Reprieve costs, beside its peers.

use std::env;
use std::process::Command;

use crate::command::{Failure, become_it, builds, cargo, run as run_command, say};
use crate::install;

/// Builds what is measured, optimised, and hands `arguments` to the benchmarks. They run where the user is, so that the
/// files that the arguments name are found.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let packages = ["--package", "reprieve-bench", "--package", "reprieve-cli"];
    run_command(cargo(&[&["build", "--release"][..], &packages].concat()))?;
    if let Err(failure) = install::azurite() {
        say(&format!("what needs Azurite is not measured: {failure}"));
    }
    let mut bench = benchmarks()?;
    bench.args(arguments);
    become_it(bench)
}

/// The program that was built. Not by `cargo run`, which would build it once more: for one package alone, dependencies
/// have fewer features.
fn benchmarks() -> Result<Command, Failure> {
    Ok(Command::new(
        builds()?.join("release").join("reprieve-bench").with_extension(env::consts::EXE_EXTENSION),
    ))
}
