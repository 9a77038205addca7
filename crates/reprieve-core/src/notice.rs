//! An interruption in the platform's words.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Names a notice for as long as it stands: the event id of a Scheduled Event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoticeId(String);

impl NoticeId {
    /// Takes the source's own id. Scheduled Events ids come in upper and in lower case; both mean the same.
    pub fn new(id: &str) -> Self {
        Self(id.to_ascii_lowercase())
    }

    /// The id as text, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NoticeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is going to happen to this machine.
///
/// The platform's five event types are listed at
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-properties>.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoticeKind {
    /// The Spot VM is being taken back.
    Preempt,
    /// The VM is being deleted.
    Terminate,
    /// The VM will restart; its memory is lost.
    Reboot,
    /// The VM moves to another host; ephemeral disks are lost.
    Redeploy,
    /// The VM pauses for a few seconds.
    Freeze,
    /// The VM is a Spot VM and likelier than others to be taken back soon. Only an advice: nothing follows from it by
    /// itself, and it can't be approved.
    Rebalance,
    /// The process was asked to stop by a signal.
    Signal,
    /// Somebody asked for a drain.
    Manual,
    /// An event type this version does not know.
    Other(String),
}

impl NoticeKind {
    /// The kind as it is written in logs, reports and metric labels.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Preempt => "Preempt",
            Self::Terminate => "Terminate",
            Self::Reboot => "Reboot",
            Self::Redeploy => "Redeploy",
            Self::Freeze => "Freeze",
            Self::Rebalance => "SpotRebalanceRecommendation",
            Self::Signal => "Signal",
            Self::Manual => "Manual",
            Self::Other(name) => name,
        }
    }
}

/// How far the platform has got with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It will not begin before [`Notice::not_before`].
    Scheduled,
    /// It has begun, or begins at any moment.
    Started,
}

/// Who began an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Initiator {
    /// The platform.
    Platform,
    /// Somebody with rights to the VM, who waits for it to happen.
    User,
    /// Nobody said, as before api-version 2019-08-01.
    #[default]
    Unknown,
}

/// A parsed interruption that concerns this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Its name while it stands.
    pub id: NoticeId,
    /// What will happen.
    pub kind: NoticeKind,
    /// Whether it has begun.
    pub phase: Phase,
    /// When this process learnt of it.
    pub received: Instant,
    /// The earliest moment at which it may begin; `None` when the platform gave none (a blank `NotBefore`).
    pub not_before: Option<Instant>,
    /// How long the machine will be interrupted: zero when it will not be, `None` when that is unknown.
    pub duration: Option<Duration>,
    /// Who began it.
    pub initiator: Initiator,
    /// Every machine it will happen to, as the platform names them. Empty when nobody said, or when it concerns this
    /// process alone.
    pub resources: Vec<String>,
    /// Which of `resources` this machine is; blank when it is none of them.
    pub machine: String,
}

impl Notice {
    /// A notice received now, that leaves its deadline to the budget.
    #[must_use]
    pub fn now(id: &str, kind: NoticeKind) -> Self {
        Self {
            id: NoticeId::new(id),
            kind,
            phase: Phase::Started,
            received: Instant::now(),
            not_before: None,
            duration: None,
            initiator: Initiator::default(),
            resources: Vec::new(),
            machine: String::new(),
        }
    }

    /// The same notice, beginning no earlier than `not_before`.
    #[must_use]
    pub fn at(mut self, not_before: Instant) -> Self {
        self.phase = Phase::Scheduled;
        self.not_before = Some(not_before);
        self
    }

    /// The same notice, for these machines, of which this one is `machine`.
    #[must_use]
    pub fn of<'a>(mut self, resources: impl IntoIterator<Item = &'a str>, machine: &str) -> Self {
        self.resources = resources.into_iter().map(str::to_owned).collect();
        machine.clone_into(&mut self.machine);
        self
    }
}
