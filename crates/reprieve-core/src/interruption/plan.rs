//! Decides what one notice calls for.

use std::time::Duration;

use tokio::time::Instant;

use super::authority::{Authority, authority};
use super::settings::{ApproveUser, DuringFreeze, Policy, PredictedFailure};
use crate::notice::{Initiator, Notice, NoticeKind, Phase};

/// How long before an event's `NotBefore` its drain must have ended: `NotBefore` has whole seconds,
/// the worker learns it up to a second late, and an approval takes a request.
pub const MARGIN: Duration = Duration::from_secs(5);

/// An event further ahead than this moves the VM off a host that is predicted to fail: an ordinary one
/// is announced ten or fifteen minutes ahead, such a one days ahead.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-scheduling>
pub const PREDICTED_AFTER: Duration = Duration::from_hours(1);

/// The longest time for which jobs rest for a freeze that has begun. An event stays active for
/// about ten minutes after its beginning, while the freeze itself lasts seconds.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#the-basics>
pub const PAUSE_MAX: Duration = Duration::from_mins(15);

/// How long a rebalance recommendation restricts work if no event follows it.
pub const REBALANCE_QUIET: Duration = Duration::from_mins(10);

/// How long after an event has begun, or could have begun, a machine that still runs resumes work:
/// three times as long as an event usually stays active. Otherwise a platform that never ends an
/// event would keep a machine idle without limit.
pub const OUTLIVED_AFTER: Duration = Duration::from_mins(30);

/// The longest notice that an eviction gives.
const PREEMPT_NOTICE: Duration = Duration::from_secs(30);

/// The assumed duration of a freeze of unknown length: twice the longest of a live migration.
const FREEZE_UNKNOWN: Duration = Duration::from_mins(1);

/// The longest freeze for which leases are extended. A machine that is frozen for longer keeps its
/// jobs from the others, and one that dies meanwhile keeps them for as long.
const FREEZE_MAX: Duration = PAUSE_MAX;

/// How long before a freeze the leases are extended.
const HOLD_AHEAD: Duration = Duration::from_mins(1);

/// The worker's state, as far as it matters for one notice.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    /// The present time.
    pub now: Instant,
    /// Since when the notice has been in its phase.
    pub since: Instant,
    /// The longest time that a drain may take.
    pub budget: Duration,
    /// Whether a drain has begun for this notice.
    pub draining: bool,
    /// Whether a drain has ended: nothing is held and nothing is received.
    pub drained: bool,
    /// The earliest end of a lease; `None` when no lease is held.
    pub leases_end: Option<Instant>,
}

/// How much work the worker does. A greater value means less work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Work without restrictions.
    Freely,
    /// Work without restrictions again, after a drain: the event is long overdue.
    Outlived,
    /// Running jobs continue; a job is started only if it is expected to take less than this.
    Below(Duration),
    /// Jobs rest between steps, and nothing is received.
    Paused,
    /// Nothing is received; jobs that will be done by then continue, the others are released.
    DrainBy(Instant),
    /// All jobs are saved and released now.
    Drain,
}

/// The response that one notice calls for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// How to treat the jobs.
    pub work: Work,
    /// Save progress once, as soon as each job's step ends.
    pub checkpoint: bool,
    /// Every lease must last at least this long, from any moment on.
    pub outlast: Option<Duration>,
    /// This machine is ready for the event: it may begin, as far as this machine is concerned.
    pub ready: bool,
    /// Advise the operator to redeploy this machine early.
    pub redeploy_early: bool,
    /// When this machine's work ends, although it goes on until then. A job that takes longer had better begin on
    /// another machine.
    pub ends_at: Option<Instant>,
    /// When the plan may change, if nothing else happens.
    pub look_again: Option<Instant>,
}

impl Plan {
    const NOTHING: Self = Self {
        work: Work::Freely,
        checkpoint: false,
        outlast: None,
        ready: false,
        redeploy_early: false,
        ends_at: None,
        look_again: None,
    };

    const DRAIN: Self = Self { work: Work::Drain, ..Self::NOTHING };
}

