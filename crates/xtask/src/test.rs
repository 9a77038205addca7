//! `cargo xtask test`: all tests.

use std::env;
use std::process::Command;
use std::thread::available_parallelism;

use crate::command::{Failure, cargo, has_subcommand, run as run_command, run_with, say};
use crate::services::Services;

/// The number of nextest's slots; see `.config/nextest.toml`.
const SLOTS: &str = "NEXTEST_TEST_THREADS";

/// Runs all tests and doctests; with arguments, only the tests, and passes the arguments to the
/// test runner. Starts the services that the tests use, and stops them even if tests fail.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let services = Services::start()?;
    let mut tests = tests();
    tests.args(arguments);
    let tested = run_with(tests, services.variables());
    let stopped = services.stop();
    tested.and(stopped)?;
    if arguments.is_empty() { run_command(doctests()) } else { Ok(()) }
}

/// nextest runs each test in a process of its own and stops tests that hang. Without it, `cargo
/// test` runs them.
fn tests() -> Command {
    if has_subcommand("nextest") {
        let mut nextest = cargo(&["nextest", "run"]);
        if env::var_os(SLOTS).is_none() {
            let cores = available_parallelism().map_or(2, usize::from);
            nextest.env(SLOTS, (3 * cores).to_string());
        }
        nextest
    } else {
        say("cargo-nextest is not installed: using `cargo test`, which does not stop a test that hangs");
        cargo(&["test", "--lib", "--bins", "--tests", "--examples"])
    }
}

fn doctests() -> Command {
    cargo(&["test", "--doc"])
}
