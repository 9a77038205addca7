//! The mock against the real client and watcher, over HTTP.

mod bad_days;
mod client;
mod control;
mod logging;
mod rules;
mod support;
mod watching;
