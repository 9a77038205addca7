//! The test kit for jobs: it passes jobs that survive, and finds those that do not.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod by_hand;
mod found;
mod real;
mod support;
mod survivors;
