//! Prices of VM sizes from the [Retail Prices API]: the regular price and the Spot price of a size in
//! a region.
//!
//! - [`Client`] requests the [`Meters`] of a [`Query`], page by page. It needs no identity.
//! - [`select()`] finds the one regular and the one Spot meter among them, or says why there is none.
//!
//! The same size has many meters: Spot, Low Priority and regular ones, for Linux and for Windows, of the
//! present, the past and the future. Only the selector knows which of them count.
//!
//! # Example: the Spot price of a size
//!
//! ```no_run
//! use reprieve_azure::prices::{Client, Os, PRICES_URL, Query, select};
//! use reprieve_core::clock::wall_now;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let query = Query::new("Standard_D4s_v5", "westeurope", "EUR")?;
//! let meters = Client::new(PRICES_URL)?.meters(&query).await?;
//! let pair = select(&meters, &query, Os::Linux, wall_now())?;
//! println!("{} instead of {}", pair.spot.nanos_per_hour(), pair.regular.nanos_per_hour());
//! # Ok(())
//! # }
//! ```
//!
//! [Retail Prices API]: https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices

mod client;
mod decimal;
mod meter;
mod meters;
mod query;
mod select;

pub use client::{Client, PRICES_URL};
pub use decimal::{parse_price, price_text};
pub use meter::Meter;
pub use meters::Meters;
pub use query::Query;
pub use select::{NoPrice, Os, PricePair, select};
