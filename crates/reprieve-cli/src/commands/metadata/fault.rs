//! `reprieve metadata fault`.

use std::time::Duration;

use clap::ValueEnum;
use reprieve::Result;
use reprieve_sim::control::{self, FaultState};
use reprieve_sim::metadata::{Endpoint, FaultRule};

use super::At;
use crate::format::table;
use crate::out::answer;

/// What may be asked for.
pub(super) const KINDS: &str = "\
Kinds:
  400 to 599  answered with this status; in life 410 for up to 70s, 429 for too many requests
  hang        never answered
  reset       connection reset
  break-off   the answer breaks off in the middle
  empty       200 without a body
  garbage     200 with an error page, or with --words
  slow        answered well, but only after --after
  none        answered well: leaves room between others

With neither --requests nor --for it stands until --clear. Faults befall requests in the order they were added.
";

#[derive(Debug, clap::Args)]
pub(crate) struct FaultArgs {
    /// What goes wrong (see below)
    kind: Option<String>,

    /// For which requests
    #[arg(long, value_enum, default_value_t = Of::Events)]
    endpoint: Of,

    /// For how many requests
    #[arg(long, value_name = "COUNT", requires = "kind")]
    requests: Option<u64>,

    /// For how long
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::values::duration, requires = "kind")]
    lasts: Option<Duration>,

    /// Only for requests of this VM
    #[arg(long, value_name = "NAME", requires = "kind")]
    vm: Option<String>,

    /// After how long a slow answer comes [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration, requires = "kind")]
    after: Option<Duration>,

    /// What is answered as garbage
    #[arg(long, requires = "kind")]
    words: Option<String>,

    /// Removes all faults first
    #[arg(long)]
    clear: bool,

    #[command(flatten)]
    at: At,

    /// Prints the faults that stand then as JSON
    #[arg(long)]
    json: bool,
}

/// What requests are for.
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
    let FaultArgs { kind, endpoint, requests, lasts, vm, after, words, clear, at: At { url }, json } = args;
    if clear {
        control::clear_faults(&url).await?;
    }
    if let Some(kind) = kind {
        let (lasts, after) = (lasts.map(Into::into), after.map(Into::into));
        let rule = FaultRule { endpoint: endpoint.into(), kind, vm, requests, lasts, after, words };
        control::add_fault(&url, &rule).await?;
    }
    let standing = control::faults(&url).await?;
    answer(json, &standing, || shown(&standing))
}

/// The faults as a table.
pub(super) fn shown(standing: &[FaultState]) -> String {
    let or_all = |what: Option<String>| what.unwrap_or_else(|| "all".to_owned());
    let rows: Vec<_> = standing
        .iter()
        .map(|fault| {
            [
                fault.id.to_string(),
                fault.kind.clone(),
                fault.endpoint.to_string(),
                or_all(fault.vm.clone()),
                or_all(fault.requests_left.map(|left| left.to_string())),
                fault.until_unix_ms.map(super::state::time).unwrap_or_default(),
                fault.befell.to_string(),
            ]
        })
        .collect();
    table(["ID", "KIND", "ENDPOINT", "VM", "REQUESTS", "UNTIL", "BEFELL"], &rows)
}
