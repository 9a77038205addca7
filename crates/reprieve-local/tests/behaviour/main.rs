//! Behaviour of this store beyond the promises of the ports: the order of messages, small blobs as
//! rows, damaged rows and files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod bench;
mod blobs;
mod damage;
mod line;
mod lists;
mod odd_rows;
mod parts;
mod whole_worker;
