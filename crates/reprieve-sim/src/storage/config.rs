//! The double's configuration.

use std::net::{IpAddr, Ipv4Addr};

use super::latency::Latency;

/// The double's configuration.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Its address. Default: this machine only. The double accepts every client, so other machines
    /// should not reach it.
    pub ip: IpAddr,
    /// The port of the blob service. Default: 0, which takes a free one.
    pub blob_port: u16,
    /// The port of the queue service. Default: 0, which takes a free one.
    pub queue_port: u16,
    /// The simulated latency. Default: zero.
    pub latency: Latency,
    /// Answers as an account with versioning and soft delete; the copies themselves are not kept.
    /// Default: no.
    pub keeps_copies: bool,
    /// Is an account with a hierarchical namespace: a blob's directories are blobs too. Default: no.
    pub has_directories: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ip: Ipv4Addr::LOCALHOST.into(),
            blob_port: 0,
            queue_port: 0,
            latency: Latency::default(),
            keeps_copies: false,
            has_directories: false,
        }
    }
}
