//! What transactions cost at list prices.
//!
//! For a general-purpose v2 account in East US, locally redundant, hot. The prices are those of public price lists as of 2024,
//! and an assumption: they differ by region and change, but seldom, so look at
//! <https://azure.microsoft.com/pricing/details/storage/queues/> and <https://azure.microsoft.com/pricing/details/storage/blobs/>.
//! What is stored and what leaves the region costs besides.

use reprieve_sim::storage::Operation;

use super::transactions::{Counted, number};

/// Anything that is asked of a queue.
pub(super) const SEND: f64 = 0.004 / 10_000.0;

/// Writing a blob or a block, and listing.
const WRITE: f64 = 0.055 / 10_000.0;

/// Reading a blob, and all else but a delete, which is free.
const READ: f64 = 0.0044 / 10_000.0;

/// What all of these cost, in dollars.
pub(super) fn of(counted: &Counted) -> f64 {
    counted.all.operations.iter().map(|(operation, asked)| one(*operation) * number(asked.requests)).sum()
}

fn one(operation: Operation) -> f64 {
    use Operation as O;
    match operation {
        O::QueueCreate
        | O::QueueDelete
        | O::QueueProperties
        | O::QueueMetadata
        | O::Send
        | O::Receive
        | O::Peek
        | O::Update
        | O::Delete
        | O::Clear => SEND,
        O::ContainerCreate | O::BlobPut | O::BlockPut | O::BlockList | O::BlobList => WRITE,
        O::BlobDelete | O::ContainerDelete => 0.0,
        _ => READ,
    }
}
