//! Azure backends for Reprieve: [Scheduled Events](scheduled_events) of the instance metadata
//! service, a [store](storage) on Storage Queues and Blob Storage, the [prices] of VM sizes, and
//! what Azure knows about their evictions ([spot]).
//!
//! # Example: the events that the platform has announced for this VM
//!
//! ```no_run
//! use reprieve_azure::scheduled_events::{Client, Watcher, METADATA_URL};
//! use reprieve_core::ports::{Change, InterruptionSource};
//!
//! # async fn example() -> reprieve_core::Result<()> {
//! let watcher = Watcher::spawn(Client::new(METADATA_URL)?, None);
//! loop {
//!     match watcher.next().await {
//!         Change::Named(name) => println!("this VM is called {name}"),
//!         Change::Answered => println!("the active events are known; work may begin"),
//!         Change::Noticed(notice) => println!("{} is coming", notice.kind.as_str()),
//!         Change::Over(id, ending) => println!("{id} has ended: {ending:?}"),
//!     }
//! }
//! # }
//! ```

mod cause;
pub mod identity;
pub mod prices;
pub mod scheduled_events;
pub mod spot;
pub mod storage;
#[cfg(test)]
mod test_server;
mod web;
