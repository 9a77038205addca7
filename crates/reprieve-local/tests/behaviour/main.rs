//! Behaviour of this store beyond the promises of the ports: the order of messages, and small blobs as rows.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod bench;
mod blobs;
mod line;
