//! `cargo xtask simulate`: the simulated fleet, seed after seed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, become_it, builds, cargo, run as run_command};

/// The build profile.
pub(crate) const PROFILE: &str = "simulate";

/// The build command, in any tree.
pub(crate) const BUILD: [&str; 9] =
    ["build", "--profile", PROFILE, "--package", "reprieve-sim", "--features", "fleet", "--bin", "simulate"];

/// Builds the simulation with optimisation, and passes `arguments` to it.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    run_command(cargo(&BUILD))?;
    let mut simulate = Command::new(program(&builds()?));
    simulate.args(arguments);
    become_it(simulate)
}

/// The path of the program in a build directory.
pub(crate) fn program(builds: &Path) -> PathBuf {
    builds.join(PROFILE).join("simulate").with_extension(env::consts::EXE_EXTENSION)
}
