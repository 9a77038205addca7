//! The control loop's handling of notices: it records them and follows the review of the active
//! ones.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::Id;
use tokio::time::Instant;

use super::Control;
use crate::error::{ErrorKind, Result};
use crate::interruption::{Approval, Authority, Conduct, Key, Orders, State, Work};
use crate::interruption::{Event, Stage};
use crate::notice::{Notice, NoticeId, NoticeKind};
use crate::ports::Ending;
use crate::process::in_process;
use crate::retry::unanswered;
use crate::telemetry::{ByKind, ByResult};
use crate::worker::delivery::RunningJob;
use crate::worker::rally::{Rallied, Rally};

/// The longest time for which one approval is tried, and the time for an event without a
/// `NotBefore`.
const APPROVE_WITHIN: Duration = Duration::from_secs(30);

/// How long after a failure an approval is tried again.
const APPROVE_AGAIN: Duration = Duration::from_secs(5);

impl Control {
    pub(super) fn noticed(&mut self, source: usize, notice: Notice) {
        let (id, kind, phase) = (notice.id.clone(), notice.kind.clone(), notice.phase);
        let in_ms = in_ms(&notice);
        let label = match &kind {
            // The platform's own name could be any string, which a metric label must not be.
            NoticeKind::Other(_) => "other",
            known => known.as_str(),
        };
        let key = (source, id.clone());
        if self.agenda.get(&key).is_none() {
            self.shared.telemetry.notices.get_or_create(&ByKind { kind: label.to_owned() }).inc();
        }
        self.publisher.machine(&notice.machine);
        self.forget_approval(&key);
        let rally = self.end_rally(&key);
        self.agenda.noticed(source, notice, Instant::now());
        let orders = self.orders();
        if !orders.drain.iter().any(|(draining, _)| draining.id == id) {
            tracing::warn!(notice = %id, kind = kind.as_str(), ?phase, in_ms, "noticed; going on");
        }
        self.follow(orders);
        // The notice has changed: unless the worker marked itself ready for it again, the old mark
        // is removed.
        if let Some(rally) = rally.filter(|_| !self.rallies.contains_key(&key)) {
            self.unmark(rally);
        }
        self.publish();
    }

    pub(super) fn over(&mut self, key: Key, ending: Ending) {
        tracing::info!(notice = %key.1, ?ending, "a notice no longer stands");
        if self.agenda.over(&key, Instant::now()) {
            let leases = self.shared.roll.cards(|_| ()).len();
            tracing::info!(leases, "the freeze is over; verifying every lease");
            self.shared.rules.modify(|rules| rules.checks += 1);
        }
        self.drains_no_more(key);
        self.publish();
    }

    /// Cancels the approval of a notice that calls for no drain any more, and ends the drain if no
    /// other notice calls for it.
    fn drains_no_more(&mut self, key: Key) {
        self.forget_approval(&key);
        if let Some(rally) = self.end_rally(&key) {
            self.unmark(rally);
        }
        let (_, id) = key;
        if !self.agenda.drains_for(&id) {
            self.decide(Event::Over(id), None);
        }
        if self.life.is_called_off() {
            self.end_patience();
        }
    }

    fn unmark(&mut self, rally: Rally) {
        self.approvals.spawn(in_process(async move {
            rally.unmark().await;
            None
        }));
    }

    /// Does what the active notices call for now.
    pub(super) fn review(&mut self) {
        let orders = self.orders();
        self.follow(orders);
    }

    /// Returns what the active notices call for now.
    fn orders(&mut self) -> Orders {
        let nothing = self.agenda.is_empty() && self.shared.rules.get().conduct == Conduct::default();
        if nothing || self.life.stage() == Stage::Stopped {
            return Orders::default();
        }
        let state = State {
            now: Instant::now(),
            budget: self.shared.settings.budget,
            drained: self.is_drained(),
            leases_end: if self.agenda.asks_for_leases() { self.leases_end() } else { None },
        };
        self.agenda.review(&state, &self.shared.settings.policy)
    }

    /// Returns the earliest end of a lease that is held or being taken.
    fn leases_end(&self) -> Option<Instant> {
        let ends = self.shared.roll.cards(RunningJob::lease_ends);
        // Messages that are being received, or were received just now, are not in flight yet.
        let unseen = self.receiver.is_receiving() || self.guardians.len() > ends.len();
        ends.into_iter().chain(unseen.then_some(self.receiver.leases_end())).min()
    }

    fn follow(&mut self, orders: Orders) {
        self.look_again = orders.look_again;
        self.conduct(orders.conduct);
        if orders.checkpoint {
            tracing::info!("saving the progress of every job");
            self.shared.rules.modify(|rules| rules.saves += 1);
        }
        for notice in &orders.redeploy_early {
            tracing::warn!(
                notice = %notice.id,
                in_ms = in_ms(notice),
                "this machine is to be moved because its host is predicted to fail, perhaps sooner than planned: redeploy it \
                 early (`az vm redeploy`), or set --predicted-failure drain"
            );
        }
        for (notice, deadline) in orders.drain {
            let in_ms = in_ms(&notice);
            tracing::warn!(notice = %notice.id, kind = notice.kind.as_str(), phase = ?notice.phase, in_ms, "noticed; draining");
            self.decide(Event::Noticed(notice.id.clone()), Some((&notice, deadline)));
        }
        for (key, work) in orders.resume {
            let id = &key.1;
            if work == Work::Outlived {
                tracing::error!(
                    notice = %id,
                    "this machine is still here half an hour after an event that should have ended or interrupted it; work \
                     is taken up again although the event still stands"
                );
            } else {
                tracing::info!(notice = %id, "the event has changed and calls for no drain any more");
            }
            self.drains_no_more(key);
        }
        for (source, notices) in orders.approve {
            self.approve(source, &notices);
        }
        for (source, notice, authority) in orders.rally {
            self.rally(source, notice, authority);
        }
    }

