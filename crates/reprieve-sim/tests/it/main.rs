//! The mock metadata service over HTTP.

mod api;
mod control;
mod faults;
mod identity;
mod instance;
mod page;
mod ports;
mod rules;
mod support;
mod versions;
