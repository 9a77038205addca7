//! [Scheduled Events](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events):
//! the service by which Azure announces that it will evict, restart, move or freeze a VM.
//!
//! - [`document`] is the format of the service's answers. [`NotBefore`] parses the field of the
//!   same name.
//! - [`Client`] sends single requests, in the newest [`ApiVersion`] that the service supports.
//! - [`Standing`] compares each answer with those before it and returns the changes. It uses
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
//!     println!("{} {kind} for {:?}: {:?}", change.what.as_str(), change.whose, change.event.resources);
//! }
//! # Ok(())
//! # }
//! ```

mod answer;
mod approvals;
mod change;
mod changes;
mod client;
pub mod document;
mod exchange;
mod failure;
mod instance;
mod mention;
mod negotiation;
mod not_before;
mod pace;
mod polls;
mod shared;
mod standing;
mod teller;
mod trouble;
mod version;
mod watch;
mod watcher;

pub use answer::Answer;
pub use change::{EventChange, What, Whose};
pub use changes::Changes;
pub use client::{Client, INSTANCE_API_VERSION, METADATA_URL};
pub use failure::{FailureKind, Failures};
pub use instance::Compute;
pub use not_before::NotBefore;
pub use standing::Standing;
pub use version::ApiVersion;
pub use watcher::{Stats, Watcher};
