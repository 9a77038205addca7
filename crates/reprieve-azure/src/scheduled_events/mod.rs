//! [Scheduled Events](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events):
//! the service by which Azure announces that it will evict, restart, move or freeze a VM.
//!
//! - [`document`] is the format of the service's answers. [`NotBefore`] parses the field of the
//!   same name.
//! - [`Client`] sends single requests, in the newest [`ApiVersion`] that the service supports.
//! - [`ActiveEvents`] compares each answer with those before it and returns the changes. It uses
//!   neither a clock nor a network.
//! - [`Watcher`] polls every second until it is dropped. It is the worker's
//!   [`InterruptionSource`](reprieve_core::ports::InterruptionSource). [`Changes`] is a
//!   subscription for all other readers.
//!
//! # Example: every change, for this VM and for the rest of its set
//!
//! ```no_run
//! use reprieve_azure::scheduled_events::{Client, METADATA_URL, Watcher};
//!
//! # async fn example() -> reprieve_core::Result<()> {
//! let watcher = Watcher::spawn(Client::new(METADATA_URL)?, None);
//! let mut changes = watcher.changes();
//! while let Some(change) = changes.next().await {
//!     let kind = change.event.event_type.as_str();
//!     println!("{} {kind} for {:?}: {:?}", change.kind.as_str(), change.scope, change.event.resources);
//! }
//! # Ok(())
//! # }
//! ```

mod active_events;
mod client;
pub mod document;
mod watcher;

pub use active_events::{ActiveEvents, ChangeKind, EventChange, Scope};
pub use client::{Client, Compute, FailureKind, Failures, INSTANCE_API_VERSION, METADATA_URL};
pub use document::{Answer, ApiVersion, NotBefore};
pub use watcher::{Changes, Stats, Watcher};
