//! The control loop: `select!` produces an event, the lifecycle decides, a small function acts.

mod deliveries;
mod draining;
mod interruptions;
mod wake;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use self::wake::Woke;
use super::capacity::AHEAD;
use super::delivery::{DeliveryReport, RunningJob};
use super::drain::Drain;
use super::listen::listen;
use super::monitor::Monitor;
use super::prepare::prepare;
use super::publish::{Publisher, Showing};
use super::rally::{Rallied, Rally};
use super::receiver::{Receiver, ReceiverEvent};
use super::shared::Shared;
use super::stop::Stopping;
use crate::report::{StopReason, Stopped};

use crate::clock::unix_millis;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::interruption::{Action, Event, Lifecycle, Stage};
use crate::interruption::{Agenda, Key};
use crate::notice::{Notice, NoticeId, NoticeKind};
use crate::ports::{Change, InterruptionSource};
use crate::process::in_process;
use crate::watch;

/// How often the worker checks its report for the roster, and the loop shows that it is alive.
const TICK: Duration = Duration::from_secs(1);

type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// The worker's control loop and its state.
pub(super) struct Control {
    shared: Arc<Shared>,
    monitor: Monitor,
    publisher: Publisher,
    life: Lifecycle,
    stopping: Stopping,

    /// Which interruption sources have answered.
    answered: Vec<bool>,
    changes: mpsc::UnboundedReceiver<(usize, Change)>,
    sources: Vec<Arc<dyn InterruptionSource>>,
    _watchers: JoinSet<()>,

    /// The active notices, and when to review them again.
    agenda: Agenda,
    look_again: Option<Instant>,
    /// Approvals that are under way, and marks that are being removed.
    approvals: JoinSet<Option<Result<()>>>,
    /// Waits for the other workers of events for several machines.
    rallying: JoinSet<Rallied>,
    rallies: BTreeMap<Key, (Rally, AbortHandle)>,
    /// The approvals that are under way: the source and the notices of each.
    approving: BTreeMap<Id, (usize, Vec<NoticeId>, AbortHandle)>,

    preparing: Pending<()>,
    receiver: Receiver,
    ticks: Interval,

    guardians: JoinSet<DeliveryReport>,
    /// Writes of deliveries that have ended; the worker does not wait for them.
    epilogues: JoinSet<()>,
    /// Tasks that were given up in this drain and have not ended.
    lingering: JoinSet<()>,
    /// The number of long-running jobs at the last tick.
    slow: usize,
    drain: Option<Drain>,
    deadline: watch::Sender<Option<Deadline>>,

    completed: u64,
    released: u64,
    abandoned: u64,
    budget_left: Duration,
    /// A second stop was requested.
    gave_up: bool,
}

impl Control {
    pub(super) fn new(
        shared: Arc<Shared>,
        monitor: Monitor,
        publisher: Publisher,
        sources: Vec<Arc<dyn InterruptionSource>>,
        stopping: Stopping,
    ) -> Self {
        let (tell, changes) = mpsc::unbounded_channel();
        let answered = vec![false; sources.len()];
        let mut watchers = JoinSet::new();
        for (number, source) in sources.iter().enumerate() {
            watchers.spawn(in_process(listen(number, Arc::clone(source), tell.clone())));
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            receiver: Receiver::new(Arc::clone(&shared)),
            shared,
            monitor,
            publisher,
            life: Lifecycle::new(),
            stopping,
            answered,
            changes,
            sources,
            _watchers: watchers,
            agenda: Agenda::default(),
            look_again: None,
            approvals: JoinSet::new(),
            rallying: JoinSet::new(),
            rallies: BTreeMap::new(),
            approving: BTreeMap::new(),
            preparing: None,
            ticks,
            guardians: JoinSet::new(),
            epilogues: JoinSet::new(),
            lingering: JoinSet::new(),
            slow: 0,
            drain: None,
            deadline: watch::Sender::new(None),
            completed: 0,
            released: 0,
            abandoned: 0,
            budget_left: Duration::ZERO,
            gave_up: false,
        }
    }

