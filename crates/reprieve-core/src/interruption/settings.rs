//! The settings of the policy.

use std::time::Duration;

/// Which machine approves events, so that they need not wait for their `NotBefore`. An approval
/// covers every machine that the event names, even those that are not ready.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#start-an-event>
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Approve {
    /// None: every event begins by itself.
    Never,
    /// The machine that the event names, if it names no other, once every worker on it is ready.
    #[default]
    Sole,
    /// As `Sole`; an event for several machines is approved by the first of them, once every worker
    /// on all of them has marked itself ready in the store.
    Leader,
    /// Every machine approves for all machines that the event names, whether those are ready or
    /// not.
    Any,
}

/// When to approve an event that a user initiated, and waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ApproveUser {
    /// After the drain, which begins at once.
    #[default]
    Drained,
    /// At once, while the drain begins, as Microsoft's sample does.
    AtOnce,
}

/// The response to a move to other hardware that is announced far ahead, because the host is
/// predicted to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PredictedFailure {
    /// Log it with the advice to redeploy early, and work until the drain is due.
    #[default]
    Warn,
    /// Drain and approve now, so that the work moves before the host fails.
    Drain,
}

/// The behaviour of jobs during a freeze that is long or of unknown length, from its beginning until the
/// event has ended, about ten minutes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DuringFreeze {
    /// They continue: memory survives a freeze, and their leases outlast it.
    #[default]
    Work,
    /// They pause between steps, saved, for at most 15 minutes.
    Pause,
}

/// The policy's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Which machine approves. Default: an event's only machine.
    pub approve: Approve,
    /// When a user's event is approved. Default: when drained.
    pub approve_user: ApproveUser,
    /// Freezes known to be shorter than this are approved at once, and jobs do not pause for them.
    /// Default: 10 s; leases last far longer, and most of Azure's freezes are shorter. At most 5
    /// minutes.
    pub approve_freeze_under: Duration,
    /// The behaviour of jobs during other freezes. Default: they continue.
    pub during_freeze: DuringFreeze,
    /// How long the approving machine waits until all other workers are ready; after that the event
    /// begins by itself. Default: 5 minutes, of the 10 to 15 by which such an event is announced
    /// ahead. At most an hour.
    pub approve_wait: Duration,
    /// The response to a predicted failure. Default: a warning.
    pub predicted_failure: PredictedFailure,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            approve: Approve::default(),
            approve_user: ApproveUser::default(),
            approve_freeze_under: Duration::from_secs(10),
            during_freeze: DuringFreeze::default(),
            approve_wait: Duration::from_mins(5),
            predicted_failure: PredictedFailure::default(),
        }
    }
}

impl Policy {
    /// Returns every invalid setting, one sentence each.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.approve_freeze_under > Duration::from_mins(5) {
            faults.push(format!(
                "approve-freeze-under is {:?}, and must be at most 5 minutes: leases are renewed to outlast it",
                self.approve_freeze_under
            ));
        }
        if self.approve_wait > Duration::from_hours(1) {
            faults.push(format!("approve-wait is {:?}, and must be at most an hour", self.approve_wait));
        }
        faults
    }
}
