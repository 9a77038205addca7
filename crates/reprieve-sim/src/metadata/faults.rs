//! Faults: answers that the mock breaks on demand, for a number of requests or for a time.

use std::fmt;
use std::time::Duration;

use reprieve_azure::scheduled_events::ApiVersion;
use reprieve_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::moment::{Moment, SPAN_MAX};
use super::refusal::{Refusal, refuse};
use super::span::Span;

/// A way in which a request fails. Requests that break the rules are refused first, fault or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this status and an error document.
    Status(u16),
    /// Answers correctly, with the state at the request's arrival, but only after this time.
    Late(Duration),
    /// Never answers.
    Hang,
    /// Answers 200 with an empty body.
    Empty,
    /// Answers 200 with this text.
    Garbage(String),
    /// Breaks the answer off in the middle.
    BreakOff,
    /// Resets the connection before answering.
    Reset,
    /// Answers normally; leaves a gap between other faults.
    None,
}

impl Fault {
    /// Returns whether the request has no effect: the service refused it, or did not receive all of
    /// it. Under the other faults the request takes effect, and only the answer fails.
    pub(super) const fn refuses(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Reset)
    }
}

/// The endpoint to which a fault applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Endpoint {
    /// Requests for events, and approvals.
    #[serde(rename = "events")]
    ScheduledEvents,
    /// Requests for the instance document.
    #[serde(rename = "instance")]
    Instance,
    /// Requests for tokens of the VM's identity.
    #[serde(rename = "identity")]
    Identity,
}

/// A fault as scenarios and the control API write it. With neither `requests` nor `for` it stays
/// active until it is cleared; with both, until either is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The endpoint. Default: events.
    #[serde(default = "events")]
    pub endpoint: Endpoint,
    /// `400` to `599`, `hang`, `reset`, `break-off`, `empty`, `garbage`, `slow` or `none`.
    pub kind: String,
    /// The VM; all VMs when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// The api-version of the requests for events; every version when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// How long from now the fault is active.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Span>,
    /// The delay of a `slow` answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// The body of a `garbage` answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ScheduledEvents => "events",
            Self::Instance => "instance",
            Self::Identity => "identity",
        })
    }
}

const fn events() -> Endpoint {
    Endpoint::ScheduledEvents
}

/// The default delay of a `slow` answer.
const SLOW: Duration = Duration::from_secs(5);

impl FaultRule {
    /// Returns a fault of this kind for every request for events, until it is cleared.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        let (vm, version, requests, lasts, after, words) = (None, None, None, None, None, None);
        Self { endpoint: events(), kind: kind.to_owned(), vm, version, requests, lasts, after, words }
    }

    /// Returns the api-version to which the rule applies; `None` for all.
    pub(super) fn version(&self) -> Result<Option<ApiVersion>, Refusal> {
        let Some(version) = &self.version else { return Ok(None) };
        if self.endpoint != Endpoint::ScheduledEvents {
            return refuse(ErrorKind::Invalid, "only a fault of events has a \"version\"");
        }
        version.parse().map(Some).or_else(|error: Error| refuse(ErrorKind::Invalid, error.message()))
    }

    /// Returns the fault that the rule describes.
    pub(super) fn fault(&self) -> Result<Fault, Refusal> {
        if self.after.is_some() && self.kind != "slow" {
            return refuse(ErrorKind::Invalid, "only a slow answer has an \"after\"");
        }
        if self.words.is_some() && self.kind != "garbage" {
            return refuse(ErrorKind::Invalid, "only garbage has \"words\"");
        }
        Ok(match self.kind.as_str() {
            "hang" => Fault::Hang,
            "reset" => Fault::Reset,
            "break-off" => Fault::BreakOff,
            "empty" => Fault::Empty,
            "garbage" => Fault::Garbage(
                self.words.clone().unwrap_or_else(|| "<html>502 Bad Gateway</html>".to_owned()),
            ),
            "slow" => Fault::Late(self.after.map_or(SLOW, |after| after.0.min(SPAN_MAX))),
            "none" => Fault::None,
            status => {
                let Ok(status @ 400..=599) = status.parse() else {
                    let message = format!(
                        "{status:?} is no kind of fault; there are 400 to 599, hang, reset, break-off, empty, garbage, slow and none"
                    );
                    return refuse(ErrorKind::Invalid, message);
                };
                Fault::Status(status)
            }
        })
    }
}

