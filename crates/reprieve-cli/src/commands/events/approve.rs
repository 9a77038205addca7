//! `reprieve events approve`: lets events begin now, if they may be approved.

use std::time::Duration;

use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::scheduled_events::document::{Document, Event, EventStatus, EventType};
use serde::Serialize;
use tokio::time::Instant;

use super::service::{AtArgs, patiently};
use crate::format::plain;
use crate::out::{Out, say};

/// How `approve --help` ends.
pub(super) const AFTER_HELP: &str = "\
Durations are a number and a unit: 500ms, 10s, 5m, 1h.
Exit codes: 0 approved, or begun already; 1 failed; 2 wrong usage or settings, or an event that is not to be approved: then none is.
Data goes to stdout, all else to stderr.";

const OPERATION: &str = "approve an event";

/// How long one reading of the events may take, where time for another one is left. It may have to find out first which
/// api-version the service has.
const READ_MAX: Duration = Duration::from_secs(5);

/// Longer than anybody waits for a command.
const WITHIN_MAX: Duration = Duration::from_hours(1);

#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    /// The events, by id; upper and lower case are the same
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    /// Also events that are not of this VM alone
    ///
    /// An approval lets an event begin on every VM that it names, whatever they are doing.
    #[arg(long)]
    shared: bool,

    /// Also a Preempt
    ///
    /// The VM is then taken back at once. Nothing is gained by that but time for others.
    #[arg(long)]
    surrender: bool,

    /// How long to try, at most 1h
    #[arg(long, value_name = "DURATION", value_parser = within, default_value = "10s")]
    within: Duration,

    /// Prints JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: AtArgs,
}

fn within(text: &str) -> Result<Duration, String> {
    match reprieve::parse_duration(text) {
        Ok(within) if within <= WITHIN_MAX => Ok(within),
        Ok(_) => Err("it is longer than 1h".to_owned()),
        Err(error) => Err(error.message().to_owned()),
    }
}

/// What was done, as `--json` prints it.
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
    /// It had begun by itself, or was approved before.
    begun_already: bool,
}

pub(super) async fn run(args: ApproveArgs) -> Result<()> {
    let at = args.at.read()?;
    let asked = Instant::now();
    let (vm, document) = tokio::try_join!(
        at.vm(args.within),
        patiently(args.within, async |left| at.client.document(left.min(READ_MAX)).await)
    )?;
    let events = chosen(&args, &document, &vm)?;
    let begun = |event: &Event| event.event_status == EventStatus::Started;
    let ids: Vec<_> =
        events.iter().filter(|event| !begun(event)).map(|event| event.event_id.as_str()).collect();
    if !ids.is_empty() {
        for event in events.iter().filter(|event| !begun(event)) {
            say(&plain(&covers(event)));
        }
        let left = args.within.saturating_sub(asked.elapsed());
        at.client.approve(&ids, left).await.map_err(refused_by_the_service)?;
    }
    let approved = events.iter().map(|event| Approved {
        id: &event.event_id,
        event_type: event.event_type.as_str(),
        resources: &event.resources,
        begun_already: begun(event),
    });
    print(&args, &Report { approved: approved.collect() })
}

/// The events that are meant, each once, if all of them may be approved.
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
    if ids.is_empty() { "there is none at all".to_owned() } else { format!("there are {}", ids.join(", ")) }
}

fn refused(event: &Event, refusal: Refusal) -> String {
    let cure = match refusal {
        Refusal::Shared => format!("; --shared approves it for {}", vms(event)),
        Refusal::Preempt => "; --surrender does it all the same".to_owned(),
        Refusal::Advice | Refusal::NoId | Refusal::Changed => String::new(),
    };
    format!("{} {} {}{cure}", event.event_type.as_str(), event.event_id, refusal.words())
}

/// The service has no other reason to refuse what it has just told of, and it is no fault of the command line.
fn refused_by_the_service(error: Error) -> Error {
    if error.kind() != ErrorKind::Invalid {
        return error;
    }
    let message = format!("{}; one may be over by now, so see what stands and try again", error.message());
    Error::new(ErrorKind::Conflict, OPERATION, message)
}

fn covers(event: &Event) -> String {
    format!("approving {} {} for {}", event.event_type.as_str(), event.event_id, vms(event))
}

fn vms(event: &Event) -> String {
    if event.resources.is_empty() {
        "VMs that it does not name".to_owned()
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
            let done = if *begun_already { "has begun already" } else { "approved" };
            out.text(&(plain(&format!("{id}  {event_type}  {}  {done}", resources.join(","))) + "\n"))?;
        }
    }
    out.flush()
}

/// What may be approved besides the harmless: an event of this VM alone, that takes nothing for ever.
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
    /// Nothing follows from it, so there is nothing that could begin.
    Advice,
    /// An approval names an event by its id.
    NoId,
    /// Somebody has to allow it for all.
    Shared,
    /// The VM would be gone the sooner, and nothing gained.
    Preempt,
    /// Whoever made the VM ready did so for something else.
    Changed,
}

impl Refusal {
    /// How a sentence about the event goes on.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Advice => "is only an advice, which can't be approved",
            Self::NoId => "was given no id to approve it by",
            Self::Shared => "is not of this VM alone",
            Self::Preempt => "takes the VM back, and approved only does so sooner",
            Self::Changed => "has become another type of event since its command was run",
        }
    }
}

/// Why `event` must not be approved by the VM called `vm`; `None` when it may be.
pub(super) fn refusal(event: &Event, vm: &str, allowed: Allowed) -> Option<Refusal> {
    // One that names nobody may happen to anybody.
    let sole = event.resources.len() == 1 && event.concerns(vm);
    match event.event_type {
        EventType::SpotRebalanceRecommendation => Some(Refusal::Advice),
        _ if event.event_id.is_empty() => Some(Refusal::NoId),
        EventType::Preempt if !allowed.surrender => Some(Refusal::Preempt),
        _ if !sole && !allowed.shared => Some(Refusal::Shared),
        _ => None,
    }
}

/// The same after a command has made the VM ready for an event of the type `ready_for`, which it may not be any more.
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
