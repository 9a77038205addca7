//! `reprieve events watch`: each change of an event as it comes, a command for it, and an approval after the command.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use reprieve::ports::InterruptionSource as _;
use reprieve::{Error, ErrorKind, NoticeId, Result};
use reprieve_azure::scheduled_events::document::{Event, EventStatus};
use reprieve_azure::scheduled_events::{Changes, EventChange, Watcher, What, Whose};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

use super::approve::{Allowed, Refusal, refusal_when_ready};
use super::change::Told;
use super::exec::{Hook, Ran};
use super::printer::Printer;
use super::service::Silence;
use super::watch::WatchArgs;
use crate::format::plain;
use crate::out::say;

/// How long a stop waits for the running command: less than the 90 s after which systemd kills.
const STOP_MAX: Duration = Duration::from_secs(60);

/// How long a stop waits for whoever reads the output.
const WRITTEN_MAX: Duration = Duration::from_secs(1);

/// How long an approval is tried: longer than the 70 s for which the service may be away to be updated. Nothing waits
/// for it, and an event that is not approved begins by itself.
const APPROVE_MAX: Duration = Duration::from_secs(120);

/// How often it is looked whether the service still answers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &WatchArgs) -> Result<()> {
    let stop = reprieve::stop_signal()?;
    let at = args.at.read()?;
    // At once, because it is the first request for events that enables the service.
    let watcher = Watcher::spawn(at.client.clone(), at.vm_name.clone());
    let mut stop = std::pin::pin!(stop);
    let vm = tokio::select! {
        vm = at.vm_at_last() => vm,
        _signal = &mut stop => return Ok(()),
    };
    let mut looks = interval(LOOK_EVERY);
    // After the VM has been frozen, one look is enough.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let whom = if args.all { "the set of " } else { "" };
    say(&plain(&format!("watching the events of {whom}{vm} at {}", at.address())));
    let mut watching = Watching {
        changes: watcher.changes(),
        lost: false,
        hook: args.exec.as_ref().map(|command| Hook::new(command, args.exec_timeout)),
        printer: Printer::new(args.json, args.all)?,
        watcher: Arc::new(watcher),
        approvals: JoinSet::new(),
        silence: Silence::of(at.address()),
        looks,
        standing: HashMap::new(),
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
    // Somebody who has not read by now what was printed before the end will not be waited for.
    let written = timeout(WRITTEN_MAX, watching.printer.finish()).await.unwrap_or(Ok(()));
    ended.and(written)
}

struct Watching<'a> {
    args: &'a WatchArgs,
    vm: String,
    watcher: Arc<Watcher>,
    changes: Changes,
    lost: bool,
    printer: Printer,
    hook: Option<Hook>,
    approvals: JoinSet<Approval>,
    silence: Silence,
    looks: Interval,
    /// This VM's events as they are now, which is later than when their commands began.
    standing: HashMap<NoticeId, Event>,
}

/// Something that happened.
enum Happened {
    Changed(EventChange),
    /// No change will ever be told again.
    Lost,
    Ran(Ran),
    Approved(Approval),
    /// It is time to see whether the service still answers.
    Looked,
}

/// An approval that was tried.
struct Approval {
    what: String,
    result: Result<()>,
}

