//! The interruption sources and the active notices: turns changes into decisions for the
//! dispatcher, and into rules for running jobs and held leases.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::approval::{ApprovalEvent, Approvals, Approved};
use super::shared::Shared;
use crate::interruption::{ActiveNotices, DrainOrder, Key, Orders, State, Throttle, Work};
use crate::notice::{Notice, NoticeKind};
use crate::ports::{ActiveNotice, Change, Ending, InterruptionSource};
use crate::process::in_process;
use crate::telemetry::ByKind;

/// How long after a failure the worker listens to a source again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The interruption sources, and the notices that are active.
pub(super) struct Interruptions {
    shared: Arc<Shared>,
    sources: Vec<Arc<dyn InterruptionSource>>,
    /// Which sources have answered.
    answered: Vec<bool>,
    changes: mpsc::UnboundedReceiver<(usize, Change)>,
    _listeners: JoinSet<()>,
    active: ActiveNotices,
    /// When to review the active notices at the latest.
    review_at: Option<Instant>,
    approvals: Approvals,
    /// This machine's name in the notices; empty before the first.
    machine: String,
}

/// An event of the interruptions.
pub(super) enum InterruptionEvent {
    /// A source reports a change.
    Change(usize, Change),
    /// An active notice may call for something.
    Review,
    Approval(ApprovalEvent),
}

/// The dispatcher's next action.
pub(super) enum Decision {
    /// Every source has answered.
    Answered,
    /// Drain, or tighten the drain under way.
    Drain(DrainOrder),
    /// No active notice calls for a drain any more.
    CallOff,
    /// Jobs of any length may begin again.
    EndRest,
}

impl Interruptions {
    pub(super) fn new(shared: Arc<Shared>, sources: Vec<Arc<dyn InterruptionSource>>) -> Self {
        let (report, changes) = mpsc::unbounded_channel();
        let mut listeners = JoinSet::new();
        for (number, source) in sources.iter().enumerate() {
            listeners.spawn(in_process(listen(number, Arc::clone(source), report.clone())));
        }
        Self {
            answered: vec![false; sources.len()],
            sources,
            changes,
            _listeners: listeners,
            active: ActiveNotices::default(),
            review_at: None,
            approvals: Approvals::new(Arc::clone(&shared)),
            machine: String::new(),
            shared,
        }
    }

    /// Waits for the next event. Cancel-safe: a channel, a timer and join sets.
    pub(super) async fn next(&mut self) -> InterruptionEvent {
        let (review_at, far) = (self.review_at, Instant::now() + Duration::from_hours(1));
        tokio::select! {
            biased;
            Some((source, change)) = self.changes.recv() => InterruptionEvent::Change(source, change),
            () = sleep_until(review_at.unwrap_or(far)), if review_at.is_some() => InterruptionEvent::Review,
            ended = self.approvals.next() => InterruptionEvent::Approval(ended),
        }
    }

    /// Reports whether every source has answered.
    pub(super) fn all_have_answered(&self) -> bool {
        self.answered.iter().all(|answered| *answered)
    }

