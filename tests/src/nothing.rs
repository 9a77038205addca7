//! Tests that see nothing, because what they look at is not there: they say so, or fail where it must be there.

use std::ffi::OsString;

/// The value of an environment variable, if it is set to anything.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Says that a test sees nothing, and `why`.
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
