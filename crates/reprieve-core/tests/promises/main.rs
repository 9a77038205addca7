//! Every promise of the worker as a test, on a paused clock, with stores in memory that fail on demand.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod bad_input;
mod checkpoints;
mod cost;
mod drains;
mod events;
mod failures;
mod foreign;
mod leases;
mod losses;
mod odd_jobs;
mod shards;
mod stages;
mod support;
mod twice;