    /// Reports whether no notice is active and no rule of one applies.
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty() && self.shared.rules.get().throttle == Throttle::default()
    }

    /// Returns this machine's name; empty while it is not known.
    pub(super) fn machine(&self) -> &str {
        &self.machine
    }

    /// Returns the active notices, for reports.
    pub(super) fn shown(&self) -> Vec<ActiveNotice> {
        self.active.shown()
    }

    /// Takes an event. `state` is the worker's state at this time.
    pub(super) fn take(&mut self, event: InterruptionEvent, state: &State) -> Vec<Decision> {
        match event {
            InterruptionEvent::Change(source, Change::Answered) => {
                self.answered[source] = true;
                if self.all_have_answered() { vec![Decision::Answered] } else { Vec::new() }
            }
            InterruptionEvent::Change(_, Change::Named(machine)) => {
                self.machine = machine;
                Vec::new()
            }
            InterruptionEvent::Change(source, Change::Noticed(notice)) => self.noticed(source, notice, state),
            InterruptionEvent::Change(source, Change::Over(id, ending)) => self.over(&(source, id), ending),
            InterruptionEvent::Approval(ended) => {
                self.approval_ended(ended);
                Vec::new()
            }
            // After every event the dispatcher lets the active notices be reviewed.
            InterruptionEvent::Review => Vec::new(),
        }
    }

    fn noticed(&mut self, source: usize, notice: Notice, state: &State) -> Vec<Decision> {
        let (id, kind, phase) = (notice.id.clone(), notice.kind.clone(), notice.phase);
        let (in_ms, key) = (in_ms(&notice), (source, notice.id.clone()));
        let label = match &kind {
            // The platform's own name could be any string, which a metric label must not be.
            NoticeKind::Other(_) => "other",
            known => known.as_str(),
        };
        if self.active.get(&key).is_none() {
            self.shared.telemetry.notices.get_or_create(&ByKind { kind: label.to_owned() }).inc();
        }
        if self.machine.is_empty() {
            notice.machine.clone_into(&mut self.machine);
        }
        let mark = self.cancel_approval(&key);
        self.active.noticed(source, notice, Instant::now());
        let orders = self.active.review(state, &self.shared.settings.policy);
        if !orders.drain.iter().any(|(draining, _)| draining.id == id) {
            tracing::warn!(notice = %id, kind = kind.as_str(), ?phase, in_ms, "received a notice; continuing to work");
        }
        let decisions = self.follow(orders);
        if let Some(mark) = mark {
            self.approvals.remove(mark);
        }
        decisions
    }

    fn over(&mut self, key: &Key, ending: Ending) -> Vec<Decision> {
        tracing::info!(notice = %key.1, ?ending, "a notice is no longer active");
        if self.active.over(key, Instant::now()) {
            let leases = self.shared.running.len();
            tracing::info!(leases, "the freeze has ended; verifying every lease");
            self.shared.rules.modify(|rules| rules.checks += 1);
        }
        self.drains_no_more(key).into_iter().collect()
    }

    /// Cancels the approval of a notice that calls for no drain any more, and the drain if no other
    /// notice calls for it.
    fn drains_no_more(&mut self, key: &Key) -> Option<Decision> {
        if let Some(mark) = self.cancel_approval(key) {
            self.approvals.remove(mark);
        }
        (!self.active.call_for_a_drain()).then_some(Decision::CallOff)
    }

    fn cancel_approval(&mut self, key: &Key) -> Option<super::approval::Mark> {
        let (open, mark) = self.approvals.cancel(key);
        for key in open {
            self.active.reopen(&key);
        }
        mark
    }

    fn approval_ended(&mut self, ended: ApprovalEvent) {
        match self.approvals.ended(ended) {
            Some(Approved::State(keys, approval)) => {
                for key in keys {
                    self.active.approval(&key, approval);
                }
            }
            Some(Approved::Ready(key)) => {
                if let Some(notice) = self.active.get(&key).cloned() {
                    self.approvals.request(key.0, &self.sources[key.0], &[notice]);
                }
            }
            None => {}
        }
    }

    /// Decides what the active notices call for now. Without a `state`, there is no need to.
    pub(super) fn review(&mut self, state: Option<&State>) -> Vec<Decision> {
        let Some(state) = state else {
            self.review_at = None;
            return Vec::new();
        };
        let orders = self.active.review(state, &self.shared.settings.policy);
        self.follow(orders)
    }

    fn follow(&mut self, orders: Orders) -> Vec<Decision> {
        self.review_at = orders.look_again;
        let mut decisions = Vec::new();
        decisions.extend(self.throttle(orders.throttle));
        if orders.checkpoint {
            tracing::info!("saving the progress of every job");
            self.shared.rules.modify(|rules| rules.saves += 1);
        }
        for notice in &orders.redeploy_early {
            tracing::warn!(
                notice = %notice.id,
                in_ms = in_ms(notice),
                "this VM will be moved or restarted because its host is predicted to fail, possibly early; redeploy it \
                 now (`az vm redeploy`). With --predicted-failure drain a worker that may approve drains for a Redeploy"
            );
        }
        for (notice, deadline) in orders.drain {
            let (kind, in_ms) = (notice.kind.clone(), in_ms(&notice));
            tracing::warn!(
                notice = %notice.id,
                kind = kind.as_str(),
                phase = ?notice.phase,
                in_ms,
                "received a notice; draining"
            );
            decisions.push(Decision::Drain(DrainOrder { kind, deadline, lead: notice.lead() }));
        }
        for (key, work) in orders.resume {
            let id = &key.1;
            if work == Work::Outlived {
                tracing::error!(
                    notice = %id,
                    "this VM still runs half an hour after an event that should have ended or interrupted it; the \
                     worker resumes work although the event is still active"
                );
            } else {
                tracing::info!(notice = %id, "the event has changed; the drain is no longer needed");
            }
            decisions.extend(self.drains_no_more(&key));
        }
        for (source, notices) in orders.approve {
            self.approvals.request(source, &self.sources[source], &notices);
        }
        for (source, notice, authority) in orders.gather {
            self.approvals.gather(source, notice, authority);
        }
        decisions
    }

    /// Changes the rules for running jobs and held leases.
    fn throttle(&mut self, throttle: Throttle) -> Option<Decision> {
        let before = self.shared.rules.get().throttle;
        if before == throttle {
            return None;
        }
        self.shared.rules.modify(|rules| rules.throttle = throttle);
        match (before.paused, throttle.paused) {
            (false, true) => tracing::warn!("pausing all jobs until the freeze has ended"),
            (true, false) => tracing::info!("resuming the paused jobs"),
            _ => {}
        }
        match throttle.outlast {
            outlast if outlast == before.outlast => {}
            Some(outlast) => {
                tracing::info!(outlast_s = outlast.as_secs(), "renewing leases for longer than the freeze");
            }
            None => tracing::info!("renewing leases for the usual length again"),
        }
        match (before.below, throttle.below) {
            (None, Some(below)) => {
                let below_s = below.as_secs();
                tracing::warn!(below_s, "starting only jobs that are known to be short");
                None
            }
            (Some(_), None) => {
                tracing::info!("starting jobs of any length again");
                Some(Decision::EndRest)
            }
            _ => None,
        }
    }
}

/// Forwards the changes of `source` until the worker ends. Listens again to a source that panics.
async fn listen(
    number: usize,
    source: Arc<dyn InterruptionSource>,
    report: mpsc::UnboundedSender<(usize, Change)>,
) {
    loop {
        let next = Arc::clone(&source);
        match AbortOnDropHandle::new(tokio::spawn(in_process(async move { next.next().await }))).await {
            Ok(change) => {
                if report.send((number, change)).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::error!(%error, ?source, "an interruption source failed; restarting it");
                sleep(LISTEN_AGAIN).await;
            }
        }
    }
}

fn in_ms(notice: &Notice) -> Option<u128> {
    notice.not_before.map(|at| at.saturating_duration_since(Instant::now()).as_millis())
}
