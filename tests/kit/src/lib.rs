//! Shared by the tests of all packages: waiting with a limit, and child processes and servers that end with
//! their test.

mod forwarder;
mod lines;
mod process;
mod redis;
mod wait;

pub use forwarder::Forwarder;
pub use lines::Lines;
pub use process::Process;
pub use redis::{RedisPair, RedisServer};
#[cfg(unix)]
pub use rustix::process::Signal;
pub use wait::{eventually, until, until_true};
