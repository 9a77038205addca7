//! `reprieve metadata fault`.

use std::time::Duration;

use clap::ValueEnum;
use reprieve::Result;
use reprieve_sim::control::{self, FaultState};
use reprieve_sim::metadata::{Endpoint, FaultRule};

use super::At;
use crate::format::table;
use crate::out::answer;

/// The end of `fault --help`.
pub(super) const KINDS: &str = "\
Kinds:
  400 to 599  answered with this status; Azure sends 410 for up to 70s, 429 for too many requests
  hang        never answered
  reset       connection reset
  break-off   connection closed in the middle of the answer
  empty       200 without a body
  garbage     200 with an error page, or with --words
  slow        answered correctly after --after
  none        answered correctly: spaces out other faults

Without --requests and --for a fault stays active until --clear. Faults apply in the order in which they were added.
";

#[derive(Debug, clap::Args)]
pub(crate) struct FaultArgs {
    /// The kind of the fault (see below)
    kind: Option<String>,

    /// The requests it applies to
    #[arg(long, value_enum, default_value_t = Of::Events)]
    endpoint: Of,

    /// The number of requests it applies to
    #[arg(long, value_name = "COUNT", requires = "kind")]
    requests: Option<u64>,

    /// How long it stays active
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::values::duration, requires = "kind")]
    lasts: Option<Duration>,

    /// Applies to requests of this VM only
    #[arg(long, value_name = "NAME", requires = "kind")]
    vm: Option<String>,

    /// Applies to requests for events in this api-version only
    #[arg(long, value_name = "VERSION", requires = "kind")]
    api_version: Option<String>,

    /// The delay of a slow answer [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration, requires = "kind")]
    after: Option<Duration>,

    /// The body of a garbage answer
    #[arg(long, requires = "kind")]
    words: Option<String>,

    /// Removes all faults first
    #[arg(long)]
    clear: bool,

    #[command(flatten)]
    at: At,

    /// Prints the active faults as JSON
    #[arg(long)]
    json: bool,
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Of {
    /// Scheduled events, and approvals
    Events,
    /// The instance document
    Instance,
    /// Tokens of the VM's identity
    Identity,
}

impl From<Of> for Endpoint {
    fn from(of: Of) -> Self {
        match of {
            Of::Events => Self::ScheduledEvents,
            Of::Instance => Self::Instance,
            Of::Identity => Self::Identity,
        }
    }
}

pub(super) async fn run(args: FaultArgs) -> Result<()> {
    let FaultArgs { kind, endpoint, requests, lasts, vm, api_version, after, words, clear, at, json } = args;
    let At { url } = at;
    if clear {
        control::clear_faults(&url).await?;
    }
    if let Some(kind) = kind {
        let (lasts, after) = (lasts.map(Into::into), after.map(Into::into));
        let rule = FaultRule {
            endpoint: endpoint.into(),
            kind,
            vm,
            version: api_version,
            requests,
            lasts,
            after,
            words,
        };
        control::add_fault(&url, &rule).await?;
    }
    let active = control::faults(&url).await?;
    answer(json, &active, || shown(&active))
}

/// The faults as a table.
pub(super) fn shown(active: &[FaultState]) -> String {
    let or_all = |what: Option<String>| what.unwrap_or_else(|| "all".to_owned());
    let rows: Vec<_> = active
        .iter()
        .map(|fault| {
            let version = fault.version.iter().map(|version| format!(" {version}"));
            [
                fault.id.to_string(),
                fault.kind.clone(),
                format!("{}{}", fault.endpoint, version.collect::<String>()),
                or_all(fault.vm.clone()),
                or_all(fault.requests_left.map(|left| left.to_string())),
                fault.until_unix_ms.map(time).unwrap_or_default(),
                fault.injected.to_string(),
            ]
        })
        .collect();
    table(["ID", "KIND", "ENDPOINT", "VM", "REQUESTS", "UNTIL", "INJECTED"], &rows)
}

/// A time to the second, or as it is if it is none.
pub(super) fn time(unix_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(unix_ms);
    time.map_or_else(|_| unix_ms.to_string(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
