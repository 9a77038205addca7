//! `cargo xtask check`: formatting, lints, documentation and licences.

use std::process::Command;

use crate::command::{Failure, cargo, has_subcommand, run as run_command, say};

/// Runs every step, even after a failure, and then names the failed ones.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return Err(Failure::usage("check takes no arguments"));
    }
    let mut steps = vec![format(), lint(), document()];
    if has_subcommand("deny") {
        steps.push(deny());
    } else {
        say("cargo-deny is not installed: licences, bans and sources are NOT checked");
        say("(`cargo install --locked cargo-deny` installs it)");
    }
    let failures: Vec<String> = steps
        .into_iter()
        .filter_map(|step| run_command(step).err())
        .map(|failure| failure.to_string())
        .collect();
    if failures.is_empty() { Ok(()) } else { Err(Failure::Failed(failures.join("\nxtask: "))) }
}

fn format() -> Command {
    cargo(&["fmt", "--all", "--check"])
}

/// Warnings are errors for clippy only, and not through `RUSTFLAGS`: changing those would rebuild
/// every dependency.
fn lint() -> Command {
    cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
}

fn document() -> Command {
    let mut command = cargo(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    command
}

/// Advisories are left out: their database is fetched and changes daily, and a check of this commit
/// must not.
fn deny() -> Command {
    cargo(&["deny", "--workspace", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"])
}
