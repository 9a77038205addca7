//! A mock of what Azure Resource Manager knows about Spot: eviction rates and price history in the table
//! `SpotResources` of Resource Graph, and placement scores.
//!
//! It does not evaluate queries: it takes the names in quotes from them, and has one row for each size and
//! region. Where the service's texts are not documented, its rows have several that are plausible.

mod server;

pub use server::{Config, ManagementServer, RateRow, ScoreRow};
