//! The blob container of a store: inputs and outputs, records and payloads, workers' reports.

mod blob_store;
mod container;
mod container_name;
mod record_store;
mod roster;

pub(crate) use blob_store::AzureBlobs;
pub use blob_store::RESERVED;
pub use container::Copies;
pub(crate) use container::{Container, When};
pub use container_name::ContainerName;
pub(crate) use record_store::AzureRecords;
pub(crate) use roster::AzureRoster;
