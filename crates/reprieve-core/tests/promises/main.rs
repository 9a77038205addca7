//! Every promise of the worker as a test, on a paused clock, with in-memory stores and injected
//! faults.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod attached;
mod bad_input;
mod capacity;
mod checkpoints;
mod chunks;
mod cost;
mod deaths;
mod drains;
mod escalation;
mod events;
mod exact;
mod failures;
mod foreign;
mod going_back;
mod leases;
mod long_steps;
mod losses;
mod lost_chunks;
mod manifests;
mod migrations;
mod misfits;
mod moves;
mod odd_jobs;
mod own_ids;
mod redrive;
mod retention;
mod settlements;
mod shards;
mod snapshots;
mod stages;
mod support;
mod thaws;
mod twice;
mod waiting;