    /// Runs the loop until the worker has stopped.
    pub(super) async fn run(mut self) -> Stopped {
        self.answered_perhaps();
        loop {
            let woke = self.wake().await;
            let silent = self.monitor.last_beat().elapsed();
            self.monitor.beat();
            self.act_on(woke, silent);
            self.drained_perhaps();
            self.review();
            if self.life.stage() == Stage::Stopped {
                return self.end().await;
            }
            if self.life.stage() == Stage::Start {
                let (held, unseen) = (self.guardians.len(), self.guardians.len() > self.shared.roll.len());
                self.receiver.receive_if_due(held, self.slow, unseen);
            }
        }
    }

    fn act_on(&mut self, woke: Woke, silent: Duration) {
        match woke {
            Woke::Stop => {
                let notice = Notice::now("stop", NoticeKind::Signal);
                let deadline = Deadline::of(&notice, self.shared.settings.budget);
                self.decide(Event::StopRequested, Some((&notice, deadline)));
            }
            Woke::Change(source, Change::Answered) => {
                self.answered[source] = true;
                self.answered_perhaps();
            }
            Woke::Change(source, Change::Noticed(notice)) => self.noticed(source, notice),
            Woke::Change(source, Change::Over(id, ending)) => self.over((source, id), ending),
            Woke::Prepared => {
                self.preparing = None;
                self.decide(Event::Prepared, None);
            }
            Woke::Receiver(ReceiverEvent::Received(received)) => self.received(received),
            Woke::Receiver(ReceiverEvent::Arrived) => self.receiver.hurry(),
            // A receive that is due begins after every event.
            Woke::Receiver(ReceiverEvent::Due) => {}
            Woke::Ended(ended) => self.ended(ended),
            Woke::Approved(task, said) => self.approved(task, said),
            Woke::Rallied(task, how) => self.rallied(task, how),
            // After every event the loop checks whether the drain has ended and whether a notice is
            // due.
            Woke::Stilled | Woke::Review => {}
            Woke::HardMark => {
                if self.drain.as_mut().is_none_or(|drain| drain.is_hard(silent)) {
                    self.abandon();
                }
            }
            Woke::Tick => {
                self.slow = self
                    .shared
                    .roll
                    .cards(|job| job.runs_longer_than(AHEAD))
                    .into_iter()
                    .filter(|slow| *slow)
                    .count();
                self.publish();
            }
        }
    }

    /// Passes an event to the lifecycle and performs the action that it returns. `drain` is the
    /// notice and the deadline of a drain that may begin.
    fn decide(&mut self, event: Event, drain: Option<(&Notice, Deadline)>) {
        let before = self.life.stage();
        let action = match self.life.on(event) {
            Ok(action) => action,
            Err(illegal) => {
                // A bug in this loop. Ignoring the event keeps the held messages guarded.
                tracing::error!(%illegal, "the worker's lifecycle refused an event");
                return;
            }
        };
        let after = self.life.stage();
        if before != after {
            tracing::info!(from = before.as_str(), to = after.as_str(), "stage");
            self.monitor.enter(after);
        }
        match action {
            Action::Wait | Action::Exit => {}
            Action::Recover => self.answered_perhaps(),
            Action::Prepare => self.preparing = Some(Box::pin(prepare(Arc::clone(&self.shared)))),
            Action::Fetch => self.receiver.hurry(),
            Action::Drain => self.begin_drain(drain),
            Action::Tighten => self.tighten(drain),
            Action::Abandon => {
                self.gave_up = true;
                self.abandon();
            }
        }
        if before != after {
            self.publish();
        }
    }

    /// Leaves Recover once every source has answered; at once where they have answered before.
    fn answered_perhaps(&mut self) {
        if self.life.stage() == Stage::Recover && self.answered.iter().all(|answered| *answered) {
            self.decide(Event::Answered, None);
        }
    }

    fn publish(&mut self) {
        self.publisher.publish(Showing {
            stage: self.life.stage(),
            completed: self.completed,
            in_flight: self.shared.roll.cards(RunningJob::in_flight),
            notices: self.agenda.standing(),
            deferred: self.shared.deferred.shown(unix_millis()),
            last_drain: self.monitor.last_drain(),
        });
    }

    async fn end(mut self) -> Stopped {
        if !self.gave_up {
            self.publisher.withdraw().await;
        }
        let reason = if self.gave_up { StopReason::Abandoned } else { StopReason::Drained };
        Stopped {
            reason,
            completed: self.completed,
            released: self.released,
            abandoned: self.abandoned,
            budget_left: self.budget_left,
        }
    }
}
