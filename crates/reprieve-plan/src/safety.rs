//! The net below every policy: a regular machine from the last safe moment on.
//!
//! The moment is when the work left plus two moves fill the time left. Work counts as left until it
//! is saved, because an eviction loses the rest. From then on a regular machine needs one move, and
//! the second is for the machine that the task leaves at that moment. Regular machines are not
//! evicted, so the deadline is met, whatever the policy and Spot do.

use crate::policy::{Moment, Place, Policy};

/// Where the task runs: on a regular machine if the net holds it, else where `policy` says.
///
/// A policy that asks for Spot while there is none gets nothing.
#[must_use]
pub fn decide(policy: &dyn Policy, moment: &Moment<'_>) -> Place {
    if slack_ms(moment) == 0 {
        return Place::Regular;
    }
    match policy.next(moment) {
        Place::Spot if !moment.spot => Place::Nothing,
        place => place,
    }
}

/// The time until the net holds the task if it saves nothing until then; zero if it does.
#[must_use]
pub fn slack_ms(moment: &Moment<'_>) -> u64 {
    moment.time_left_ms.saturating_sub(moment.task.reserve_ms(moment.unsaved_ms + moment.work_left_ms))
}
