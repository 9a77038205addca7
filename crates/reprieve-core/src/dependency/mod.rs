//! What jobs depend on besides the store: caches, databases, web services.
//!
//! The worker does not use this yet.

pub mod breaker;