    fn conduct(&mut self, conduct: Conduct) {
        let before = self.shared.rules.get().conduct;
        if before == conduct {
            return;
        }
        self.shared.rules.modify(|rules| rules.conduct = conduct);
        match (before.paused, conduct.paused) {
            (false, true) => tracing::warn!("jobs rest between steps until the freeze is over"),
            (true, false) => tracing::info!("jobs go on after a rest"),
            _ => {}
        }
        match (before.below, conduct.below) {
            (None, Some(below)) => {
                let below_s = below.as_secs();
                tracing::warn!(below_s, "only jobs that are known to be short are begun");
            }
            (Some(_), None) => {
                tracing::info!("jobs of any length are begun again");
                self.receiver.end_rest();
            }
            _ => {}
        }
        match conduct.outlast {
            outlast if outlast == before.outlast => {}
            Some(outlast) => {
                tracing::info!(outlast_s = outlast.as_secs(), "leases are renewed to outlast a freeze");
            }
            None => tracing::info!("leases are as long as ever again"),
        }
    }

    /// Reports whether the machine may go: nothing is held, nothing can arrive, and the drain's
    /// report is stored.
    fn is_drained(&mut self) -> bool {
        self.life.stage() == Stage::Shutdown && self.drain.is_none() && self.publisher.has_kept()
    }

    fn approve(&mut self, source: usize, notices: &[Notice]) {
        let Some(said_to) = self.sources.get(source).map(Arc::clone) else { return };
        let ids: Vec<_> = notices.iter().map(|notice| notice.id.clone()).collect();
        let left = |notice: &Notice| Some(notice.not_before?.saturating_duration_since(Instant::now()));
        let within = notices.iter().filter_map(left).min().unwrap_or(APPROVE_WITHIN);
        let within = within.clamp(Duration::from_secs(1), APPROVE_WITHIN);
        tracing::info!(notices = names(&ids), "ready; approving");
        let said = ids.clone();
        let saying = async move { Some(said_to.acknowledge(&said, within).await) };
        let saying = self.approvals.spawn(in_process(saying));
        self.approving.insert(saying.id(), (source, ids, saying));
    }

    /// Aborts the approval of an event that has changed or ended, because it was decided for the
    /// event as it was.
    fn forget_approval(&mut self, (source, id): &Key) {
        for (_, (source, ids, saying)) in
            self.approving.extract_if(.., |_, (of, ids, _)| of == source && ids.contains(id))
        {
            saying.abort();
            for id in ids {
                self.agenda.reopen(&(source, id));
            }
        }
    }

    /// Aborts the wait for the other machines of an event that has changed or ended.
    fn end_rally(&mut self, key: &Key) -> Option<Rally> {
        let (rally, waiting) = self.rallies.remove(key)?;
        waiting.abort();
        self.agenda.reopen(key);
        Some(rally)
    }

    pub(super) fn approved(&mut self, task: Id, said: Option<Result<()>>) {
        // The task removed a mark, or its approval was for an event that has changed or ended
        // since.
        let Some((source, ids, _)) = self.approving.remove(&task) else { return };
        let result = said.unwrap_or_else(|| Err(unanswered("approve an event")));
        let notices = names(&ids);
        match &result {
            Ok(()) => tracing::info!(notices, "approved: the event need not wait for its time"),
            Err(error) if error.kind() == ErrorKind::Invalid => {
                tracing::warn!(notices, %error, "the approval was refused; the event is left to begin by itself");
            }
            Err(error) => {
                tracing::warn!(notices, %error, "could not approve; trying again while the event stands");
            }
        }
        let (approval, label) = match &result {
            Ok(()) => (Approval::Done, "ok"),
            Err(error) if error.kind() == ErrorKind::Invalid => (Approval::Closed, "refused"),
            Err(_) => (Approval::Again(Instant::now() + APPROVE_AGAIN), "error"),
        };
        self.shared.telemetry.approvals.get_or_create(&ByResult { result: label }).inc();
        for id in ids {
            self.agenda.approval(&(source, id), approval);
        }
        self.publish();
    }

    fn rally(&mut self, source: usize, notice: Notice, authority: Authority) {
        let (store, worker) = (self.shared.store.clone(), self.monitor.worker().clone());
        let (key, wait) = ((source, notice.id.clone()), self.shared.settings.policy.approve_wait);
        let rally = Rally { store, worker, notice };
        let waiting = self.rallying.spawn(in_process(rally.clone().run(authority, wait)));
        self.rallies.insert(key, (rally, waiting));
    }

    pub(super) fn rallied(&mut self, task: Id, how: Rallied) {
        // The event may have changed, and this worker may not be ready for the new one.
        let waited = self.rallies.iter().find(|(_, (_, waiting))| waiting.id() == task);
        let Some((key, _)) = waited else { return };
        let key = key.clone();
        match how {
            // Nothing more to do: the leader approves.
            Rallied::Marked => {}
            Rallied::Ready => {
                if let Some(notice) = self.agenda.get(&key).cloned() {
                    self.approve(key.0, &[notice]);
                }
            }
            Rallied::GaveUp(missing) => {
                tracing::warn!(notice = %key.1, ?missing, "not all were ready in time; the event is left to begin by itself");
                self.agenda.approval(&key, Approval::Closed);
            }
        }
    }
}

fn names(ids: &[NoticeId]) -> String {
    ids.iter().map(NoticeId::as_str).collect::<Vec<_>>().join(", ")
}

fn in_ms(notice: &Notice) -> Option<u128> {
    notice.not_before.map(|at| at.saturating_duration_since(Instant::now()).as_millis())
}
