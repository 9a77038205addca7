//! What a real worker process does about each kind of Scheduled Event: one test for each row of the policy's table, against
//! a metadata service that keeps account of who approved what.

mod advice;
mod bad_days;
mod freeze;
mod live_migration;
mod namespace;
mod preempt;
mod restart;
mod sample;
mod several_events;
mod several_vms;
mod started;
mod support;
mod terminate;
