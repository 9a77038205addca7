//! One answer of the service: what it said, in which api-version, and when.

use std::time::SystemTime;

use reprieve_core::clock::wall_now;
use tokio::time::Instant;

use super::ApiVersion;
use super::document::Document;

/// A document, and what is to be known besides to make something of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What was said.
    pub document: Document,
    /// The api-version it was asked in.
    pub version: ApiVersion,
    /// When it was received, on the clock that timers use.
    pub at: Instant,
    /// The same on the wall clock.
    pub wall: SystemTime,
}

impl Answer {
    /// An answer that was received now.
    #[must_use]
    pub fn now(document: Document, version: ApiVersion) -> Self {
        Self { document, version, at: Instant::now(), wall: wall_now() }
    }
}
