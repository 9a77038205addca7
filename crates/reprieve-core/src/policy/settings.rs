//! What can be set about the policy.

use std::time::Duration;

/// Who approves events, so that they need not wait for their `NotBefore`. An approval covers every machine that the event
/// names, also those that are not ready.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#start-an-event>
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Approve {
    /// Nobody: every event begins by itself.
    Never,
    /// The machine that the event names, when it names no other, once every worker on it is ready.
    #[default]
    Sole,
    /// As `Sole`; an event for several machines by the first of them, once every worker on all of them has marked itself
    /// ready in the store.
    Leader,
    /// Every machine for all that the event names, whether those are ready or not.
    Any,
}

/// When an event is approved that a user began, and waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ApproveUser {
    /// When the drain is over, which begins at once.
    #[default]
    Drained,
    /// At once: as Microsoft's sample does, and while the drain begins.
    AtOnce,
}

/// What to do about a move to other hardware that is planned far ahead, because the host is predicted to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PredictedFailure {
    /// Say it, with the advice to redeploy early, and go on until the drain is due.
    #[default]
    Warn,
    /// Drain and approve now, so that the work moves before the host fails.
    Drain,
}

/// The policy's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Who approves. Default: an event's only machine.
    pub approve: Approve,
    /// When a user's event is approved. Default: when drained.
    pub approve_user: ApproveUser,
    /// Freezes known to be shorter than this are approved at once, and not paused for. Default: 10 s, which leases
    /// outlast by far and which most of Azure's are. At most 5 minutes.
    pub approve_freeze_under: Duration,
    /// How long whoever approves waits until all other workers are ready; then it is left to begin by
    /// itself. Default: 5 minutes, of the 10 to 15 that such an event leaves.
    pub approve_wait: Duration,
    /// What a predicted failure leads to. Default: a warning.
    pub predicted_failure: PredictedFailure,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            approve: Approve::default(),
            approve_user: ApproveUser::default(),
            approve_freeze_under: Duration::from_secs(10),
            approve_wait: Duration::from_mins(5),
            predicted_failure: PredictedFailure::default(),
        }
    }
}

impl Policy {
    /// Every fault, one sentence each.
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
