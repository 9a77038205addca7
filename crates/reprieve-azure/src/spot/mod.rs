//! What Azure knows about Spot VMs of a size: how often they are evicted, what they cost before, and how
//! likely new ones are to be had.
//!
//! - [`Client::rates`] and [`Client::history`] read the table `SpotResources` of Resource Graph. A rate is
//!   a [bucket](EvictionRate), and the highest has no upper end.
//! - [`Client::scores`] asks for [placement scores](Placement), which needs the role *Compute Recommendations
//!   Role* and counts against the subscription's limit of requests.
//!
//! A size that is missing in an answer is unknown: neither safe nor cheap.
//!
//! Facts: <https://learn.microsoft.com/azure/virtual-machines/spot-vms#azure-resource-graph> and
//! <https://learn.microsoft.com/azure/virtual-machine-scale-sets/spot-placement-score>.

mod client;
mod rate;
mod score;

pub use client::{Client, MANAGEMENT_URL, PastPrice, PastPrices, SizeRate};
pub use rate::EvictionRate;
pub use score::{Placement, Score};
