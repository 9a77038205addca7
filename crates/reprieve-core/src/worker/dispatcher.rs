//! The worker's one loop: `select!` produces an event, the actor that owns the event decides, and
//! the dispatcher carries the decision out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::deliveries::{Deliveries, TaskEnded};
use super::delivery::{DeliveryReport, Outcome, Registry};
use super::drain::Drains;
use super::interruptions::{Decision, InterruptionEvent, Interruptions};
use super::janitor::Janitor;
use super::receiver::{Received, Receiver, ReceiverEvent};
use super::reporter::{Reporter, Showing};
use super::shared::Shared;
use super::stalls::Stalls;
use super::stop::Stopping;
use super::stuck::StuckSlots;
use crate::clock::unix_millis;
use crate::deadline::Deadline;
use crate::dependency::{DependencyHandle, DependencyReport};
use crate::healing::{self, HealingAction, Layer};
use crate::ids::JobId;
use crate::interruption::{Action, DrainOrder, Event, Lifecycle, Stage, State};
use crate::ledger::Failure;
use crate::notice::{Notice, NoticeKind};
use crate::ports::InterruptionSource;
use crate::report::{StopReason, Stopped};
use crate::retry::{Patience, may_pass, persist};
use crate::telemetry::ByDependency;

/// How often the worker checks its report for the roster, and the loop shows that it is alive.
const TICK: Duration = Duration::from_secs(1);

/// The longest time for one try of Resume's preparations.
const PREPARE_TRY: Duration = Duration::from_secs(30);

/// How often a lasting failure of Resume's preparations is logged.
const PREPARE_ROUND: Duration = Duration::from_secs(10);

/// How long the end of a worker waits for the ledger while nothing is written into it, and in all, where its drain has
/// left so much of its budget.
const LEDGER_IDLE: Duration = Duration::from_secs(1);
const LAST_ENTRIES: Duration = Duration::from_secs(5);

/// The worker's loop and its actors.
pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    lifecycle: Lifecycle,
    stopping: Stopping,
    interruptions: Interruptions,
    preparing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    receiver: Receiver,
    deliveries: Deliveries,
    drains: Drains,
    reporter: Reporter,
    janitor: Janitor,
    stalls: Stalls,
    stuck: StuckSlots,
    ticks: Interval,
    /// The jobs that were held when the drain under way began, for the ledger.
    held_at_drain: Vec<JobId>,
    /// A second stop was requested.
    gave_up: bool,
    /// The worker ends because of stuck slots.
    is_to_restart: bool,
}

/// An event that woke the loop.
enum LoopEvent {
    Stop,
    Interruption(InterruptionEvent),
    HardMark,
    Delivery(TaskEnded),
    /// A drain's report is stored.
    Stored,
    Prepared,
    Receiver(ReceiverEvent),
    Tick,
}

