//! The loop of `reprieve events watch`: prints each change, runs the command, approves after it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use reprieve::ports::InterruptionSource as _;
use reprieve::{Error, ErrorKind, NoticeId, Result};
use reprieve_azure::scheduled_events::document::{Event, EventStatus};
use reprieve_azure::scheduled_events::{ChangeKind, Changes, EventChange, Scope, Watcher};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

use super::approve::{Allowed, Refusal, refusal_when_ready};
use super::change::ChangeReport;
use super::exec::{Hook, Ran};
use super::printer::Printer;
use super::service::OutageLog;
use super::watch::WatchArgs;
use crate::format::{duration, plain};
use crate::out::print_stderr;
use crate::stderr::Background;

/// The longest wait for the running command at a stop: less than the 90 s after which systemd
/// kills.
const STOP_MAX: Duration = Duration::from_secs(60);

/// The longest wait for the output's reader at a stop.
const WRITTEN_MAX: Duration = Duration::from_secs(1);

/// How long an approval is retried: longer than the 70 s for which an update may stop the service.
/// Nothing waits for it, and an event that is not approved starts at its own time.
const APPROVE_MAX: Duration = Duration::from_secs(120);

/// How often the service's silence is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &WatchArgs) -> Result<()> {
    let stop = reprieve::stop_signal()?;
    let at = args.at.read()?;
    let _stderr = Background::begin()?;
    // At once, because it is the first request for events that enables the service.
    let watcher = Watcher::spawn(at.client.clone(), at.vm_name.clone());
    let mut stop = std::pin::pin!(stop);
    let vm = tokio::select! {
        vm = at.vm_when_known() => vm,
        _signal = &mut stop => return Ok(()),
    };
    let mut looks = interval(LOOK_EVERY);
    // After the VM has been frozen, one look is enough.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let whom = if args.all { "the set of " } else { "" };
    print_stderr(&plain(&format!("watching the events of {whom}{vm} at {}", at.address())));
    let mut watching = Watch {
        changes: watcher.changes(),
        lost: false,
        hook: args.exec.as_ref().map(|command| Hook::new(command, args.exec_timeout)),
        printer: Printer::new(args.json, args.all)?,
        watcher: Arc::new(watcher),
        approvals: JoinSet::new(),
        silence: OutageLog::of(at.address()),
        looks,
        active: HashMap::new(),
        vm,
        args,
    };
    let stopped = tokio::select! {
        ended = watching.watch() => Some(ended),
        _signal = &mut stop => None,
    };
    let ended = match stopped {
        Some(ended) => ended,
        None => watching.finish().await,
    };
    // A reader that is slower than this misses the rest of the output.
    let written = timeout(WRITTEN_MAX, watching.printer.finish()).await.unwrap_or(Ok(()));
    ended.and(written)
}

struct Watch<'a> {
    args: &'a WatchArgs,
    vm: String,
    watcher: Arc<Watcher>,
    changes: Changes,
    lost: bool,
    printer: Printer,
    hook: Option<Hook>,
    approvals: JoinSet<Approval>,
    silence: OutageLog,
    looks: Interval,
    /// This VM's active events in their present state, which may have changed since their commands
    /// started.
    active: HashMap<NoticeId, Event>,
}

/// A cause for the loop to act.
enum LoopEvent {
    Changed(EventChange),
    /// The watcher has ended.
    Lost,
    Ran(Ran),
    Approved(Approval),
    /// It is time to check whether the service still answers.
    Looked,
}

/// An approval that was tried.
struct Approval {
    what: String,
    result: Result<()>,
}

