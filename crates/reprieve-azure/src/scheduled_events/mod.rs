//! [Scheduled Events](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events): how Azure tells a VM
//! that it will be evicted, restarted, moved or frozen.
//!
//! - [`document`] is what the service answers, [`NotBefore`] the one field of it that needs reading twice;
//! - [`Client`] asks once;
//! - [`Standing`] compares one answer with those before it and says what has changed, without a clock or a network;
//! - [`Watcher`] asks every second, for ever, and is the worker's
//!   [`InterruptionSource`](reprieve_core::ports::InterruptionSource).

mod client;
pub mod document;
mod instance;
mod not_before;
mod polls;
mod standing;
mod trouble;
mod watch;
mod watcher;

pub use client::{Client, INSTANCE_API_VERSION, METADATA_URL, SCHEDULED_EVENTS_API_VERSION};
pub use instance::Compute;
pub use not_before::NotBefore;
pub use standing::Standing;
pub use watcher::{Stats, Watcher};
