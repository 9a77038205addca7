//! The worker as a process: signals, exit codes, settings, log and health endpoints.
#![cfg(unix)]

mod endpoints;
mod ledger;
mod signals;
mod support;
mod usage;