impl Watch<'_> {
    /// Prints changes and runs commands until the output is closed. Cancel-safe: each event is
    /// handled at once.
    async fn watch(&mut self) -> Result<()> {
        loop {
            match self.next().await {
                LoopEvent::Changed(change) => self.changed(&change)?,
                LoopEvent::Lost => {
                    let message = "the watcher ended unexpectedly; start it again";
                    return Err(Error::new(ErrorKind::Internal, "watch events", message));
                }
                LoopEvent::Ran(ran) => self.ran(&ran),
                LoopEvent::Approved(approval) => approved(&approval),
                LoopEvent::Looked => {
                    self.silence.look(&self.watcher.stats()).iter().for_each(|line| print_stderr(line));
                }
            }
            if self.printer.closed() && self.hook.is_none() {
                return Ok(());
            }
        }
    }

    /// Waits for the running command and approvals; starts only the approval that this command
    /// leads to.
    async fn finish(&mut self) -> Result<()> {
        // The first signal ended the watch; this is the second.
        let mut again = std::pin::pin!(reprieve::stop_signal()?);
        let forgotten = self.hook.as_mut().map_or(0, Hook::forget_waiting);
        if forgotten > 0 {
            let changes =
                if forgotten == 1 { "1 change has".to_owned() } else { format!("{forgotten} changes have") };
            print_stderr(&format!("stopping; {changes} not run the command"));
        }
        if !self.is_running() && self.approvals.is_empty() {
            return Ok(());
        }
        print_stderr(&format!(
            "stopping; waiting up to {} for the running command and approvals",
            duration(STOP_MAX)
        ));
        let mut over = std::pin::pin!(sleep(STOP_MAX));
        let mut ending = false;
        while self.is_running() || (!ending && !self.approvals.is_empty()) {
            let happened = tokio::select! {
                happened = self.next() => happened,
                () = &mut over, if !ending => {
                    ending = true;
                    self.hook.iter().for_each(Hook::end_running);
                    continue;
                }
                _signal = &mut again => {
                    let message = "a second signal ended it";
                    return Err(Error::new(ErrorKind::Internal, "wait for the command", message));
                }
            };
            match happened {
                LoopEvent::Changed(change) => self.keep(&change),
                LoopEvent::Lost | LoopEvent::Looked => {}
                LoopEvent::Ran(ran) => self.ran(&ran),
                LoopEvent::Approved(approval) => approved(&approval),
            }
        }
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.hook.as_ref().is_some_and(Hook::is_running)
    }

    /// The next event. Cancel-safe, as each of its parts is.
    async fn next(&mut self) -> LoopEvent {
        let Self { watcher, changes, lost, hook, approvals, looks, .. } = self;
        let ended = async {
            match hook {
                Some(hook) => hook.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = changes.next(), if !*lost => {
                *lost = change.is_none();
                change.map_or(LoopEvent::Lost, LoopEvent::Changed)
            }
            ran = ended => LoopEvent::Ran(ran),
            _ = looks.tick() => LoopEvent::Looked,
            // The notices for a worker are read and dropped, or they would pile up.
            _ = watcher.next() => LoopEvent::Looked,
            Some(Ok(approval)) = approvals.join_next() => LoopEvent::Approved(approval),
        }
    }

    fn changed(&mut self, change: &EventChange) -> Result<()> {
        self.keep(change);
        if !self.args.wants(change) {
            return Ok(());
        }
        let change = ChangeReport::new(change, &self.vm);
        self.printer.print(&change)?;
        if let Some(hook) = &mut self.hook {
            let name = change.name();
            if hook.push(change) {
                print_stderr(&format!("the command for {name} waits for the previous one to end"));
            }
        }
        Ok(())
    }

    fn keep(&mut self, change: &EventChange) {
        match (change.scope, change.kind.has_ended()) {
            (Scope::ThisVm, false) => drop(self.active.insert(change.id(), change.event.clone())),
            (Scope::ThisVm, true) => drop(self.active.remove(&change.id())),
            (Scope::OtherVms, _) => {}
        }
    }

    fn ran(&mut self, ran: &Ran) {
        let Ran { change, result } = ran;
        match result {
            Err(why) => print_stderr(&format!("the command for {} {why}", change.name())),
            Ok(())
                if self.args.approve_after_exec
                    && change.what == ChangeKind::Noticed
                    && change.scope == Scope::ThisVm =>
            {
                self.approve(change);
            }
            Ok(()) => {}
        }
    }

    /// Approves the reported event in its present state, if it has not started.
    fn approve(&mut self, change: &ChangeReport) {
        let id = NoticeId::new(&change.id);
        let Some(event) = self.active.get(&id) else { return };
        if event.event_status == EventStatus::Started {
            return;
        }
        let what = plain(&format!("{} {}", change.event_type, change.id));
        let allowed = Allowed { shared: self.args.approve_shared, surrender: false };
        if let Some(refusal) = refusal_when_ready(&change.event_type, event, &self.vm, allowed) {
            let cure = if refusal == Refusal::Shared { "; --approve-shared approves it for all" } else { "" };
            print_stderr(&format!("not approved: {what} {}{cure}", refusal.reason()));
            return;
        }
        let watcher = Arc::clone(&self.watcher);
        self.approvals.spawn(async move {
            let result = watcher.approve(&[id], APPROVE_MAX).await;
            Approval { what, result }
        });
    }
}

fn approved(Approval { what, result }: &Approval) {
    match result {
        Ok(()) => print_stderr(&format!("approved {what}")),
        Err(error) => print_stderr(&format!(
            "failed to approve {what}, which will start at its own time: {}",
            error.message()
        )),
    }
}