impl Watching<'_> {
    /// Prints and runs until nobody reads any more. Nothing is lost by dropping it: what happened is acted upon at once.
    async fn watch(&mut self) -> Result<()> {
        loop {
            match self.next().await {
                Happened::Changed(change) => self.changed(&change)?,
                Happened::Lost => {
                    let message = "the watch has ended by a fault of its own; start it again";
                    return Err(Error::new(ErrorKind::Internal, "watch events", message));
                }
                Happened::Ran(ran) => self.ran(&ran),
                Happened::Approved(approval) => approved(&approval),
                Happened::Looked => {
                    self.silence.look(&self.watcher.stats()).iter().for_each(|line| say(line));
                }
            }
            if self.printer.unread() && self.hook.is_none() {
                return Ok(());
            }
        }
    }

    /// Waits for what is under way; begins nothing but the approval that the running command was for.
    async fn finish(&mut self) -> Result<()> {
        // From here on, the first one has ended the watch and this would be the second.
        let mut again = std::pin::pin!(reprieve::stop_signal()?);
        let forgotten = self.hook.as_mut().map_or(0, Hook::forget_waiting);
        if forgotten > 0 {
            let changes =
                if forgotten == 1 { "1 change has".to_owned() } else { format!("{forgotten} changes have") };
            say(&format!("told to stop; {changes} not had the command run"));
        }
        if !self.is_running() && self.approvals.is_empty() {
            return Ok(());
        }
        say(&format!("told to stop; waiting for what is under way, at most {} s", STOP_MAX.as_secs()));
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
                    let message = "told to stop twice, so it was ended";
                    return Err(Error::new(ErrorKind::Internal, "wait for the command", message));
                }
            };
            match happened {
                Happened::Changed(change) => self.keep(&change),
                Happened::Lost | Happened::Looked => {}
                Happened::Ran(ran) => self.ran(&ran),
                Happened::Approved(approval) => approved(&approval),
            }
        }
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.hook.as_ref().is_some_and(Hook::is_running)
    }

    /// What happens next. Cancel-safe, as each of its parts is.
    async fn next(&mut self) -> Happened {
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
                change.map_or(Happened::Lost, Happened::Changed)
            }
            ran = ended => Happened::Ran(ran),
            _ = looks.tick() => Happened::Looked,
            // What a worker would be told is kept for it, so it would pile up here.
            _ = watcher.next() => Happened::Looked,
            Some(Ok(approval)) = approvals.join_next() => Happened::Approved(approval),
        }
    }

    fn changed(&mut self, change: &EventChange) -> Result<()> {
        self.keep(change);
        if !self.args.wants(change) {
            return Ok(());
        }
        let told = Told::new(change, &self.vm);
        self.printer.print(&told)?;
        if let Some(hook) = &mut self.hook {
            let name = told.name();
            if hook.push(told) {
                say(&format!("the command for {name} waits until the one before it has ended"));
            }
        }
        Ok(())
    }

    fn keep(&mut self, change: &EventChange) {
        match (change.whose, change.what.is_over()) {
            (Whose::This, false) => drop(self.standing.insert(change.id(), change.event.clone())),
            (Whose::This, true) => drop(self.standing.remove(&change.id())),
            (Whose::Rest, _) => {}
        }
    }

    fn ran(&mut self, ran: &Ran) {
        let Ran { told, result } = ran;
        match result {
            Err(why) => say(&format!("the command for {} {why}", told.name())),
            Ok(())
                if self.args.approve_after_exec
                    && told.what == What::Noticed
                    && told.whose == Whose::This =>
            {
                self.approve(told);
            }
            Ok(()) => {}
        }
    }

    /// Approves the event that was told of, as it is now, if it still waits to begin.
    fn approve(&mut self, told: &Told) {
        let id = NoticeId::new(&told.id);
        let Some(event) = self.standing.get(&id) else { return };
        if event.event_status == EventStatus::Started {
            return;
        }
        let what = plain(&format!("{} {}", told.event_type, told.id));
        let allowed = Allowed { shared: self.args.approve_shared, surrender: false };
        if let Some(refusal) = refusal_when_ready(&told.event_type, event, &self.vm, allowed) {
            let cure = if refusal == Refusal::Shared { "; --approve-shared approves it for all" } else { "" };
            say(&format!("not approved: {what} {}{cure}", refusal.words()));
            return;
        }
        let watcher = Arc::clone(&self.watcher);
        self.approvals.spawn(async move {
            let result = watcher.acknowledge(&[id], APPROVE_MAX).await;
            Approval { what, result }
        });
    }
}

fn approved(Approval { what, result }: &Approval) {
    match result {
        Ok(()) => say(&format!("approved {what}")),
        Err(error) => say(&format!("not approved: {what}, which will begin by itself: {}", error.message())),
    }
}
