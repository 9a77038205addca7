//! Tracks the active notices: what each calls for, what was done about it, and what to do now. The
//! strictest plan applies, and every notice counts.

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
use crate::ports::ActiveNotice;

/// The active notices.
#[derive(Debug, Default)]
pub(crate) struct ActiveNotices {
    items: BTreeMap<Key, Item>,
}

/// The interruption source that reported a notice, and its id there: two sources may use the same
/// id.
pub(crate) type Key = (usize, NoticeId);

/// One notice, and what was done about it.
#[derive(Debug)]
struct Item {
    notice: Notice,
    /// When the event begins at the earliest, for reports.
    not_before_unix_ms: Option<i64>,
    /// Since when the notice has had its phase and kind.
    since: Instant,
    /// The work that its last review called for; `None` for a notice that is new or has changed.
    looked_at: Option<Work>,
    draining: bool,
    checkpointed: bool,
    advised: bool,
    approval: Approval,
}

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approval {
    /// Not started.
    Open,
    /// Being sent, or waiting for other workers.
    UnderWay,
    /// Failed; it may be retried at this time.
    Again(Instant),
    /// Approved.
    Done,
    /// Refused or given up.
    Closed,
}

/// The worker's state, as far as it matters for a review.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) now: Instant,
    pub(crate) budget: Duration,
    pub(crate) drained: bool,
    pub(crate) leases_end: Option<Instant>,
}

/// How jobs and leases are treated while no drain is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Throttle {
    /// Jobs rest between steps.
    pub(crate) paused: bool,
    /// Only jobs shorter than this are started.
    pub(crate) below: Option<Duration>,
    /// When this machine's work ends: a longer job had better begin elsewhere.
    pub(crate) ends_at: Option<Instant>,
    /// Every lease must last at least this long.
    pub(crate) outlast: Option<Duration>,
}

/// The result of a review. `throttle` applies until the next review; everything else is done once.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) throttle: Throttle,
    /// Save the jobs' progress.
    pub(crate) checkpoint: bool,
    /// Drain, or tighten the drain under way.
    pub(crate) drain: Vec<(Notice, Deadline)>,
    /// Resume work: these notices no longer call for a drain, but for this work.
    pub(crate) resume: Vec<(Key, Work)>,
    /// Advise the operator to redeploy early.
    pub(crate) redeploy_early: Vec<Notice>,
    /// Approve these notices, by source.
    pub(crate) approve: BTreeMap<usize, Vec<Notice>>,
    /// Mark this worker as ready, and lead the others if the authority is `Lead`.
    pub(crate) gather: Vec<(usize, Notice, Authority)>,
    /// When to review again at the latest.
    pub(crate) look_again: Option<Instant>,
}

impl ActiveNotices {
    /// Adds a notice, or updates it.
    pub(crate) fn noticed(&mut self, source: usize, notice: Notice, now: Instant) {
        match self.items.entry((source, notice.id.clone())) {
            Entry::Vacant(new) => drop(new.insert(Item::new(notice, now))),
            Entry::Occupied(mut known) => known.get_mut().changed(notice, now),
        }
    }

    /// Removes a notice that is no longer active. Returns whether it may have frozen the machine.
    /// The worker may have missed the beginning of a freeze, because a frozen machine receives
    /// nothing.
    pub(crate) fn over(&mut self, key: &Key, now: Instant) -> bool {
        let Some(Item { notice, approval, .. }) = self.items.remove(key) else { return false };
        let approved = matches!(approval, Approval::UnderWay | Approval::Done);
        let may_have_begun =
            notice.phase == Phase::Started || approved || notice.not_before.is_none_or(|at| at <= now);
        notice.kind == NoticeKind::Freeze && may_have_begun
    }

    /// Records the state of an event's approval.
    pub(crate) fn approval(&mut self, key: &Key, approval: Approval) {
        if let Some(item) = self.items.get_mut(key) {
            item.approval = approval;
        }
    }

    /// Returns an approval that is under way to `Open`, because it ended without a result.
    pub(crate) fn reopen(&mut self, key: &Key) {
        if let Some(item) = self.items.get_mut(key).filter(|item| item.approval == Approval::UnderWay) {
            item.approval = Approval::Open;
        }
    }

    /// Returns the notice while it is active.
    pub(crate) fn get(&self, key: &Key) -> Option<&Notice> {
        self.items.get(key).map(|item| &item.notice)
    }

    /// Whether an active notice calls for a drain.
    pub(crate) fn call_for_a_drain(&self) -> bool {
        self.items.values().any(|item| item.draining)
    }

    /// Whether no notice is active.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The active notices and the worker's responses, for reports.
    pub(crate) fn shown(&self) -> Vec<ActiveNotice> {
        self.items.values().map(Item::shown).collect()
    }

    /// Decides what to do now. What was ordered once is not ordered again by the next review.
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

    /// Replaces the notice by a changed one; what was done about it remains done.
    fn changed(&mut self, notice: Notice, now: Instant) {
        if (self.notice.phase, &self.notice.kind) != (notice.phase, &notice.kind) {
            self.since = now;
        }
        self.not_before_unix_ms = not_before_unix_ms(&notice, now);
        self.looked_at = None;
        self.notice = notice;
    }

    fn shown(&self) -> ActiveNotice {
        let doing = match self.looked_at.unwrap_or(Work::Freely) {
            Work::Freely | Work::Outlived => "going on",
            Work::Below(_) => "short jobs only",
            Work::Paused => "resting",
            Work::DrainBy(_) => "finishing",
            Work::Drain => "draining",
        };
        ActiveNotice {
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
        orders.throttle.tighten(&plan);
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
                // The time between the notice and the beginning of the drain is not part of the
                // drain.
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
                orders.gather.push((source, self.notice.clone(), authority));
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

impl Throttle {
    fn tighten(&mut self, plan: &Plan) {
        self.outlast = self.outlast.max(plan.outlast);
        self.ends_at = self.ends_at.into_iter().chain(plan.ends_at).min();
        match plan.work {
            Work::Paused => self.paused = true,
            Work::Below(limit) => self.below = Some(self.below.map_or(limit, |below| below.min(limit))),
            // The lifecycle handles drains.
            Work::Freely | Work::Outlived | Work::DrainBy(_) | Work::Drain => {}
        }
    }
}

#[cfg(test)]
mod tests;
