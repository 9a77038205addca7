//! The worker.
mod report;

pub use report::{DrainReport, StopReason, Stopped};
