//! `cargo xtask demo`: evictions survived, shown in a minute.

use std::env;

use xtask::root;

use crate::command::{Failure, become_it, cargo};

/// Builds the `reprieve` command and runs its demo, in the directory where the user is: that is where its files belong.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let here = env::current_dir()
        .map_err(|error| Failure::Failed(format!("the current directory can't be found: {error}")))?;
    let manifest = root().join("Cargo.toml");
    let mut command = cargo(&["run", "--quiet", "--package", "reprieve-cli", "--bin", "reprieve"]);
    command.arg("--manifest-path").arg(manifest).args(["--", "demo"]).args(arguments).current_dir(here);
    become_it(command)
}
