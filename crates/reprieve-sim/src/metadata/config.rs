//! What a mock starts with.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use super::scenario::Scenario;

/// What a mock starts with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens; a port of 0 takes a free one. Default: a free port of this machine only. It has no access
    /// control, so it should not be reachable from elsewhere.
    pub addr: SocketAddr,
    /// Whether each VM has a port of its own, where requests without a prefix are its own, as in Azure. The first VM has
    /// that of `addr`, the others the next ones, or free ones if that is 0. Default: no.
    pub one_port_each: bool,
    /// The names of its VMs. Default: none.
    pub vms: Vec<String>,
    /// How long an event is still told after it started, unless it says so itself. Default: 10 s, so that whoever tries
    /// it out sees the end; in Azure it is ten minutes.
    pub started_for: Duration,
    /// How long after the first request for events all of them are kept waiting, as in Azure, where it may be two
    /// minutes. Default: none.
    pub first_answer_after: Duration,
    /// How many times faster than in life everything goes that is announced: notices, and all times of scenarios.
    /// Default: 1.
    pub speed: NonZeroU32,
    /// Whether the version of events that is in preview is there, 2024-07-09; else it is answered 404. Default: yes.
    pub preview: bool,
    /// How long a token of the VM's identity is good. Default: about an hour, as documented.
    pub token_lifetime: Duration,
    /// Scenarios besides those that are built in. One of the same name replaces it. Default: none.
    pub scenarios: Vec<Scenario>,
}

impl Config {
    /// The defaults, with these VMs.
    pub fn with_vms(vms: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { vms: vms.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            one_port_each: false,
            vms: Vec::new(),
            started_for: Duration::from_secs(10),
            first_answer_after: Duration::ZERO,
            speed: NonZeroU32::MIN,
            preview: true,
            token_lifetime: Duration::from_secs(3599),
            scenarios: Vec::new(),
        }
    }
}
