//! `reprieve events watch`: its flags, and what `--once` prints.

use std::cell::RefCell;
use std::time::Duration;

use reprieve::Result;
use reprieve_azure::scheduled_events::document::EventType;
use reprieve_azure::scheduled_events::{EventChange, Standing, Whose};

use super::change::Told;
use super::printer::Printer;
use super::service::{At, AtArgs, SILENCE_MAX, patiently};
use crate::format::plain;
use crate::out::say;

/// How `watch --help` ends.
pub(super) const AFTER_HELP: &str = "\
The command runs in sh (Windows: cmd), one at a time and in the order of the changes, with no
input, and with its output on stderr. It finds the event in its environment:
  REPRIEVE_EVENT                   noticed, changed, started, withdrawn or completed
  REPRIEVE_EVENT_ID                what `reprieve events approve` takes
  REPRIEVE_EVENT_TYPE              Preempt, Terminate, Reboot and so on, as --type takes it
  REPRIEVE_EVENT_STATUS            Scheduled or Started
  REPRIEVE_EVENT_SOURCE            Platform or User
  REPRIEVE_EVENT_RESOURCES         the VMs it will happen to, with commas between them
  REPRIEVE_EVENT_NOT_BEFORE        when it may begin, as 2026-04-11T22:26:58Z; else blank
  REPRIEVE_EVENT_SECONDS_LEFT      until then; 0 when it may begin now, blank when it is over
  REPRIEVE_EVENT_DURATION_SECONDS  how long the VM is interrupted; blank when that is unknown
  REPRIEVE_EVENT_DESCRIPTION       words for people
  REPRIEVE_EVENT_VM                what this VM is called
  REPRIEVE_EVENT_WHOSE             this or, with --all, rest
  REPRIEVE_EVENT_JSON              all of it, as --json prints it
What is too long for an environment is blank there.
What stands when the watch begins is told as noticed or started, so the command must bear being
run again for it.

Durations are a number and a unit: 500ms, 10s, 5m, 1h.
SIGTERM or SIGINT (Ctrl-C) ends the watch when the running command has ended, which is waited for
up to 60s; the second one ends both at once.
Exit codes: 0 stopped; 1 failed, or ended at once; 2 wrong usage or settings.
Data goes to stdout, all else to stderr.";

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct WatchArgs {
    /// Prints what stands now, and ends
    #[arg(long, conflicts_with = "exec")]
    pub(super) once: bool,

    /// Also the events of the rest of this VM's set
    #[arg(long)]
    pub(super) all: bool,

    /// Only events of these types, with commas between them [default: all, also those not known yet]
    #[arg(long = "type", value_name = "TYPES", value_delimiter = ',', value_parser = event_type)]
    types: Vec<EventType>,

    /// Prints JSON, an object per line
    #[arg(long)]
    pub(super) json: bool,

    /// Runs a command for each change that is printed; see below
    ///
    /// Its failure is said on stderr, and does not end the watch.
    #[arg(long, value_name = "COMMAND")]
    pub(super) exec: Option<String>,

    /// How long a run of the command may take [default: as long as it likes]
    ///
    /// Then it is ended, and has failed. Without a limit one that hangs keeps those for later changes waiting, which
    /// is said; but a limit that fits a Freeze would cut short the drain for a Redeploy that is days ahead.
    #[arg(long, value_name = "DURATION", value_parser = crate::values::some_time, requires = "exec")]
    pub(super) exec_timeout: Option<Duration>,

    /// Approves an event when the command for its being noticed has succeeded
    ///
    /// It then begins at once instead of at its time. Only events of this VM alone are approved; never a Preempt, which
    /// would only come sooner.
    #[arg(long, requires = "exec")]
    pub(super) approve_after_exec: bool,

    /// Approves also events that other VMs share, which begin on all of them
    #[arg(long, requires = "approve_after_exec")]
    pub(super) approve_shared: bool,

    #[command(flatten)]
    pub(super) at: AtArgs,
}

impl WatchArgs {
    /// Whether this is a change to be told.
    pub(super) fn wants(&self, change: &EventChange) -> bool {
        (self.all || change.whose == Whose::This)
            && (self.types.is_empty() || self.types.contains(&change.event.event_type))
    }
}

fn event_type(text: &str) -> Result<EventType, String> {
    let known = EventType::KNOWN.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(text.trim()));
    known.ok_or_else(|| {
        let names = EventType::KNOWN.map(|known| known.as_str().to_owned()).join(", ");
        format!("there is no such type of event; there are {names}")
    })
}

/// How long an answer is waited for: the first request of a VM enables the service, which takes up to two minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const WITHIN: Duration = Duration::from_secs(130);

pub(super) async fn once(args: &WatchArgs) -> Result<()> {
    let at = args.at.read()?;
    let fault = RefCell::new(None);
    let asked = async {
        let events = patiently(WITHIN, async |left| {
            let answer = at.client.answer(left).await;
            *fault.borrow_mut() = answer.as_ref().err().map(|error| error.message().to_owned());
            answer
        });
        // Both at once: it is the request for events that enables the service.
        tokio::try_join!(at.vm(WITHIN), events)
    };
    let (vm, answer) = told_when_slow(&at, &fault, asked).await?;
    // To somebody who has seen nothing before, what stands is what has changed.
    let changes = Standing::default().update(&answer, &vm);
    let wanted: Vec<_> = changes.iter().filter(|change| args.wants(change)).collect();
    let printer = Printer::new(args.json, args.all)?;
    for change in &wanted {
        printer.print(&Told::new(change, &vm))?;
    }
    if wanted.is_empty() {
        let whom = if args.all { "the set of " } else { "" };
        say(&plain(&format!("nothing is planned for {whom}{vm}")));
    }
    printer.finish().await
}

/// Says so when there is no answer for a while, and what came instead.
async fn told_when_slow<T>(
    at: &At,
    fault: &RefCell<Option<String>>,
    asked: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        result = &mut asked => return result,
        () = tokio::time::sleep(SILENCE_MAX) => {}
    }
    let address = at.address();
    let why = fault.borrow().as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
    say(&plain(&format!(
        "no answer yet from {address}{why}; it is waited for, because a new Azure VM may need two minutes"
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
        assert!(fault.starts_with("there is no such type of event; there are Freeze, Reboot,"), "{fault}");
        assert!(event_type("").is_err());
    }
}
