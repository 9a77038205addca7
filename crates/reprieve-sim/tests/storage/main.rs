//! The storage double over HTTP, as the official SDK and as a plain client see it.

mod blobs;
mod blocks;
mod control;
mod faults;
mod queues;
mod support;
mod wire;
