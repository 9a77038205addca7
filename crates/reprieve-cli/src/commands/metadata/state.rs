//! `reprieve metadata state`.

use reprieve::Result;
use reprieve_sim::control;
use reprieve_sim::metadata::{Entry, EventState, Running, State, VmState};

use super::At;
use super::fault::{self, time};
use crate::format::{plain, table};
use crate::out::answer;

/// The most lines of the log that are shown.
const LINES: usize = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    at: At,

    /// Prints JSON, with the document and the whole log
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: StateArgs) -> Result<()> {
    let state = control::state(&args.at.url).await?;
    answer(args.json, &state, || shown(&state))
}

/// The tables that are not empty, with a blank line between them.
fn shown(state: &State) -> String {
    let mut tables = vec![vms(&state.vms)];
    if !state.events.is_empty() {
        tables.push(events(&state.events));
    }
    if !state.running.is_empty() {
        tables.push(running(&state.running));
    }
    if !state.faults.is_empty() {
        tables.push(fault::shown(&state.faults));
    }
    if !state.timeline.is_empty() {
        tables.push(timeline(&state.timeline[state.timeline.len().saturating_sub(LINES)..]));
    }
    tables.join("\n")
}

fn vms(vms: &[VmState]) -> String {
    let row = |vm: &VmState| {
        let last = vm.last_poll_unix_ms.map(time).unwrap_or_default();
        [vm.name.clone(), vm.polls.to_string(), last, vm.url.clone()]
    };
    table(["VM", "POLLS", "LAST", "URL"], &vms.iter().map(row).collect::<Vec<_>>())
}

fn events(events: &[EventState]) -> String {
    let row = |event: &EventState| {
        let approved: Vec<_> = event.approvals.iter().map(|approval| approval.vm.as_str()).collect();
        [
            plain(&event.event_id),
            event.event_type.clone(),
            word(&event.status),
            plain(&event.vms.join(",")),
            event.starts_at_unix_ms.map(time).unwrap_or_default(),
            event.ends_at_unix_ms.map(time).unwrap_or_default(),
            approved.join(","),
        ]
    };
    let headings = ["EVENT", "TYPE", "STATUS", "VMS", "STARTS", "ENDS", "APPROVED BY"];
    table(headings, &events.iter().map(row).collect::<Vec<_>>())
}

fn running(running: &[Running]) -> String {
    let row = |run: &Running| {
        [run.scenario.clone(), run.target.clone(), run.steps_left.to_string(), time(run.next_step_unix_ms)]
    };
    table(["SCENARIO", "VM", "STEPS", "NEXT"], &running.iter().map(row).collect::<Vec<_>>())
}

fn timeline(entries: &[Entry]) -> String {
    let row = |entry: &Entry| {
        [
            time(entry.at_unix_ms),
            word(&entry.what),
            entry.event_type.clone().unwrap_or_default(),
            plain(&entry.vms.join(",")),
            plain(&entry.note),
        ]
    };
    table(["AT", "WHAT", "TYPE", "VMS", "NOTE"], &entries.iter().map(row).collect::<Vec<_>>())
}

/// One of several words, as in JSON.
fn word(word: &impl serde::Serialize) -> String {
    match serde_json::to_value(word) {
        Ok(serde_json::Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}
