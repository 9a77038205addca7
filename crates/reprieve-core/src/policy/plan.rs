//! What one notice calls for.

use std::time::Duration;

use tokio::time::Instant;

use super::authority::{Authority, authority};
use super::settings::{ApproveUser, Policy, PredictedFailure};
use crate::notice::{Initiator, Notice, NoticeKind, Phase};

/// How long before an event's `NotBefore` its drain is to be over: `NotBefore` has whole seconds, is learnt up to a second
/// late, and approving takes a request.
pub const MARGIN: Duration = Duration::from_secs(5);

/// A `Redeploy` further ahead than this is the move off a host that is predicted to fail: an ordinary one leaves ten
/// minutes, such a one days.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-scheduling>
pub const PREDICTED_AFTER: Duration = Duration::from_hours(1);

/// The longest that work rests for a freeze which has begun. An event is told for about ten minutes after it has begun,
/// the freeze itself lasts seconds.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#the-basics>
pub const PAUSE_MAX: Duration = Duration::from_mins(15);

/// How long after a rebalance recommendation work goes on as before, when nothing has followed.
pub const REBALANCE_QUIET: Duration = Duration::from_mins(10);

/// How long after an event has begun, or could have, a machine that is still here takes up its work again: three times what
/// an event is usually told for. A platform that never takes an event back must not keep a machine idle for ever.
pub const OUTLIVED_AFTER: Duration = Duration::from_mins(30);

/// The notice that an eviction gives at best.
const PREEMPT_NOTICE: Duration = Duration::from_secs(30);

/// What a freeze of unknown length is taken to last: twice what live migrations take at worst.
const FREEZE_UNKNOWN: Duration = Duration::from_mins(1);

/// The longest freeze that leases are made to outlast. A machine that is away for longer keeps its jobs from the others, and
/// one that dies meanwhile keeps them for as long.
const FREEZE_MAX: Duration = PAUSE_MAX;

/// How long before a freeze the leases are made to outlast it.
const HOLD_AHEAD: Duration = Duration::from_mins(1);

/// How far the worker has got, as far as it matters for one notice.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    /// The present.
    pub now: Instant,
    /// Since when the notice has been in its phase.
    pub since: Instant,
    /// The longest a drain may take.
    pub budget: Duration,
    /// A drain has begun for this notice.
    pub draining: bool,
    /// A drain is over: nothing is held and nothing is received.
    pub drained: bool,
    /// The earliest end of a lease; `None` when none is held.
    pub leases_end: Option<Instant>,
}

/// What the worker does with its jobs. The greater, the less work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// As always.
    Freely,
    /// As always again, after a drain: the event should have happened long ago.
    Outlived,
    /// Running jobs go on; none is begun that takes longer than this, or nobody knows how long.
    Below(Duration),
    /// Jobs rest between steps, and none is received.
    Paused,
    /// None is received; jobs that will be done by then go on, the others are given back.
    DrainBy(Instant),
    /// All are given back now.
    Drain,
}

/// What one notice calls for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// What is done with jobs.
    pub work: Work,
    /// Progress is to be saved once, as soon as each job's step ends.
    pub checkpoint: bool,
    /// Every lease is to outlast so much from any moment on.
    pub outlast: Option<Duration>,
    /// This machine is ready for the event: it may begin, as far as it is this machine's to say.
    pub ready: bool,
    /// The operator is to be advised to redeploy this machine early.
    pub redeploy_early: bool,
    /// When the plan may be another, if nothing else happens.
    pub look_again: Option<Instant>,
}

impl Plan {
    const NOTHING: Self = Self {
        work: Work::Freely,
        checkpoint: false,
        outlast: None,
        ready: false,
        redeploy_early: false,
        look_again: None,
    };

    const DRAIN: Self = Self { work: Work::Drain, ..Self::NOTHING };
}

/// Decides what `notice` calls for.
///
/// | notice | plan |
/// |---|---|
/// | `Preempt`, `Signal`, `Manual` | drain now |
/// | any but `Freeze` and advice, Started | drain now |
/// | `Terminate` | receive nothing more; jobs that will be done in time go on, the others are given back; ready when drained |
/// | `Reboot`, `Redeploy` by the platform | checkpoint now, go on, drain so as to end before `NotBefore`; ready when drained |
/// | `Reboot`, `Redeploy` by a user | drain now, ready when drained |
/// | `Redeploy` over an hour ahead | checkpoint now and advise to redeploy early; or, as set and where it is ours to approve, drain now and ready when drained |
/// | `Freeze` known to be short | leases outlast it; ready when they do |
/// | `Freeze` long or unknown | leases outlast it from a minute before; jobs rest while it is Started |
/// | rebalance recommendation | checkpoint now; for ten minutes no job is begun that takes longer than an eviction's notice |
/// | an unknown type | nothing: a guess would stop a healthy worker |
/// | any of the platform's that drained, half an hour after it has begun or could have | work is taken up again |
#[must_use]
pub fn plan(notice: &Notice, own: &Own, policy: &Policy) -> Plan {
    let planned = match (&notice.kind, notice.phase) {
        // The process's own: only it knows when they are over.
        (NoticeKind::Signal | NoticeKind::Manual, _) => return Plan::DRAIN,
        (NoticeKind::Preempt, _) => Plan::DRAIN,
        (NoticeKind::Terminate | NoticeKind::Reboot | NoticeKind::Redeploy, Phase::Started) => Plan::DRAIN,
        (NoticeKind::Terminate, Phase::Scheduled) => terminate(notice, own),
        (NoticeKind::Reboot | NoticeKind::Redeploy, Phase::Scheduled) => restart(notice, own, policy),
        (NoticeKind::Freeze, phase) => freeze(notice, phase, own, policy),
        (NoticeKind::Rebalance, _) => rebalance(notice, own),
        (NoticeKind::Other(_), _) => Plan::NOTHING,
    };
    let at_once = notice.initiator == Initiator::User
        && policy.approve_user == ApproveUser::AtOnce
        && !matches!(notice.kind, NoticeKind::Preempt | NoticeKind::Rebalance | NoticeKind::Other(_));
    until_outlived(Plan { ready: planned.ready || at_once, ..planned }, notice, own)
}

