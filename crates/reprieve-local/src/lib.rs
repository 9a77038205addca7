//! The embedded store: a queue, records, blobs and a roster in one SQLite file, without a server.
//!
//! Any number of processes of one machine share the file. The store keeps the promises of
//! [`reprieve_core::ports`] under `kill -9` at any instant. It also detects within a second that a
//! worker has died, and releases the worker's messages before their leases end.
//!
//! | module | purpose |
//! |---|---|
//! | `messages`, `records`, `blobs`, `roster` | one port each |
//! | `writer` | the thread that commits concurrent operations together |
//! | `gate` | a fair lock between the processes |
//! | `session`, `maintenance` | detect dead processes and clean up after them |
//! | `expiry` | removes expired rows in small bites |
//! | `clock` | the time for leases, which never goes back |
//! | `bell` | wakes idle processes |
//! | `schema`, `files` | tables and files |
//! | `damaged` | reads columns of damaged rows |
//!
//! Not for network file systems: the locks work within one kernel only. To copy a store, copy the
//! file together with the directory `PATH.d` beside it, while no process uses them. To inspect a
//! store, use `sqlite3 -readonly`: shells older than 3.51.3 can damage a file that other processes
//! write to.
//!
//! # Example: a message sent and received
//! ```
//! use std::time::Duration;
//!
//! use reprieve_core::WorkerId;
//! use reprieve_core::ports::NewMessage;
//! use reprieve_local::{LocalStore, Options, QueueName};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("reprieve.db");
//! let options = Options::new(QueueName::parse("thumbnails")?).owned_by(WorkerId::unique());
//! let store = LocalStore::open(&path, options).await?.store();
//!
//! store.queue.send(vec![NewMessage { body: b"cat.jpg".to_vec(), delay: Duration::ZERO }]).await?;
//! let delivery = store.queue.receive(1, Duration::from_secs(60)).await?.remove(0);
//! assert_eq!(delivery.body, b"cat.jpg");
//! store.queue.complete(&delivery.receipt).await?;
//! assert_eq!(store.queue.depth().await?.total, 0);
//! # Ok(())
//! # }
//! ```

mod address;
mod bell;
mod blobs;
mod clock;
mod damaged;
mod expiry;
mod failure;
mod files;
mod gate;
mod maintenance;
mod messages;
mod reader;
mod records;
mod roster;
mod schema;
mod session;
mod shared;
mod store;
mod writer;

pub use address::{Address, Durability};
pub use reprieve_core::QueueName;
pub use store::{LocalStore, Options};
