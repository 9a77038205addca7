//! The one loop: `select!` produces an event, the lifecycle decides, a small function acts.

mod deliveries;
mod draining;
mod interruptions;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use self::deliveries::Received;
use self::interruptions::Approved;
use super::capacity::AHEAD;
use super::drain::Drain;
use super::fetch::Pace;
use super::listen::listen;
use super::monitor::Monitor;
use super::order::Card;
use super::outcome::Ended;
use super::prepare::prepare;
use super::publish::Publisher;
use super::rally::{Rallied, Rally};
use super::report::{StopReason, Stopped};
use super::shared::Shared;
use super::stop::Stopping;

use crate::deadline::Deadline;
use crate::lifecycle::{Action, Event, Lifecycle, Stage};
use crate::notice::{Notice, NoticeId, NoticeKind};
use crate::policy::Agenda;
use crate::ports::{Change, InterruptionSource};
use crate::retry::bounded;

/// The longest one receive may take. What it leased unheard comes back when the leases end.
const RECEIVE_TRY: Duration = Duration::from_secs(30);

/// How often what the worker does is looked at for the roster, and the loop shows that it lives.
const TICK: Duration = Duration::from_secs(1);

type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Something that woke the loop.
enum Woke {
    Stop,
    Change(usize, Change),
    Prepared,
    Received(Received),
    Ended(Option<Box<Ended>>),
    Stilled,
    Arrived,
    FetchDue,
    HardMark,
    /// Something about the notices that stand may be due.
    Review,
    Approved(Option<Approved>),
    Rallied(NoticeId, Rallied),
    Tick,
}

/// The worker's control loop and what it holds.
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
    /// Receiving failed: an arrival is no reason to try again before the pace says so.
    deaf: bool,

    /// The notices that stand, and when to look at them again.
    agenda: Agenda,
    look_again: Option<Instant>,
    /// Approvals being said, and marks being removed.
    approvals: JoinSet<Option<Approved>>,
    /// Events for several machines whose workers are waited for.
    rallying: JoinSet<(NoticeId, Rallied)>,
    rallies: HashMap<NoticeId, (Rally, AbortHandle)>,
    /// Which approvals are being said.
    approving: Vec<(Vec<NoticeId>, AbortHandle)>,

    preparing: Pending<()>,
    receiving: Pending<Received>,
    arrival: Pending<()>,
    pace: Pace,
    /// Nothing is received until then, because what came last was too long for this machine.
    resting_until: Option<Instant>,
    ticks: Interval,

    guardians: JoinSet<Ended>,
    /// Tasks that were given up in this drain and have not ended.
    lingering: JoinSet<()>,
    /// Running jobs that take long, as of the last tick.
    slow: usize,
    drain: Option<Drain>,
    deadline: watch::Sender<Option<Deadline>>,

    completed: u64,
    released: u64,
    abandoned: u64,
    budget_left: Duration,
    /// A second stop was asked for.
    gave_up: bool,
}

