//! `reprieve events watch`: its flags, and what `--once` prints.

use std::cell::RefCell;
use std::time::Duration;

use reprieve::Result;
use reprieve_azure::scheduled_events::document::EventType;
use reprieve_azure::scheduled_events::{ActiveEvents, EventChange, Scope};

use super::change::ChangeReport;
use super::printer::Printer;
use super::service::{SILENT_AFTER, Service, ServiceArgs, retry};
use crate::format::plain;
use crate::out::print_stderr;

/// The end of `watch --help`.
pub(super) const AFTER_HELP: &str = "\
The command runs in sh (Windows: cmd), without input; its output goes to stderr. It runs one at a
time, in the order of the changes, and for urgent events beside others (see --exec-timeout). Its
environment describes the event:
  REPRIEVE_EVENT                   noticed, changed, started, withdrawn or completed
  REPRIEVE_EVENT_ID                the id, for `reprieve events approve`
  REPRIEVE_EVENT_TYPE              Preempt, Terminate, Reboot and so on, as in --type
  REPRIEVE_EVENT_STATUS            Scheduled or Started
  REPRIEVE_EVENT_SOURCE            Platform or User
  REPRIEVE_EVENT_RESOURCES         the VMs that it names, separated by commas
  REPRIEVE_EVENT_NOT_BEFORE        the earliest start, as 2026-04-11T22:26:58Z; else empty
  REPRIEVE_EVENT_SECONDS_LEFT      until then; 0 when it may start now, empty when it has ended
  REPRIEVE_EVENT_DURATION_SECONDS  how long the VM is interrupted; empty when unknown
  REPRIEVE_EVENT_DESCRIPTION       the platform's description
  REPRIEVE_EVENT_VM                the name of this VM
  REPRIEVE_EVENT_WHOSE             this; with --all also rest, for events of other VMs
  REPRIEVE_EVENT_JSON              the whole change, as --json prints it
A value that is too long for an environment variable is empty.
The watch reports events that are active at its start as noticed or started, so the command must be
able to run again for the same event.

Durations are a number and a unit: 500ms, 10s, 5m, 1h.
On SIGTERM or SIGINT (Ctrl-C) the watch waits up to 60s for the running command, then exits; a second
signal ends both at once.
Exit codes: 0 stopped; 1 failed, or stopped by a second signal; 2 wrong usage or settings.
Data goes to stdout, everything else to stderr.";

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct WatchArgs {
    /// Prints the active events and exits
    #[arg(long, conflicts_with = "exec")]
    pub(super) once: bool,

    /// Includes the events of the other VMs of this VM's set
    #[arg(long)]
    pub(super) all: bool,

    /// Reports events of these types only, separated by commas [default: all, also unknown types]
    #[arg(long = "type", value_name = "TYPES", value_delimiter = ',', value_parser = event_type)]
    types: Vec<EventType>,

    /// Prints JSON, one object per line
    #[arg(long)]
    pub(super) json: bool,

    /// Runs a command for each change that is printed; see below
    ///
    /// A failure is reported on stderr and does not end the watch.
    #[arg(long, value_name = "COMMAND")]
    pub(super) exec: Option<String>,

    /// The longest run of the command, or forever
    ///
    /// After that the command is ended, with all processes of its process group, and has failed; a
    /// process that it started in a session of its own goes on. While a command runs, those for later changes
    /// wait. Those for events of this VM that start within a minute or have started wait only for each
    /// other. Those for a Preempt or a Terminate of this VM wait for no other event.
    #[arg(long, value_name = "DURATION", value_parser = crate::values::limit, default_value = "15m", requires = "exec")]
    pub(super) exec_timeout: Duration,

    /// Approves an event when the command for its `noticed` change succeeded
    ///
    /// It then starts at once instead of at its time. Only events that name this VM alone are
    /// approved; never a Preempt, which would only come sooner.
    #[arg(long, requires = "exec")]
    pub(super) approve_after_exec: bool,

    /// Also approves events that name other VMs; they start on all of them
    #[arg(long, requires = "approve_after_exec")]
    pub(super) approve_shared: bool,

    #[command(flatten)]
    pub(super) at: ServiceArgs,
}

impl WatchArgs {
    /// Whether the flags select this change.
    pub(super) fn wants(&self, change: &EventChange) -> bool {
        (self.all || change.scope == Scope::ThisVm)
            && (self.types.is_empty() || self.types.contains(&change.event.event_type))
    }
}

fn event_type(text: &str) -> Result<EventType, String> {
    let known = EventType::KNOWN.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(text.trim()));
    known.ok_or_else(|| {
        let names = EventType::KNOWN.map(|known| known.as_str().to_owned()).join(", ");
        format!("there is no such type of event; known types: {names}")
    })
}

/// The longest wait for an answer: a VM's first request enables the service, which takes up to two
/// minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const WITHIN: Duration = Duration::from_secs(130);

pub(super) async fn once(args: &WatchArgs) -> Result<()> {
    let at = args.at.read()?;
    let fault = RefCell::new(None);
    let asked = async {
        let events = retry(WITHIN, async |left| {
            let answer = at.client.answer(left).await;
            *fault.borrow_mut() = answer.as_ref().err().map(|error| error.message().to_owned());
            answer
        });
        // Both at once: it is the request for events that enables the service.
        tokio::try_join!(at.vm(WITHIN), events)
    };
    let (vm, answer) = report_delay(&at, &fault, asked).await?;
    // Compared with an empty set, every active event is a change.
    let changes = ActiveEvents::default().update(&answer, &vm);
    let wanted: Vec<_> = changes.iter().filter(|change| args.wants(change)).collect();
    let printer = Printer::new(args.json, args.all)?;
    for change in &wanted {
        printer.print(&ChangeReport::new(change, &vm))?;
    }
    if wanted.is_empty() {
        let whom = if args.all { "the set of " } else { "" };
        print_stderr(&plain(&format!("no event is active for {whom}{vm}")));
    }
    printer.finish().await
}

/// Reports on stderr when there is no answer for a while, with the last failure.
async fn report_delay<T>(
    at: &Service,
    fault: &RefCell<Option<String>>,
    asked: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        result = &mut asked => return result,
        () = tokio::time::sleep(SILENT_AFTER) => {}
    }
    let address = at.address();
    let why = fault.borrow().as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
    print_stderr(&plain(&format!(
        "no answer yet from {address}{why}; still waiting: a new Azure VM may need two minutes"
    )));
    asked.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_documentation_in_any_case() {
        assert_eq!(event_type(" preempt"), Ok(EventType::Preempt));
        let fault = event_type("Evict").expect_err("no type");
        assert!(fault.starts_with("there is no such type of event; known types: Freeze, Reboot,"), "{fault}");
        assert!(event_type("").is_err());
    }
}
