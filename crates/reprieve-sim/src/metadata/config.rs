//! The mock's configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use jiff::SignedDuration;

use super::scenario::Scenario;

/// The mock's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address; port 0 takes a free one. Default: a free port, reachable from this machine
    /// only. The mock has no access control, so other machines should not reach it.
    pub addr: SocketAddr,
    /// Whether each VM has a port of its own, where requests need no prefix, as in Azure. The first
    /// VM has the port of `addr`, the others the next ports, or free ones if that is 0. Default:
    /// no.
    pub one_port_each: bool,
    /// The names of the VMs. Default: none.
    pub vms: Vec<String>,
    /// How long an event stays in the document after it started, unless it sets its own time.
    /// Default: 10 s, so that a person sees the end; in Azure it is ten minutes.
    pub started_for: Duration,
    /// How long after the first request for events the answers are delayed. In Azure it may be two
    /// minutes. Default: none.
    pub first_answer_after: Duration,
    /// How many requests of a VM are answered in any second; more get 429. Requests for tokens have a
    /// limit of their own, which the mock does not have. Default: any number. In Azure it is [in general
    /// five](https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting);
    /// whether those for events count is not documented.
    pub requests_per_second: Option<NonZeroU32>,
    /// The factor over real time at which announced events and scenarios run: notices, and all
    /// times of scenarios. Default: 1.
    pub speed: NonZeroU32,
    /// Whether the preview version of events, 2024-07-09, is supported; without it the mock answers
    /// 404. Default: yes.
    pub preview: bool,
    /// The lifetime of a token of the VM's identity. Default: about an hour, as documented.
    pub token_lifetime: Duration,
    /// The VMs' eviction policy: `Delete` or `Deallocate`; empty for regular VMs, which are not
    /// Spot. Default: `Delete`.
    pub eviction_policy: String,
    /// How far the service's clock is ahead of this machine's: `Date` headers and `NotBefore` are
    /// that much later. Default: zero.
    pub ahead: SignedDuration,
    /// Scenarios besides the built-in ones. A scenario replaces a built-in one of its name.
    /// Default: none.
    pub scenarios: Vec<Scenario>,
}

impl Config {
    /// Returns the defaults, with these VMs.
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
            requests_per_second: None,
            speed: NonZeroU32::MIN,
            preview: true,
            token_lifetime: Duration::from_secs(3599),
            eviction_policy: "Delete".to_owned(),
            ahead: SignedDuration::ZERO,
            scenarios: Vec::new(),
        }
    }
}
