//! `reprieve events approve`: lets events begin now, if they may be approved.

use std::time::Duration;

use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::scheduled_events::document::{Document, Event, EventStatus, EventType};
use serde::Serialize;
use tokio::time::Instant;

use super::service::{ServiceArgs, retry};
use crate::format::plain;
use crate::out::{Out, print_stderr};

/// The end of `approve --help`.
pub(super) const AFTER_HELP: &str = "\
Durations are a number and a unit: 500ms, 10s, 5m, 1h.
Exit codes: 0 approved, or already started; 1 failed; 2 wrong usage or settings, or an event that may not be approved: then none is approved.
Data goes to stdout, everything else to stderr.";

const OPERATION: &str = "approve an event";

/// The timeout of one request for events, when time for another is left. The first may have to
/// negotiate the api-version.
const READ_MAX: Duration = Duration::from_secs(5);

/// The limit of `--within`.
const WITHIN_MAX: Duration = Duration::from_hours(1);

#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    /// The ids of the events, in upper or lower case
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    /// Also approves events that name other VMs
    ///
    /// An approval starts an event on every VM that it names, whatever they are doing.
    #[arg(long)]
    shared: bool,

    /// Also approves a Preempt
    ///
    /// Azure then evicts the VM at once. This VM gains nothing.
    #[arg(long)]
    surrender: bool,

    /// How long to try, at most 1h
    #[arg(long, value_name = "DURATION", value_parser = within, default_value = "10s")]
    within: Duration,

    /// Prints JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: ServiceArgs,
}

fn within(text: &str) -> Result<Duration, String> {
    match reprieve::parse_duration(text) {
        Ok(within) if within <= WITHIN_MAX => Ok(within),
        Ok(_) => Err("it is longer than 1h".to_owned()),
        Err(error) => Err(error.message().to_owned()),
    }
}

/// The output, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report<'a> {
    approved: Vec<Approved<'a>>,
}

#[derive(Debug, Serialize)]
struct Approved<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    resources: &'a [String],
    /// It had started already, by itself or by an earlier approval.
    begun_already: bool,
}

pub(super) async fn run(args: ApproveArgs) -> Result<()> {
    let at = args.at.read()?;
    let asked = Instant::now();
    let (vm, document) = tokio::try_join!(
        at.vm(args.within),
        retry(args.within, async |left| at.client.document(left.min(READ_MAX)).await)
    )?;
    let events = chosen(&args, &document, &vm)?;
    let begun = |event: &Event| event.event_status == EventStatus::Started;
    let ids: Vec<_> =
        events.iter().filter(|event| !begun(event)).map(|event| event.event_id.as_str()).collect();
    if !ids.is_empty() {
        for event in events.iter().filter(|event| !begun(event)) {
            print_stderr(&plain(&covers(event)));
        }
        let left = args.within.saturating_sub(asked.elapsed());
        at.client.approve(&ids, left).await.map_err(as_conflict)?;
    }
    let approved = events.iter().map(|event| Approved {
        id: &event.event_id,
        event_type: event.event_type.as_str(),
        resources: &event.resources,
        begun_already: begun(event),
    });
    print(&args, &Report { approved: approved.collect() })
}

/// The named events, each once, if all of them may be approved.
fn chosen<'a>(args: &ApproveArgs, document: &'a Document, vm: &str) -> Result<Vec<&'a Event>> {
    let allowed = Allowed { shared: args.shared, surrender: args.surrender };
    let (mut events, mut faults) = (Vec::<&Event>::new(), Vec::new());
    for id in &args.ids {
        let id = id.trim();
        let Some(event) =
            document.events.iter().find(|event| !id.is_empty() && event.event_id.eq_ignore_ascii_case(id))
        else {
            faults.push(format!("there is no event {id:?}; {}", there_are(document)));
            continue;
        };
        match refusal(event, vm, allowed) {
            None if events.iter().any(|other| other.event_id == event.event_id) => {}
            None => events.push(event),
            Some(refusal) => faults.push(refused(event, refusal)),
        }
    }
    if faults.is_empty() {
        return Ok(events);
    }
    Err(Error::new(ErrorKind::Invalid, OPERATION, plain(&faults.join("; "))))
}

fn there_are(document: &Document) -> String {
    let ids: Vec<_> = document
        .events
        .iter()
        .map(|event| format!("{} ({})", event.event_id, event.event_type.as_str()))
        .collect();
    if ids.is_empty() {
        "no event is active".to_owned()
    } else {
        format!("active events: {}", ids.join(", "))
    }
}

fn refused(event: &Event, refusal: Refusal) -> String {
    let cure = match refusal {
        Refusal::Shared => format!("; --shared approves it for {}", vms(event)),
        Refusal::Preempt => "; --surrender approves it anyway".to_owned(),
        Refusal::Advice | Refusal::NoId | Refusal::Changed => String::new(),
    };
    format!("{} {} {}{cure}", event.event_type.as_str(), event.event_id, refusal.reason())
}

/// Turns the service's refusal of an event that it listed into a conflict: the command line was
/// right.
fn as_conflict(error: Error) -> Error {
    if error.kind() != ErrorKind::Invalid {
        return error;
    }
    let message = format!(
        "{}; an event may have ended: run `reprieve events watch --once`, then try again",
        error.message()
    );
    Error::new(ErrorKind::Conflict, OPERATION, message)
}

