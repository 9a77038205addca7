//! The mock against the real client and watcher, over HTTP.

mod api;
mod bad_days;
mod client;
mod control;
mod faults;
mod identity;
mod instance;
mod logging;
mod page;
mod ports;
mod rules;
mod support;
mod versions;
mod watching;
