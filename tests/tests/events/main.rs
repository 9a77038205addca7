//! A real worker process and each kind of Scheduled Event: one test for each row of the policy's
//! table, against a metadata service that records who approved which event.

mod freeze;
mod live_migration;
mod microsoft_sample;
mod namespace;
mod preempt;
mod rebalance_advice;
mod restart;
mod secondary;
mod service_faults;
mod several_events;
mod several_vms;
mod support;
mod terminate;
mod without_notice;