/// `plan`, unless it is a drain for something that should have happened long ago.
fn until_outlived(plan: Plan, notice: &Notice, own: &Own) -> Plan {
    if plan.work != Work::Drain {
        return plan;
    }
    let begun = notice.not_before.filter(|_| notice.phase == Phase::Scheduled).unwrap_or(own.since);
    let outlived = begun.max(own.since) + OUTLIVED_AFTER;
    if own.now < outlived {
        return Plan { look_again: Some(outlived), ..plan };
    }
    Plan { work: Work::Outlived, ..Plan::NOTHING }
}

/// When a drain must begin to be over in time; `None` when that is now, or already was.
fn drain_at(notice: &Notice, own: &Own) -> Option<Instant> {
    let at = notice.not_before?.checked_sub(own.budget + MARGIN)?;
    (at > own.now).then_some(at)
}

fn terminate(notice: &Notice, own: &Own) -> Plan {
    let plan = match drain_at(notice, own) {
        Some(at) => Plan { work: Work::DrainBy(at), look_again: Some(at), ..Plan::NOTHING },
        None => Plan::DRAIN,
    };
    Plan { ready: own.drained, ..plan }
}

fn restart(notice: &Notice, own: &Own, policy: &Policy) -> Plan {
    let drain = Plan { ready: own.drained, ..Plan::DRAIN };
    let Some(at) = drain_at(notice, own) else { return drain };
    // A user waits for it.
    if notice.initiator == Initiator::User {
        return drain;
    }
    let predicted = notice.kind == NoticeKind::Redeploy && at > own.now + PREDICTED_AFTER;
    // Where it would not begin any sooner, a drain would only idle the machine until it does.
    let drains_early = notice.kind == NoticeKind::Redeploy
        && policy.predicted_failure == PredictedFailure::Drain
        && authority(notice, policy) != Authority::None;
    // What was begun for a failure that was hours ahead goes on when it is not so far any more.
    if drains_early && (predicted || own.draining) {
        return drain;
    }
    Plan { checkpoint: true, redeploy_early: predicted, look_again: Some(at), ..Plan::NOTHING }
}

fn freeze(notice: &Notice, phase: Phase, own: &Own, policy: &Policy) -> Plan {
    // While an event stands there may be a second, shorter interruption.
    let outlast = notice.duration.unwrap_or(FREEZE_UNKNOWN).min(FREEZE_MAX) * 2 + MARGIN;
    let held = Plan { outlast: Some(outlast), ..Plan::NOTHING };
    let short = notice.duration.is_some_and(|duration| duration < policy.approve_freeze_under);
    if short {
        let ready = own.leases_end.is_none_or(|end| end >= own.now + outlast);
        return Plan { ready, ..held };
    }
    if notice.duration == Some(Duration::ZERO) {
        return Plan::NOTHING;
    }
    match phase {
        Phase::Started => {
            let until = own.since + PAUSE_MAX;
            let work = if own.now < until { Work::Paused } else { Work::Freely };
            Plan { work, look_again: (own.now < until).then_some(until), ..held }
        }
        Phase::Scheduled => match notice.not_before.and_then(|at| at.checked_sub(HOLD_AHEAD)) {
            Some(at) if at > own.now => Plan { look_again: Some(at), ..Plan::NOTHING },
            _ => held,
        },
    }
}

fn rebalance(notice: &Notice, own: &Own) -> Plan {
    let until = own.since + REBALANCE_QUIET;
    if own.now >= until {
        return Plan::NOTHING;
    }
    // In whole seconds, so that not every look finds another limit to tell everybody of.
    let left = notice.not_before.map_or(0, |at| at.saturating_duration_since(own.now).as_secs());
    Plan {
        work: Work::Below(Duration::from_secs(left).max(PREEMPT_NOTICE)),
        checkpoint: true,
        look_again: Some(until),
        ..Plan::NOTHING
    }
}

#[cfg(test)]
mod tests;