impl Dispatcher {
    pub(super) fn new(
        shared: Arc<Shared>,
        registry: Arc<Registry>,
        reporter: Reporter,
        sources: Vec<Arc<dyn InterruptionSource>>,
        stopping: Stopping,
    ) -> Self {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            lifecycle: Lifecycle::new(),
            stopping,
            interruptions: Interruptions::new(Arc::clone(&shared), sources),
            preparing: None,
            receiver: Receiver::new(Arc::clone(&shared)),
            deliveries: Deliveries::new(Arc::clone(&shared), registry),
            drains: Drains::new(Arc::clone(&shared)),
            reporter,
            janitor: Janitor::new(Arc::clone(&shared)),
            stalls: Stalls::default(),
            stuck: StuckSlots::new(Arc::clone(&shared)),
            ticks,
            held_at_drain: Vec::new(),
            gave_up: false,
            is_to_restart: false,
            shared,
        }
    }

    /// Runs the loop until the worker has stopped.
    pub(super) async fn run(mut self) -> Stopped {
        self.leave_recover();
        loop {
            let event = self.next().await;
            self.drains.note_silence(self.reporter.beat(self.shared.is_stuck()));
            self.act_on(event);
            self.end_drain();
            let state = (!self.interruptions.is_idle()).then(|| self.state());
            let decisions = self.interruptions.review(state.as_ref());
            self.carry_out(decisions);
            match self.stage() {
                Stage::Stopped => return self.end().await,
                Stage::Start => self.receiver.receive_if_due(self.deliveries.held()),
                Stage::Recover | Stage::Resume | Stage::Shutdown => {}
            }
        }
    }

    fn stage(&self) -> Stage {
        self.lifecycle.stage()
    }

    /// Waits for the next event. Every arm is cancel-safe: channels, join sets, timers, and futures
    /// that are kept in `self` and polled again.
    async fn next(&mut self) -> LoopEvent {
        let (may_receive, held) = (self.stage() == Stage::Start, self.deliveries.held());
        tokio::select! {
            biased;
            () = self.stopping.requested() => LoopEvent::Stop,
            event = self.interruptions.next() => LoopEvent::Interruption(event),
            () = self.drains.hard_mark() => LoopEvent::HardMark,
            ended = self.deliveries.next() => LoopEvent::Delivery(ended),
            () = self.reporter.stored() => LoopEvent::Stored,
            () = ready(self.preparing.as_mut()) => LoopEvent::Prepared,
            event = self.receiver.next(may_receive, held) => LoopEvent::Receiver(event),
            _ = self.ticks.tick() => LoopEvent::Tick,
        }
    }

    fn act_on(&mut self, event: LoopEvent) {
        match event {
            LoopEvent::Stop => {
                let (kind, budget) = (NoticeKind::Signal, self.shared.settings.budget);
                let deadline = Deadline::of(&Notice::now("stop", kind.clone()), budget);
                self.decide(Event::StopRequested(DrainOrder { kind, deadline, lead: None }));
            }
            LoopEvent::Interruption(event) => {
                let state = self.state();
                let decisions = self.interruptions.take(event, &state);
                self.carry_out(decisions);
                self.publish();
            }
            LoopEvent::HardMark => {
                if self.drains.is_hard() {
                    self.abandon();
                }
            }
            LoopEvent::Delivery(TaskEnded::Guardian(report)) => self.delivery_ended(report),
            // After every event the dispatcher checks whether the drain has ended, and lets the
            // active notices be reviewed.
            LoopEvent::Delivery(TaskEnded::Other) | LoopEvent::Stored => {}
            LoopEvent::Prepared => {
                self.preparing = None;
                self.decide(Event::Prepared);
            }
            LoopEvent::Receiver(ReceiverEvent::Received(received)) => self.received(received),
            LoopEvent::Receiver(ReceiverEvent::Arrived) => self.receiver.hurry(),
            // A receive that is due begins after every event.
            LoopEvent::Receiver(ReceiverEvent::Due) => {}
            LoopEvent::Tick => {
                self.receiver.count_slow_jobs();
                self.stalls.look(&self.shared);
                self.look_for_stuck_slots();
                self.shared.computing.look();
                self.shared.ask_who_else_works();
                self.publish();
                if self.deliveries.held() > 0 {
                    self.shared.ask_for_cancels();
                }
                if self.stage() == Stage::Start {
                    self.janitor.work(self.deliveries.held() == 0);
                }
            }
        }
    }

    /// Replaces stuck slots. Where that does not help, the worker releases everything and ends, without waiting for their
    /// threads: only the end of the process stops those.
    fn look_for_stuck_slots(&mut self) {
        let may_stop = matches!(self.stage(), Stage::Recover | Stage::Resume | Stage::Start);
        let Some(why) = self.stuck.look().filter(|_| may_stop) else { return };
        self.is_to_restart = true;
        let worker = self.shared.worker.as_str();
        self.shared.books.healing(&HealingAction::new(Layer::Worker, healing::Action::Restart, worker, why));
        let (kind, budget) = (NoticeKind::Restart, self.shared.settings.budget);
        let deadline = Deadline::of(&Notice::now("restart", kind.clone()), budget);
        self.decide(Event::StopRequested(DrainOrder { kind, deadline, lead: None }));
    }

    fn received(&mut self, received: Received) {
        let (batch, deliveries) = self.receiver.received(received);
        for delivery in deliveries {
            self.drains.arrived();
            self.deliveries.guard(delivery, batch, self.drains.deadline());
        }
    }

    fn delivery_ended(&mut self, report: Option<Box<DeliveryReport>>) {
        let Some(mut report) = self.deliveries.ended(report, self.drains.is_under_way()) else { return };
        if let Some(job) = report.blocks.take() {
            self.stuck.watch(job);
        }
        if report.too_long {
            self.receiver.rest();
        }
        if report.over_limit {
            self.receiver.note_return();
        } else if let Some(no_slot) = report.no_slot {
            self.receiver.note_without_slot(no_slot);
        } else {
            self.receiver.note_taken();
        }
        self.drains.note(&report);
        if let Some(failure) = report.failure {
            self.shared.books.failed(Failure {
                job: failure.job,
                kind: report.kind.into_owned(),
                delivery: failure.delivery,
                reason: failure.reason,
                poisoned: report.outcome == Outcome::DeadLettered,
                worker: self.shared.worker.clone(),
                at_unix_ms: unix_millis(),
            });
        }
    }

    fn carry_out(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::Answered => self.leave_recover(),
                Decision::Drain(order) => self.decide(Event::DrainOrdered(order)),
                Decision::CallOff => self.decide(Event::CalledOff),
                Decision::EndRest => self.receiver.end_rest(),
            }
        }
    }

    /// Passes an event to the lifecycle and performs the action that it returns.
    fn decide(&mut self, event: Event) {
        let before = self.stage();
        let action = match self.lifecycle.on(event) {
            Ok(action) => action,
            Err(illegal) => {
                // A bug in this loop. Ignoring the event keeps the held messages guarded.
                tracing::error!(%illegal, "illegal transition in the worker's lifecycle; ignored the event");
                return;
            }
        };
        let after = self.stage();
        if before != after {
            tracing::info!(from = before.as_str(), to = after.as_str(), "stage changed");
            self.reporter.enter(after);
            if before == Stage::Shutdown && after != Stage::Stopped {
                self.shared.books.worked_on();
            }
        }
        match action {
            Action::Wait | Action::Exit => {}
            Action::Recover => self.leave_recover(),
            Action::Prepare => self.preparing = Some(Box::pin(prepare(Arc::clone(&self.shared)))),
            Action::Fetch => self.receiver.hurry(),
            Action::Drain(order) => {
                // Nothing is prepared or awaited any more. A receive under way continues, because
                // it may have leased messages.
                self.preparing = None;
                self.receiver.stop();
                self.janitor.stop();
                self.held_at_drain = self.shared.running.map(|running| running.job().clone());
                self.drains.begin(self.reporter.queue(), &order, self.deliveries.held());
            }
            Action::Tighten(order) => self.drains.tighten(&order),
            Action::EndPatience => self.drains.end_patience(),
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
    fn leave_recover(&mut self) {
        if self.stage() == Stage::Recover && self.interruptions.all_have_answered() {
            self.decide(Event::Answered);
        }
    }

    /// Abandons what has not ended by the hard mark.
    fn abandon(&mut self) {
        while let Some(TaskEnded::Guardian(report)) = self.deliveries.ended_already() {
            self.delivery_ended(report);
        }
        let (left, running) = self.deliveries.abandon(self.receiver.is_receiving());
        self.receiver.abandon();
        self.drains.abandon(left, running);
    }

    /// Ends the drain once nothing is held, nothing runs, and nothing can arrive any more.
    fn end_drain(&mut self) {
        let (held, running) = (self.deliveries.held(), self.deliveries.still_running());
        if held > 0 || running > 0 || self.receiver.is_receiving() {
            return;
        }
        let Some(report) = self.drains.end() else { return };
        self.reporter.drained(&self.shared, report, std::mem::take(&mut self.held_at_drain));
        self.shared.books.look();
        if self.stage() != Stage::Stopped {
            self.decide(Event::Drained);
        }
    }

    /// Returns the worker's state, as far as it matters to the active notices.
    fn state(&self) -> State {
        let holds_nothing = self.stage() == Stage::Shutdown && !self.drains.is_under_way();
        State {
            now: Instant::now(),
            budget: self.shared.settings.budget,
            // The machine may go: nothing is held, nothing can arrive, and the drain's report is
            // stored.
            drained: holds_nothing && self.reporter.has_stored_all(),
            leases_end: self.receiver.leases_end(self.deliveries.held()),
        }
    }

    fn publish(&mut self) {
        let dependencies: Vec<_> = self.shared.dependencies.iter().map(DependencyHandle::shown).collect();
        let states = |it| DependencyReport::STATES.map(|state| (it, state));
        for (dependency, state) in dependencies.iter().flat_map(states) {
            let labels = ByDependency { dependency: dependency.name.clone(), state };
            let gauge = self.shared.telemetry.dependency_state.get_or_create(&labels);
            gauge.set(i64::from(dependency.shown().0 == state));
        }
        let in_flight = self.shared.running.map(|job| job.in_flight(&self.shared));
        self.reporter.publish(Showing {
            stage: self.lifecycle.stage(),
            completed: self.deliveries.completed(),
            intervals: self.shared.intervals(&in_flight),
            in_flight,
            machine: self.interruptions.machine(),
            notices: self.interruptions.shown(),
            deferred: self.shared.deferred.shown(unix_millis()),
            limits: self.shared.kinds.iter().filter_map(|kind| kind.limited()).collect(),
            dependencies,
            machine_state: self.shared.pressure.shown(self.shared.settings.on_pressure),
        });
    }

    async fn end(mut self) -> Stopped {
        if self.gave_up {
            self.reporter.end_hurriedly().await;
        } else {
            let within = self.drains.budget_left().clamp(LEDGER_IDLE, LAST_ENTRIES);
            tokio::join!(self.reporter.withdraw(), self.shared.books.flush(LEDGER_IDLE, within));
            for slots in self.shared.kinds.iter().filter_map(|kind| kind.fleet.as_ref()) {
                slots.end().await;
            }
            self.shared.states.end(&self.shared.jobs, self.shared.settings.budget).await;
        }
        Stopped {
            reason: match (self.gave_up, self.is_to_restart) {
                (true, _) => StopReason::Abandoned,
                (false, true) => StopReason::Stuck,
                (false, false) => StopReason::Drained,
            },
            completed: self.deliveries.completed(),
            released: self.drains.released(),
            abandoned: self.deliveries.abandoned(),
            budget_left: self.drains.budget_left(),
            missing_entries: self.shared.books.missing(),
        }
    }
}

/// Resume's preparations: waits until the store answers, releases the messages that dead workers
/// held, makes what the jobs share, and waits for the first look at the machine, before anything is received. Tries
/// without limit and logs why it waits.
async fn prepare(shared: Arc<Shared>) {
    loop {
        let round = Instant::now() + PREPARE_ROUND;
        let patience = Patience::calm(PREPARE_TRY, round);
        match persist("recover", patience, may_pass, || shared.store.queue.recover()).await {
            Ok(0) => break,
            Ok(released) => {
                tracing::info!(released, "released the messages of dead workers");
                break;
            }
            Err(error) => {
                tracing::error!(%error, "the store is not usable; the worker receives no messages until it is");
                // An error that returns at once must not be retried without a pause.
                sleep_until(round).await;
            }
        }
    }
    let concurrency = shared.settings.concurrency;
    shared.states.make(&shared.worker, concurrency, &shared.jobs).await;
    // What is received before it would begin without a regard for the memory that is left.
    shared.pressure.looked().await;
}

/// Awaits the pending future; waits without limit when there is none.
async fn ready<T>(pending: Option<&mut Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}