fn covers(event: &Event) -> String {
    format!("approving {} {} for {}", event.event_type.as_str(), event.event_id, vms(event))
}

fn vms(event: &Event) -> String {
    if event.resources.is_empty() {
        "VMs that it does not list".to_owned()
    } else {
        event.resources.join(", ")
    }
}

fn print(args: &ApproveArgs, report: &Report<'_>) -> Result<()> {
    let mut out = Out::new();
    if args.json {
        out.pretty_json(report)?;
        out.text("\n")?;
    } else {
        for Approved { id, event_type, resources, begun_already } in &report.approved {
            let done = if *begun_already { "already started" } else { "approved" };
            out.text(&(plain(&format!("{id}  {event_type}  {}  {done}", resources.join(","))) + "\n"))?;
        }
    }
    out.flush()
}

/// The events that may be approved besides those of this VM alone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Allowed {
    /// Events that name other VMs, too.
    pub(super) shared: bool,
    /// A `Preempt`.
    pub(super) surrender: bool,
}

/// Why an event is not approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is a recommendation and has no start.
    Advice,
    /// It has no id, by which an approval names it.
    NoId,
    /// It names other VMs, too.
    Shared,
    /// The VM would be evicted sooner, for no gain.
    Preempt,
    /// The VM was prepared for an event of another type.
    Changed,
}

impl Refusal {
    /// The rest of a sentence that begins with the event.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Advice => "is a recommendation, which can't be approved",
            Self::NoId => "has no id, which an approval needs",
            Self::Shared => "does not name this VM alone",
            Self::Preempt => "evicts the VM, and an approval makes it sooner",
            Self::Changed => "has changed its type since its command ran",
        }
    }
}

/// Why `event` must not be approved by the VM called `vm`; `None` when it may be.
pub(super) fn refusal(event: &Event, vm: &str, allowed: Allowed) -> Option<Refusal> {
    // An event that names no VM may affect any VM.
    let sole = event.resources.len() == 1 && event.concerns(vm);
    match event.event_type {
        EventType::SpotRebalanceRecommendation => Some(Refusal::Advice),
        _ if event.event_id.is_empty() => Some(Refusal::NoId),
        EventType::Preempt if !allowed.surrender => Some(Refusal::Preempt),
        _ if !sole && !allowed.shared => Some(Refusal::Shared),
        _ => None,
    }
}

/// The same after a command has made the VM ready for an event of the type `ready_for`, which it
/// may not be any more.
pub(super) fn refusal_when_ready(
    ready_for: &str,
    event: &Event,
    vm: &str,
    allowed: Allowed,
) -> Option<Refusal> {
    let changed = event.event_type.as_str() != ready_for;
    refusal(event, vm, allowed).or(changed.then_some(Refusal::Changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_approved() {
        const NONE: Allowed = Allowed { shared: false, surrender: false };
        const ALL: Allowed = Allowed { shared: true, surrender: true };
        use EventType::{Freeze, Other, Preempt, Reboot, SpotRebalanceRecommendation as Rebalance};
        for (event_type, id, resources, by_default, with_all) in [
            (Reboot, "a", &["w_0"][..], None, None),
            (Reboot, "a", &["W_0"], None, None),
            (Other("Defrost".to_owned()), "a", &["w_0"], None, None),
            (Freeze, "a", &["w_0", "w_1"], Some(Refusal::Shared), None),
            (Freeze, "a", &["w_1"], Some(Refusal::Shared), None),
            (Freeze, "a", &[], Some(Refusal::Shared), None),
            (Preempt, "a", &["w_0"], Some(Refusal::Preempt), None),
            (Reboot, "", &["w_0"], Some(Refusal::NoId), Some(Refusal::NoId)),
            (Rebalance, "a", &["w_0"], Some(Refusal::Advice), Some(Refusal::Advice)),
        ] {
            let resources = resources.iter().map(|&name| name.to_owned()).collect();
            let event = Event { event_id: id.to_owned(), event_type, resources, ..Event::default() };
            assert_eq!(refusal(&event, "w_0", NONE), by_default, "{event:?}");
            assert_eq!(refusal(&event, "w_0", ALL), with_all, "{event:?}");
        }
        // To be ready for a pause is not to be ready for a restart.
        let event = Event {
            event_id: "a".to_owned(),
            event_type: Reboot,
            resources: vec!["w_0".to_owned()],
            ..Event::default()
        };
        assert_eq!(refusal_when_ready("Reboot", &event, "w_0", NONE), None);
        assert_eq!(refusal_when_ready("Freeze", &event, "w_0", ALL), Some(Refusal::Changed));
        assert_eq!(refusal_when_ready("Freeze", &event, "w_1", NONE), Some(Refusal::Shared));
        // To give a Preempt up is not to give up those of others.
        let event = Event {
            event_id: "a".to_owned(),
            event_type: Preempt,
            resources: vec!["w_0".to_owned(), "w_1".to_owned()],
            ..Event::default()
        };
        let surrender = Allowed { surrender: true, ..NONE };
        assert_eq!(refusal(&event, "w_0", surrender), Some(Refusal::Shared));
    }
}
