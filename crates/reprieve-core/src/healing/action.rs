//! What was done to heal a fault: logged and counted in one place, whichever layer did it.

use std::time::Duration;

use crate::telemetry::{ByLayer, Telemetry};

/// The layer that acts. One that can't mend a fault leaves it to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// A job that stands still.
    Job,
    /// A job's thread that does not return.
    Slot,
    /// The worker's process.
    Worker,
    /// The machine.
    Vm,
}

impl Layer {
    /// The layer as it is written in logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Slot => "slot",
            Self::Worker => "worker",
            Self::Vm => "vm",
        }
    }
}

/// An action that heals a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A stalled job is asked to yield, and cut off if it does not.
    StopJob,
    /// A slot is taken for stuck: its job was given up, and its thread has not returned.
    MarkStuck,
    /// Another slot replaces a stuck one.
    ReplaceSlot,
    /// The worker releases everything and ends, to be started again.
    Restart,
    /// The machine's state is stored for a diagnosis.
    Diagnose,
    /// The worker answers that its machine should be replaced.
    ReportUnhealthy,
    /// The fault has gone, and the worker takes that back.
    ReportHealthy,
}

impl Action {
    /// The action as it is written in logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StopJob => "stop_job",
            Self::MarkStuck => "mark_stuck",
            Self::ReplaceSlot => "replace_slot",
            Self::Restart => "restart",
            Self::Diagnose => "diagnose",
            Self::ReportUnhealthy => "report_unhealthy",
            Self::ReportHealthy => "report_healthy",
        }
    }
}

/// What has come of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was begun, and its end is not seen by who noted it.
    Begun,
    /// The fault is mended.
    Healed,
    /// It is not, and the action was given up.
    Failed,
}

impl Outcome {
    /// The outcome as it is written in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Healed => "healed",
            Self::Failed => "failed",
        }
    }
}

/// One action, on a job, a worker or a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealingAction {
    /// The layer.
    pub layer: Layer,
    /// What is done.
    pub action: Action,
    /// The job, worker or machine to which it is done.
    pub subject: String,
    /// The reason, in one sentence.
    pub why: String,
    /// What has come of it.
    pub outcome: Outcome,
    /// How long after it began the fault was found; `None` when that is not known.
    pub found_after: Option<Duration>,
    /// How long the action took; `None` when its end is not seen.
    pub took: Option<Duration>,
}

impl HealingAction {
    /// An action of this layer, which has begun.
    pub fn new(layer: Layer, action: Action, subject: impl Into<String>, why: impl Into<String>) -> Self {
        let (outcome, found_after, took) = (Outcome::Begun, None, None);
        Self { layer, action, subject: subject.into(), why: why.into(), outcome, found_after, took }
    }

    /// Logs and counts it. Every action of every layer passes here when it is decided.
    pub fn note(&self, telemetry: &Telemetry) {
        let Self { layer, action, subject, why, .. } = self;
        let (layer, action) = (layer.as_str(), action.as_str());
        telemetry.healing_actions.get_or_create(&ByLayer { layer, action }).inc();
        tracing::warn!(layer, action, subject, why, "healing a fault");
    }
}