/// An active fault, as the control API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultState {
    /// Its number.
    pub id: u64,
    /// The endpoint to which it applies.
    pub endpoint: Endpoint,
    /// Its kind, as in a rule.
    pub kind: String,
    /// The VM; `None` for all VMs.
    pub vm: Option<String>,
    /// The api-version; `None` for all versions.
    pub version: Option<String>,
    /// The number of remaining requests; `None` for no limit.
    pub requests_left: Option<u64>,
    /// When it ends; `None` for no time limit.
    pub until_unix_ms: Option<i64>,
    /// The number of requests that it has affected.
    #[serde(rename = "befell")]
    pub injected: u64,
}

/// The active faults, in order.
#[derive(Debug, Default)]
pub(super) struct Faults {
    last_id: u64,
    active: Vec<ActiveFault>,
}

#[derive(Debug)]
struct ActiveFault {
    id: u64,
    what: NewFault,
    injected: u64,
}

/// A fault to be added.
#[derive(Debug)]
pub(super) struct NewFault {
    pub(super) endpoint: Endpoint,
    pub(super) fault: Fault,
    pub(super) vm: Option<String>,
    pub(super) version: Option<ApiVersion>,
    pub(super) requests: Option<u64>,
    pub(super) until: Option<Moment>,
}

impl Faults {
    /// Adds a fault after the active ones, and returns its number.
    pub(super) fn add(&mut self, what: NewFault) -> u64 {
        self.last_id += 1;
        self.active.push(ActiveFault { id: self.last_id, what, injected: 0 });
        self.last_id
    }

    /// Returns the fault for a request now, and counts it. Requests for events have a `version`.
    pub(super) fn take(
        &mut self,
        endpoint: Endpoint,
        vm: &str,
        version: Option<ApiVersion>,
        now: Instant,
    ) -> Fault {
        self.forget_ended(now);
        let applies = |what: &NewFault| {
            what.endpoint == endpoint
                && what.vm.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(vm))
                && (what.version.is_none() || what.version == version)
        };
        match self.active.iter_mut().find(|active| applies(&active.what)) {
            None => Fault::None,
            Some(active) => {
                active.injected += 1;
                active.what.fault.clone()
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.active.clear();
    }

    pub(super) fn remove(&mut self, id: u64) -> Result<(), Refusal> {
        match self.active.iter().position(|active| active.id == id) {
            Some(index) => {
                self.active.remove(index);
                Ok(())
            }
            None => refuse(ErrorKind::NotFound, format!("there is no fault number {id}")),
        }
    }

    pub(super) fn list(&self, now: Moment) -> Vec<FaultState> {
        let active = self.active.iter().filter(|active| !active.has_ended(now.at));
        active
            .map(|ActiveFault { id, what, injected }| FaultState {
                id: *id,
                endpoint: what.endpoint,
                kind: what.fault.kind(),
                vm: what.vm.clone(),
                version: what.version.map(|version| version.to_string()),
                requests_left: what.requests.map(|requests| requests - injected),
                until_unix_ms: what.until.map(Moment::unix_ms),
                injected: *injected,
            })
            .collect()
    }

    fn forget_ended(&mut self, now: Instant) {
        self.active.retain(|active| !active.has_ended(now));
    }
}

impl ActiveFault {
    fn has_ended(&self, now: Instant) -> bool {
        self.what.until.is_some_and(|until| until.at <= now)
            || self.what.requests.is_some_and(|requests| requests <= self.injected)
    }
}

impl Fault {
    /// Returns the fault's name in a rule.
    fn kind(&self) -> String {
        match self {
            Self::Status(status) => return status.to_string(),
            Self::Late(after) => return format!("slow ({})", Span(*after)),
            Self::Hang => "hang",
            Self::Empty => "empty",
            Self::Garbage(_) => "garbage",
            Self::BreakOff => "break-off",
            Self::Reset => "reset",
            Self::None => "none",
        }
        .to_owned()
    }
}
