//! A mock of the [Retail Prices API], faithful for what a client of VM prices uses, traps included.
//!
//! - Filters with `eq`, `and` and `contains`; values are case-sensitive in `2023-01-01-preview` and not
//!   without a version; the filter's `priceType` is the field `type` of an item.
//! - Pages with a link that has an explicit port and is `null` on the last one. The size of a page is the
//!   service's affair, and the next page is where the link leads.
//! - A [catalogue] of meters in which a size has regular, Spot and Low Priority ones, for Linux and
//!   Windows, of the past and of the future, for development, and reservations.
//! - [`Fault`]s: throttling, answers that break off, and links that lead elsewhere.
//!
//! # Example: the prices of a size
//!
//! ```
//! use reprieve_azure::prices::{Client, Os, Query, select};
//! use reprieve_core::clock::wall_now;
//! use reprieve_sim::prices::{Config, PricesServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = PricesServer::start(Config::default()).await?;
//! let query = Query::new("Standard_D4s_v5", "westeurope", "USD")?;
//! let meters = Client::new(&server.url())?.meters(&query).await?;
//! let pair = select(&meters, &query, Os::Linux, wall_now())?;
//! assert_eq!(pair.discount_permille(), 800);
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! [Retail Prices API]: https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices

pub mod catalogue;
mod fault;
mod filter;
mod page;
mod server;

pub use fault::Fault;
pub use server::{Config, PricesServer};
