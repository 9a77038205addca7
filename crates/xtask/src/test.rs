//! `cargo xtask test`: everything that can be run.

use std::process::Command;

use crate::command::{Failure, cargo, has_subcommand, run as run_command, run_with, say};
use crate::services::Services;

/// Runs all tests and doctests; with arguments, hands them to the test runner and leaves the doctests out. Starts what
/// tests use, and stops it again, also when they fail.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let services = Services::start()?;
    let mut tests = tests();
    tests.args(arguments);
    let tested = run_with(tests, services.variables());
    let stopped = services.stop();
    tested.and(stopped)?;
    if arguments.is_empty() { run_command(doctests()) } else { Ok(()) }
}

/// nextest runs each test in a process of its own and stops one that hangs; cargo's own runner does where it is
/// missing.
fn tests() -> Command {
    if has_subcommand("nextest") {
        cargo(&["nextest", "run"])
    } else {
        say("cargo-nextest is not installed: using `cargo test`, which does not stop a test that hangs");
        cargo(&["test", "--lib", "--bins", "--tests", "--examples"])
    }
}

fn doctests() -> Command {
    cargo(&["test", "--doc"])
}
