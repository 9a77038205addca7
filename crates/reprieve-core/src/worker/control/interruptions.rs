//! What the control loop does about notices: it enters them in the agenda, and does what the agenda's review orders.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Control;
use crate::error::{ErrorKind, Result};
use crate::lifecycle::{Event, Stage};
use crate::notice::{Notice, NoticeId, NoticeKind};
use crate::policy::{Approval, Authority, Conduct, Orders, State, Work, verify_after};
use crate::ports::Ending;
use crate::telemetry::{ByKind, ByResult};
use crate::worker::order::Card;
use crate::worker::rally::{Rallied, Rally};

/// The longest an approval may be tried for at a stretch, and for an event without a `NotBefore` at all.
const APPROVE_WITHIN: Duration = Duration::from_secs(30);

/// After how long an approval that failed is tried again.
const APPROVE_AGAIN: Duration = Duration::from_secs(5);

/// How an approval ended.
pub(super) type Approved = (Vec<NoticeId>, Result<()>);

impl Control {
    pub(super) fn noticed(&mut self, source: usize, notice: Notice) {
        let (id, kind, phase) = (notice.id.clone(), notice.kind.clone(), notice.phase);
        let in_ms = in_ms(&notice);
        let label = match &kind {
            // Not in the platform's own words, which could be any number.
            NoticeKind::Other(_) => "other",
            known => known.as_str(),
        };
        if self.agenda.get(&id).is_none() {
            self.shared.telemetry.notices.get_or_create(&ByKind { kind: label.to_owned() }).inc();
        }
        self.publisher.machine(&notice.machine);
        self.forget_approval(&id);
        drop(self.end_rally(&id));
        self.agenda.noticed(source, notice, Instant::now());
        if !self.review().contains(&id) {
            tracing::warn!(notice = %id, kind = kind.as_str(), ?phase, in_ms, "noticed; going on");
        }
        self.publish();
    }

    pub(super) fn over(&mut self, id: NoticeId, ending: Ending) {
        tracing::info!(notice = %id, ?ending, "a notice no longer stands");
        let notice = self.agenda.over(&id);
        if notice.as_ref().is_some_and(verify_after) {
            let leases = self.shared.roll.cards(|_| ()).len();
            tracing::info!(leases, "the freeze is over; verifying every lease");
            self.shared.rules.send_modify(|rules| rules.checks += 1);
        }
        self.forget_approval(&id);
        if let Some(rally) = self.end_rally(&id) {
            self.approvals.spawn(async move {
                rally.unmark().await;
                None
            });
        }
        self.decide(Event::Over(id), None);
        self.publish();
    }

    /// Does what is due about the notices that stand, and returns those for which a drain began, or was tightened.
    pub(super) fn review(&mut self) -> Vec<NoticeId> {
        let nothing = self.agenda.is_empty() && self.shared.rules.borrow().conduct == Conduct::default();
        if nothing || self.life.stage() == Stage::Stopped {
            self.look_again = None;
            return Vec::new();
        }
        let state = State {
            now: Instant::now(),
            budget: self.shared.settings.budget,
            drained: self.is_drained(),
            leases_end: self.shared.roll.cards(Card::lease_ends).into_iter().min(),
        };
        let orders = self.agenda.review(&state, &self.shared.settings.policy);
        let draining = orders.drain.iter().map(|(notice, _)| notice.id.clone()).collect();
        self.follow(orders);
        draining
    }

