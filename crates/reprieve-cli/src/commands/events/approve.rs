//! `reprieve events approve`: lets events begin now.

use std::time::Duration;

use reprieve::{Error, ErrorKind, Result};
use reprieve_azure::scheduled_events::document::{Document, Event, EventStatus};
use serde::Serialize;
use tokio::time::Instant;

use super::approvable::{Allowed, Refusal, refusal};
use super::at::AtArgs;
use super::patience::patiently;
use crate::out::{Out, plain, say};

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
