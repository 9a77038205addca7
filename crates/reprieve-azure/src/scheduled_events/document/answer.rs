//! One answer of the service, with its api-version and the time of its receipt.

use std::time::SystemTime;

use reprieve_core::clock::wall_now;
use tokio::time::Instant;

use super::{ApiVersion, Document};

/// A document, with the data that is needed to interpret it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The parsed document.
    pub document: Document,
    /// The api-version of the request.
    pub version: ApiVersion,
    /// The time of receipt, on the timers' clock.
    pub at: Instant,
    /// The time of receipt, on the wall clock.
    pub wall: SystemTime,
}

impl Answer {
    /// Creates an answer that was received now.
    #[must_use]
    pub fn now(document: Document, version: ApiVersion) -> Self {
        Self { document, version, at: Instant::now(), wall: wall_now() }
    }
}