    fn follow(&mut self, orders: Orders) {
        self.look_again = orders.look_again;
        self.conduct(orders.conduct);
        if orders.checkpoint {
            tracing::info!("saving the progress of every job");
            self.shared.rules.send_modify(|rules| rules.saves += 1);
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
        for (id, work) in orders.resume {
            if work == Work::Outlived {
                tracing::error!(
                    notice = %id,
                    "this machine is still here half an hour after an event that should have ended or interrupted it; work \
                     is taken up again although the event still stands"
                );
            } else {
                tracing::info!(notice = %id, "the event has changed and calls for no drain any more");
            }
            self.decide(Event::Over(id), None);
        }
        for (source, notices) in orders.approve {
            self.approve(source, &notices);
        }
        for (notice, authority) in orders.rally {
            self.rally(notice, authority);
        }
    }

    fn conduct(&mut self, conduct: Conduct) {
        let before = self.shared.rules.borrow().conduct;
        if before == conduct {
            return;
        }
        self.shared.rules.send_modify(|rules| rules.conduct = conduct);
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
                self.resting_until = None;
            }
            _ => {}
        }
        if before.outlast != conduct.outlast {
            let outlast_s = conduct.outlast.map(|outlast| outlast.as_secs());
            tracing::info!(outlast_s, "how long leases must outlast a freeze");
        }
    }

    /// Whether nothing is held, nothing arrives, and what the drain did is kept: the machine may go.
    fn is_drained(&mut self) -> bool {
        self.life.stage() == Stage::Shutdown && self.drain.is_none() && self.publisher.has_kept()
    }

    fn approve(&mut self, source: usize, notices: &[Notice]) {
        let Some(source) = self.sources.get(source).map(Arc::clone) else { return };
        let ids: Vec<_> = notices.iter().map(|notice| notice.id.clone()).collect();
        let left = |notice: &Notice| Some(notice.not_before?.saturating_duration_since(Instant::now()));
        let within = notices.iter().filter_map(left).min().unwrap_or(APPROVE_WITHIN);
        let within = within.clamp(Duration::from_secs(1), APPROVE_WITHIN);
        tracing::info!(?ids, "ready; approving");
        let said = ids.clone();
        let saying = self.approvals.spawn(async move {
            let approved = source.acknowledge(&ids, within).await;
            Some((ids, approved))
        });
        self.approving.push((said, saying));
    }

    /// Ends an approval of an event that is another by now, or over: what it would say was decided about what it was.
    fn forget_approval(&mut self, id: &NoticeId) {
        for (ids, saying) in self.approving.extract_if(.., |(ids, _)| ids.contains(id)) {
            saying.abort();
            for id in &ids {
                self.agenda.approval(id, Approval::Open);
            }
        }
    }

    /// Ends the wait for the other machines of an event that is another by now, or over.
    fn end_rally(&mut self, id: &NoticeId) -> Option<Rally> {
        let (rally, waiting) = self.rallies.remove(id)?;
        waiting.abort();
        self.agenda.approval(id, Approval::Open);
        Some(rally)
    }

    pub(super) fn approved(&mut self, (ids, result): Approved) {
        self.approving.retain(|(saying, _)| *saying != ids);
        match &result {
            Ok(()) => tracing::info!(?ids, "approved: the event need not wait for its time"),
            Err(error) if error.kind() == ErrorKind::Invalid => {
                tracing::warn!(?ids, %error, "the approval was refused; the event is left to begin by itself");
            }
            Err(error) => {
                tracing::warn!(?ids, %error, "could not approve; trying again while the event stands");
            }
        }
        let (approval, label) = match &result {
            Ok(()) => (Approval::Done, "ok"),
            Err(error) if error.kind() == ErrorKind::Invalid => (Approval::Closed, "refused"),
            Err(_) => (Approval::Again(Instant::now() + APPROVE_AGAIN), "error"),
        };
        self.shared.telemetry.approvals.get_or_create(&ByResult { result: label }).inc();
        for id in &ids {
            self.agenda.approval(id, approval);
        }
        self.publish();
    }

    fn rally(&mut self, notice: Notice, authority: Authority) {
        let (store, worker) = (self.shared.store.clone(), self.monitor.worker().clone());
        let (id, wait) = (notice.id.clone(), self.shared.settings.policy.approve_wait);
        let rally = Rally { store, worker, notice };
        let waiting = self.rallying.spawn(rally.clone().run(authority, wait));
        self.rallies.insert(id, (rally, waiting));
    }

    pub(super) fn rallied(&mut self, id: &NoticeId, how: Rallied) {
        match how {
            // It stays so: the leader approves.
            Rallied::Marked => {}
            Rallied::Ready => {
                if let (Some(notice), Some(source)) = (self.agenda.get(id).cloned(), self.agenda.source(id)) {
                    self.approve(source, &[notice]);
                }
            }
            Rallied::GaveUp(missing) => {
                tracing::warn!(notice = %id, ?missing, "not all were ready in time; the event is left to begin by itself");
                self.agenda.approval(id, Approval::Closed);
            }
        }
    }
}

fn in_ms(notice: &Notice) -> Option<u128> {
    notice.not_before.map(|at| at.saturating_duration_since(Instant::now()).as_millis())
}
