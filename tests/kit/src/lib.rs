//! What the tests of all packages share: waiting with a limit, and child processes that no test
//! leaves behind.

mod lines;
mod process;
mod wait;

pub use lines::Lines;
pub use process::Process;
#[cfg(unix)]
pub use rustix::process::Signal;
pub use wait::{eventually, until, until_true};
