//! A store on Storage Queues and Blob Storage: the ports of [`reprieve_core`] on the official SDK.
//!
//! | content | location |
//! |---|---|
//! | messages | the queue `NAME`, with their bodies as base64; other text is used as it is |
//! | dead letters | the queue `NAME-poison`, each with its reason |
//! | inputs, outputs, results | the container, under their own names |
//! | records and payloads of jobs, workers' reports, long bodies | the container, under [`RESERVED`] |
//!
//! # Example: a storage account's store, with a managed identity
//! ```no_run
//! use reprieve_azure::storage::{Address, AzureStore, Options};
//! use reprieve_core::QueueName;
//!
//! # async fn open() -> reprieve_core::Result<()> {
//! let address = Address::parse("azure:thumbnails")?;
//! let opened = AzureStore::open(&address, Options::new(vec![QueueName::parse("photos")?])).await?;
//! println!("{} jobs", opened.store().queue.depth().await?.total);
//! # Ok(())
//! # }
//! ```

mod account;
mod blob;
mod call;
pub mod check;
mod queue;
mod store;

pub use account::Address;
pub use blob::{ContainerName, RESERVED};
pub use store::{AzureStore, Options};
