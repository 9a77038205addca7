//! What a real worker process does about each kind of Scheduled Event: one test for each row of the policy's table, against
//! a metadata service that keeps account of who approved what.

mod freeze;
mod live_migration;
mod microsoft_sample;
mod namespace;
mod preempt;
mod rebalance_advice;
mod restart;
mod service_faults;
mod several_events;
mod several_vms;
mod support;
mod terminate;
mod without_notice;
