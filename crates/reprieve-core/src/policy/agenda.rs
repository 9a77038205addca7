//! The account of all notices that stand: what each calls for, what was done about it, and what is to be done now. The
//! hardest plan wins, and none is forgotten.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use tokio::time::Instant;

use super::authority::{Authority, authority};
use super::plan::{Own, Plan, Work, plan};
use super::settings::Policy;
use crate::clock::unix_millis;
use crate::deadline::Deadline;
use crate::notice::{Notice, NoticeId, NoticeKind, Phase};
use crate::ports::StandingNotice;

/// The notices that stand.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    items: BTreeMap<Key, Item>,
}

/// Which interruption source told a notice, and what it calls it: two sources may use the same id.
pub(crate) type Key = (usize, NoticeId);

/// One notice, and what was done about it.
#[derive(Debug)]
struct Item {
    notice: Notice,
    /// When it begins at the earliest, for people.
    not_before_unix_ms: Option<i64>,
    /// Since when it has been in its phase, as this kind of event.
    since: Instant,
    /// What it was last looked at for; `None` for a notice that is new or has changed.
    looked_at: Option<Work>,
    draining: bool,
    checkpointed: bool,
    advised: bool,
    approval: Approval,
}

/// How far an approval has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approval {
    /// Not begun.
    Open,
    /// Being said, or the others are being waited for.
    UnderWay,
    /// Failed, and to be tried again then.
    Again(Instant),
    /// Said.
    Done,
    /// Refused, or given up.
    Closed,
}

/// How far the worker has got.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) now: Instant,
    pub(crate) budget: Duration,
    pub(crate) drained: bool,
    pub(crate) leases_end: Option<Instant>,
}

/// How jobs and leases are to be treated while no drain is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Conduct {
    /// Jobs rest between steps.
    pub(crate) paused: bool,
    /// Only jobs shorter than this are begun.
    pub(crate) below: Option<Duration>,
    /// Every lease is to outlast so much.
    pub(crate) outlast: Option<Duration>,
}

/// What is to be done now. `conduct` is how it stays until the next review; all else is done once.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) conduct: Conduct,
    /// Save progress.
    pub(crate) checkpoint: bool,
    /// Drain, or tighten the drain under way.
    pub(crate) drain: Vec<(Notice, Deadline)>,
    /// Take up work again: these call for no drain any more, and what they call for instead.
    pub(crate) resume: Vec<(Key, Work)>,
    /// Advise to redeploy early.
    pub(crate) redeploy_early: Vec<Notice>,
    /// Approve, of each source.
    pub(crate) approve: BTreeMap<usize, Vec<Notice>>,
    /// Mark as ready, and lead the others if the authority says so.
    pub(crate) rally: Vec<(usize, Notice, Authority)>,
    /// When to review again, if nothing happens.
    pub(crate) look_again: Option<Instant>,
}

impl Agenda {
    /// A notice is new, or has changed.
    pub(crate) fn noticed(&mut self, source: usize, notice: Notice, now: Instant) {
        match self.items.entry((source, notice.id.clone())) {
            Entry::Vacant(new) => drop(new.insert(Item::new(notice, now))),
            Entry::Occupied(mut known) => known.get_mut().changed(notice, now),
        }
    }

    /// A notice no longer stands. Returns whether the machine may have been frozen by it: its beginning may not have been
    /// heard of, because a frozen machine hears nothing.
    pub(crate) fn over(&mut self, key: &Key, now: Instant) -> bool {
        let Some(Item { notice, approval, .. }) = self.items.remove(key) else { return false };
        let approved = matches!(approval, Approval::UnderWay | Approval::Done);
        let may_have_begun =
            notice.phase == Phase::Started || approved || notice.not_before.is_none_or(|at| at <= now);
        notice.kind == NoticeKind::Freeze && may_have_begun
    }

    /// How the approval of an event went.
    pub(crate) fn approval(&mut self, key: &Key, approval: Approval) {
        if let Some(item) = self.items.get_mut(key) {
            item.approval = approval;
        }
    }

    /// The approval of an event is not under way any more, and nothing has come of it.
    pub(crate) fn reopen(&mut self, key: &Key) {
        if let Some(item) = self.items.get_mut(key).filter(|item| item.approval == Approval::UnderWay) {
            item.approval = Approval::Open;
        }
    }

    /// The notice, while it stands.
    pub(crate) fn get(&self, key: &Key) -> Option<&Notice> {
        self.items.get(key).map(|item| &item.notice)
    }

    /// Whether a notice of this id, from whichever source, calls for a drain.
    pub(crate) fn drains_for(&self, id: &NoticeId) -> bool {
        self.items.values().any(|item| item.draining && item.notice.id == *id)
    }

    /// Whether it matters for a notice how long leases last.
    pub(crate) fn asks_for_leases(&self) -> bool {
        self.items.values().any(|item| item.notice.kind == NoticeKind::Freeze)
    }

    /// Whether none stands.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What stands and what is done about it, for people.
    pub(crate) fn standing(&self) -> Vec<StandingNotice> {
        self.items.values().map(Item::standing).collect()
    }

