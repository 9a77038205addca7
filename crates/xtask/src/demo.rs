//! `cargo xtask demo`: the demo of the `reprieve` command.

use std::env;

use crate::command::{Failure, become_it, cargo, root};

/// Builds the `reprieve` command and runs its demo in the current directory, where its files
/// belong.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let here = env::current_dir()
        .map_err(|error| Failure::Failed(format!("the current directory can't be found: {error}")))?;
    let manifest = root().join("Cargo.toml");
    let mut command = cargo(&["run", "--quiet", "--package", "reprieve-cli", "--bin", "reprieve"]);
    command.arg("--manifest-path").arg(manifest).args(["--", "demo"]).args(arguments).current_dir(here);
    become_it(command)
}
