//! Skips tests that lack a dependency: prints why, or fails where the dependency is required.

use std::ffi::OsString;

/// Returns the value of an environment variable, if it is not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Prints that a test is skipped, and `why`.
///
/// # Panics
/// When the environment variable `needed` is set, to anything but 0.
#[expect(
    clippy::print_stderr,
    reason = "a test that passed although it saw nothing is not to pass in silence"
)]
pub fn saw_nothing(needed: &str, why: &str) {
    let is_needed = variable(needed).is_some_and(|needed| needed != "0");
    assert!(!is_needed, "{needed} is set, but {why}");
    eprintln!("THIS TEST SAW NOTHING: {why}");
}