    /// What is to be done now. What is ordered once is not ordered again by the next review.
    pub(crate) fn review(&mut self, state: &State, policy: &Policy) -> Orders {
        let mut orders = Orders::default();
        for ((source, _), item) in &mut self.items {
            item.review(*source, state, policy, &mut orders);
        }
        orders
    }
}

impl Item {
    fn new(notice: Notice, now: Instant) -> Self {
        Self {
            not_before_unix_ms: not_before_unix_ms(&notice, now),
            notice,
            since: now,
            looked_at: None,
            draining: false,
            checkpointed: false,
            advised: false,
            approval: Approval::Open,
        }
    }

    /// The notice is told otherwise; what was done about it stays done.
    fn changed(&mut self, notice: Notice, now: Instant) {
        if (self.notice.phase, &self.notice.kind) != (notice.phase, &notice.kind) {
            self.since = now;
        }
        self.not_before_unix_ms = not_before_unix_ms(&notice, now);
        self.looked_at = None;
        self.notice = notice;
    }

    fn standing(&self) -> StandingNotice {
        let doing = match self.looked_at.unwrap_or(Work::Freely) {
            Work::Freely | Work::Outlived => "going on",
            Work::Below(_) => "short jobs only",
            Work::Paused => "resting",
            Work::DrainBy(_) => "finishing",
            Work::Drain => "draining",
        };
        StandingNotice {
            id: self.notice.id.to_string(),
            kind: self.notice.kind.as_str().to_owned(),
            started: self.notice.phase == Phase::Started,
            not_before_unix_ms: self.not_before_unix_ms,
            doing: doing.to_owned(),
            approved: self.approval == Approval::Done,
        }
    }

    fn review(&mut self, source: usize, state: &State, policy: &Policy, orders: &mut Orders) {
        let State { now, budget, drained, leases_end } = *state;
        let own = Own { now, since: self.since, budget, draining: self.draining, drained, leases_end };
        let plan = plan(&self.notice, &own, policy);
        orders.conduct.take_in(&plan);
        orders.look_at(plan.look_again);
        self.drain_if_due(plan.work, state, orders);
        if plan.checkpoint && !std::mem::replace(&mut self.checkpointed, true) {
            orders.checkpoint = true;
        }
        if !matches!(plan.work, Work::Drain | Work::DrainBy(_))
            && std::mem::replace(&mut self.draining, false)
        {
            orders.resume.push(((source, self.notice.id.clone()), plan.work));
        }
        if plan.redeploy_early && !std::mem::replace(&mut self.advised, true) {
            orders.redeploy_early.push(self.notice.clone());
        }
        if plan.ready {
            self.approve(source, now, policy, orders);
        }
    }

    fn drain_if_due(&mut self, work: Work, state: &State, orders: &mut Orders) {
        let before = self.looked_at.replace(work);
        let deadline = match work {
            Work::Drain | Work::DrainBy(_) if before == Some(work) => return,
            Work::Drain => {
                // Time that was left before the drain is not the drain's.
                let asked = if before.is_none() { self.notice.received } else { state.now };
                Deadline::from(asked, &self.notice, state.budget)
            }
            Work::DrainBy(at) => Deadline::patient(self.notice.received, at, state.budget),
            Work::Freely | Work::Outlived | Work::Below(_) | Work::Paused => return,
        };
        self.draining = true;
        orders.drain.push((self.notice.clone(), deadline));
    }

    fn approve(&mut self, source: usize, now: Instant, policy: &Policy, orders: &mut Orders) {
        let authority = authority(&self.notice, policy);
        if authority == Authority::None {
            return;
        }
        match self.approval {
            Approval::UnderWay | Approval::Done | Approval::Closed => return,
            Approval::Again(at) if at > now => return orders.look_at(Some(at)),
            Approval::Open | Approval::Again(_) => {}
        }
        self.approval = Approval::UnderWay;
        match authority {
            Authority::None => {}
            Authority::Alone => orders.approve.entry(source).or_default().push(self.notice.clone()),
            Authority::Lead | Authority::Follow => {
                orders.rally.push((source, self.notice.clone(), authority));
            }
        }
    }
}

fn not_before_unix_ms(notice: &Notice, now: Instant) -> Option<i64> {
    let left = notice.not_before?.saturating_duration_since(now);
    Some(unix_millis().saturating_add(i64::try_from(left.as_millis()).ok()?))
}

impl Orders {
    fn look_at(&mut self, at: Option<Instant>) {
        self.look_again = self.look_again.into_iter().chain(at).min();
    }
}

impl Conduct {
    fn take_in(&mut self, plan: &Plan) {
        self.outlast = self.outlast.max(plan.outlast);
        match plan.work {
            Work::Paused => self.paused = true,
            Work::Below(limit) => self.below = Some(self.below.map_or(limit, |below| below.min(limit))),
            // A drain is the lifecycle's.
            Work::Freely | Work::Outlived | Work::DrainBy(_) | Work::Drain => {}
        }
    }
}

#[cfg(test)]
mod tests;