/// Awaits what is there; for ever when nothing is.
async fn ready<T>(pending: &mut Pending<T>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
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
            watchers.spawn(listen(number, Arc::clone(source), tell.clone()));
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            shared,
            monitor,
            publisher,
            life: Lifecycle::new(),
            stopping,
            answered,
            changes,
            sources,
            _watchers: watchers,
            deaf: false,
            agenda: Agenda::default(),
            look_again: None,
            approvals: JoinSet::new(),
            rallying: JoinSet::new(),
            rallies: HashMap::new(),
            approving: Vec::new(),
            preparing: None,
            receiving: None,
            arrival: None,
            pace: Pace::new(),
            resting_until: None,
            ticks,
            guardians: JoinSet::new(),
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

    /// Goes round until the worker is told to end.
    pub(super) async fn run(mut self) -> Stopped {
        self.answered_perhaps();
        loop {
            let woke = self.wake().await;
            self.monitor.beat();
            self.act_on(woke);
            self.drained_perhaps();
            self.review();
            if self.life.stage() == Stage::Stopped {
                return self.end().await;
            }
            self.fetch_perhaps();
        }
    }

    /// Waits for the next thing to happen. Every arm is cancel-safe: channels, a join set, timers, and futures that are
    /// kept in `self` and polled on.
    async fn wake(&mut self) -> Woke {
        let fetch_at = self.room().map(|_| self.fetch_at());
        let hard = self.drain.as_ref().map(|drain| drain.deadline.hard());
        let far = Instant::now() + TICK;
        tokio::select! {
            biased;
            () = self.stopping.requested() => Woke::Stop,
            Some((source, change)) = self.changes.recv() => Woke::Change(source, change),
            () = sleep_until(hard.unwrap_or(far)), if hard.is_some() => Woke::HardMark,
            Some(ended) = self.guardians.join_next() => Woke::Ended(ended.ok().map(Box::new)),
            Some(_) = self.lingering.join_next() => Woke::Stilled,
            () = sleep_until(self.look_again.unwrap_or(far)), if self.look_again.is_some() => Woke::Review,
            Some(approved) = self.approvals.join_next() => Woke::Approved(approved.ok().flatten()),
            Some(Ok((id, how))) = self.rallying.join_next() => Woke::Rallied(id, how),
            () = self.publisher.kept() => Woke::Review,
            () = ready(&mut self.preparing) => Woke::Prepared,
            received = ready(&mut self.receiving) => Woke::Received(received),
            () = ready(&mut self.arrival), if fetch_at.is_some() => Woke::Arrived,
            () = sleep_until(fetch_at.unwrap_or(far)), if fetch_at.is_some() => Woke::FetchDue,
            _ = self.ticks.tick() => Woke::Tick,
        }
    }

    fn act_on(&mut self, woke: Woke) {
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
            Woke::Change(_, Change::Over(id, ending)) => self.over(id, ending),
            Woke::Prepared => {
                self.preparing = None;
                self.decide(Event::Prepared, None);
            }
            Woke::Received(received) => {
                self.receiving = None;
                self.received(received);
            }
            Woke::Ended(ended) => self.ended(ended),
            Woke::Approved(None) => {}
            Woke::Approved(Some(approved)) => self.approved(approved),
            Woke::Rallied(id, how) => self.rallied(&id, how),
            // Whether the drain is over, and what is due about notices, is looked at after every event.
            Woke::Stilled | Woke::Review => {}
            Woke::Arrived => {
                self.arrival = None;
                self.pace.hurry();
            }
            // What is due is done after every event.
            Woke::FetchDue => {}
            Woke::HardMark => self.abandon(),
            Woke::Tick => {
                self.slow = self
                    .shared
                    .roll
                    .cards(|card| card.runs_longer_than(AHEAD))
                    .into_iter()
                    .filter(|slow| *slow)
                    .count();
                self.publish();
            }
        }
    }

    /// Hands an event to the lifecycle and does what it says. `drain` is what a drain would be for, and its end.
    fn decide(&mut self, event: Event, drain: Option<(&Notice, Deadline)>) {
        let before = self.life.stage();
        let action = match self.life.on(event) {
            Ok(action) => action,
            Err(illegal) => {
                // A defect of this loop; ignoring the event keeps what is held guarded.
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
            Action::Fetch => self.pace.hurry(),
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

    /// Leaves Recover once every source has answered, at once where they had before.
    fn answered_perhaps(&mut self) {
        if self.life.stage() == Stage::Recover && self.answered.iter().all(|answered| *answered) {
            self.decide(Event::Answered, None);
        }
    }

    /// How many messages to ask for; `None` while the worker should not receive.
    fn room(&self) -> Option<usize> {
        let rests = self.shared.rules.borrow().conduct.paused;
        let receives = self.life.stage() == Stage::Start && self.receiving.is_none() && !rests;
        let room = if receives { self.shared.capacity(self.slow).room(self.guardians.len()) } else { 0 };
        (room > 0).then_some(room)
    }

    /// Whether nothing is received for a while, whatever arrives.
    fn is_resting(&self) -> bool {
        self.resting_until.is_some_and(|until| until > Instant::now())
    }

    /// When the next receive is due.
    fn fetch_at(&self) -> Instant {
        self.resting_until.map_or(self.pace.next(), |until| self.pace.next().max(until))
    }

    /// Receives when that is due; waits for an arrival meanwhile.
    fn fetch_perhaps(&mut self) {
        let Some(room) = self.room() else { return };
        if Instant::now() >= self.fetch_at() {
            let (queue, lease) = (Arc::clone(&self.shared.store.queue), self.shared.lease());
            let since = Instant::now();
            self.arrival = None;
            self.receiving = Some(Box::pin(async move {
                let deliveries = bounded("receive", RECEIVE_TRY, queue.receive(room, lease)).await;
                Received { since, lease, deliveries }
            }));
        } else if self.arrival.is_none() && !self.deaf && !self.is_resting() {
            let queue = Arc::clone(&self.shared.store.queue);
            self.arrival = Some(Box::pin(async move { queue.arrived().await }));
        }
    }

    fn publish(&mut self) {
        let in_flight = self.shared.roll.cards(Card::in_flight);
        let notices = self.agenda.standing();
        self.publisher.publish(
            self.life.stage(),
            self.completed,
            in_flight,
            notices,
            self.monitor.last_drain(),
        );
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
