//! Behaviour of this store beyond the promises of the ports: the order of messages.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod bench;
mod line;