/// Decides what `notice` calls for.
///
/// | notice | plan |
/// |---|---|
/// | `Preempt`, `Signal`, `Manual`, `Repair`, `Restart` | drain now |
/// | `Terminate`, `Reboot`, `Redeploy`, Started | drain now |
/// | `Terminate` | receive nothing more; jobs done in time continue, release the others; ready when drained |
/// | `Reboot`, `Redeploy` by the platform | save now, continue, leave longer jobs to others, drain to end before `NotBefore`; ready when drained |
/// | `Reboot`, `Redeploy` by a user | drain now; ready when drained |
/// | `Redeploy` over an hour ahead | save now, advise to redeploy early; if set and ours to approve, drain now |
/// | `Freeze` known to be short | extend leases past it; ready when they are |
/// | `Freeze` long or unknown | extend leases past it from a minute before; if set, jobs pause while it is Started |
/// | rebalance recommendation | save now; for ten minutes start only jobs to end before `NotBefore` or in 30 s |
/// | unknown type | save now, continue, drain to end before `NotBefore`; never ready |
/// | any of the platform's that drained, half an hour after it has begun or could have | resume work |
#[must_use]
pub fn plan(notice: &Notice, own: &Own, policy: &Policy) -> Plan {
    let planned = match (&notice.kind, notice.phase) {
        // These come from the process itself, which alone knows when they have ended.
        (NoticeKind::Signal | NoticeKind::Manual | NoticeKind::Repair | NoticeKind::Restart, _) => {
            return Plan::DRAIN;
        }
        (NoticeKind::Preempt, _) => Plan::DRAIN,
        (NoticeKind::Terminate | NoticeKind::Reboot | NoticeKind::Redeploy, Phase::Started) => Plan::DRAIN,
        (NoticeKind::Terminate, Phase::Scheduled) => terminate(notice, own),
        (NoticeKind::Reboot | NoticeKind::Redeploy, Phase::Scheduled) => restart(notice, own, policy),
        (NoticeKind::Freeze, phase) => freeze(notice, phase, own, policy),
        (NoticeKind::Rebalance, _) => rebalance(notice, own),
        (NoticeKind::Other(_), phase) => unknown(notice, phase, own),
    };
    let at_once = notice.initiator == Initiator::User
        && policy.approve_user == ApproveUser::AtOnce
        && !matches!(notice.kind, NoticeKind::Preempt | NoticeKind::Rebalance | NoticeKind::Other(_));
    until_outlived(Plan { ready: planned.ready || at_once, ..planned }, notice, own)
}

/// Returns `plan`, unless it is a drain for an event that is long overdue.
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

/// When a drain must begin to end in time; `None` when that is now or in the past.
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
    // A user waits for the event.
    if notice.initiator == Initiator::User {
        return drain;
    }
    let predicted = is_predicted(notice, own);
    // If this machine can't approve the event, an early drain would only idle the machine until it
    // begins.
    let drains_early = notice.kind == NoticeKind::Redeploy
        && policy.predicted_failure == PredictedFailure::Drain
        && authority(notice, policy) != Authority::None;
    // A drain that began when the event was hours ahead continues when it is closer.
    if drains_early && (predicted || own.draining) {
        return drain;
    }
    Plan {
        checkpoint: true,
        redeploy_early: predicted,
        ends_at: Some(at),
        look_again: Some(at),
        ..Plan::NOTHING
    }
}

/// Whether the platform moves this VM because its host is predicted to fail. The type of such an event is
/// not documented; its time is days ahead, where other events come within minutes.
fn is_predicted(notice: &Notice, own: &Own) -> bool {
    notice.initiator != Initiator::User && notice.not_before.is_some_and(|at| at > own.now + PREDICTED_AFTER)
}

/// A type that this version does not know, such as that of an OS image upgrade, which is not
/// documented. It may end the VM at its `NotBefore`; without a time it is taken for advice.
fn unknown(notice: &Notice, phase: Phase, own: &Own) -> Plan {
    let redeploy_early = phase == Phase::Scheduled && is_predicted(notice, own);
    let advised = Plan { checkpoint: true, redeploy_early, ..Plan::NOTHING };
    match (phase, notice.not_before) {
        (Phase::Started, _) => Plan::DRAIN,
        (Phase::Scheduled, None) => advised,
        (Phase::Scheduled, Some(_)) => match drain_at(notice, own) {
            Some(at) => Plan { ends_at: Some(at), look_again: Some(at), ..advised },
            None => Plan::DRAIN,
        },
    }
}

fn freeze(notice: &Notice, phase: Phase, own: &Own, policy: &Policy) -> Plan {
    // While an event is active, there may be a second, shorter interruption.
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
        Phase::Started if policy.during_freeze == DuringFreeze::Work => held,
        Phase::Started => {
            let until = own.since + PAUSE_MAX;
            let work = if own.now < until { Work::Paused } else { Work::Freely };
            Plan { work, look_again: (own.now < until).then_some(until), ..held }
        }
        Phase::Scheduled => match notice.not_before.and_then(|at| at.checked_sub(HOLD_AHEAD)) {
            Some(at) if at > own.now => {
                let redeploy_early = is_predicted(notice, own);
                Plan { redeploy_early, look_again: Some(at), ..Plan::NOTHING }
            }
            _ => held,
        },
    }
}

fn rebalance(notice: &Notice, own: &Own) -> Plan {
    let until = own.since + REBALANCE_QUIET;
    if own.now >= until {
        return Plan::NOTHING;
    }
    // In whole seconds, so that not every review finds another limit to announce to all jobs.
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
