//! Interruption notices, in the terms of Azure's Scheduled Events.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// The id of a notice while it is active: the event id of a Scheduled Event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoticeId(String);

impl NoticeId {
    /// Wraps the source's own id in lower case. Scheduled Events ids come in upper and lower case;
    /// both mean the same.
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

/// The kind of an interruption.
///
/// The platform's five event types are listed at
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-properties>.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoticeKind {
    /// The Spot VM is being evicted.
    Preempt,
    /// The VM is being deleted.
    Terminate,
    /// The VM will restart; its memory is lost.
    Reboot,
    /// The VM moves to another host; ephemeral disks are lost.
    Redeploy,
    /// The VM pauses for a few seconds.
    Freeze,
    /// The VM is a Spot VM, and likelier than others to be evicted soon. A recommendation only: no
    /// event follows from it by itself, and it can't be approved.
    Rebalance,
    /// The process was asked to stop by a signal.
    Signal,
    /// An operator or program asked for a drain.
    Manual,
    /// The VM has a proven fault, and its worker asks for its replacement.
    Repair,
    /// Half of the worker's slots are stuck, or stuck ones hold the places of a kind with a limit, and its process starts again.
    Restart,
    /// An event type that this version does not know.
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
            Self::Repair => "Repair",
            Self::Restart => "Restart",
            Self::Other(name) => name,
        }
    }
}

/// The platform's progress with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It will not begin before [`Notice::not_before`].
    Scheduled,
    /// It has begun, or begins at any moment.
    Started,
}

/// The initiator of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Initiator {
    /// The platform.
    Platform,
    /// A user with rights to the VM, who waits for the event to begin.
    User,
    /// Unknown, as before api-version 2019-08-01.
    #[default]
    Unknown,
}

/// An interruption that concerns this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The id while the notice is active.
    pub id: NoticeId,
    /// The kind of interruption.
    pub kind: NoticeKind,
    /// Whether it has begun.
    pub phase: Phase,
    /// When this process received the notice.
    pub received: Instant,
    /// The earliest moment at which it may begin; `None` when the platform gave no time (a blank
    /// `NotBefore`).
    pub not_before: Option<Instant>,
    /// How long the machine will be interrupted: zero when it will not be, `None` when that is
    /// unknown.
    pub duration: Option<Duration>,
    /// The initiator of the event.
    pub initiator: Initiator,
    /// Every machine that it affects, by the platform's names. Empty when that is unknown, or when
    /// it concerns this process only.
    pub resources: Vec<String>,
    /// The name of this machine in `resources`; empty when it is none of them.
    pub machine: String,
}

impl Notice {
    /// A notice received now, with only the budget as its deadline.
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

    /// The lead time that it gives: from its receipt to [`not_before`](Self::not_before). Zero of an event that has
    /// begun, or has no time; `None` of a request of this machine's own, which announces nothing.
    #[must_use]
    pub fn lead(&self) -> Option<Duration> {
        match (&self.kind, self.phase, self.not_before) {
            (NoticeKind::Signal | NoticeKind::Manual | NoticeKind::Repair | NoticeKind::Restart, ..) => None,
            (_, Phase::Scheduled, Some(at)) => Some(at.saturating_duration_since(self.received)),
            (_, Phase::Scheduled | Phase::Started, _) => Some(Duration::ZERO),
        }
    }

    /// The same notice, which begins no earlier than `not_before`.
    #[must_use]
    pub fn at(mut self, not_before: Instant) -> Self {
        self.phase = Phase::Scheduled;
        self.not_before = Some(not_before);
        self
    }

    /// The same notice for these machines; this one is `machine`.
    #[must_use]
    pub fn of<'a>(mut self, resources: impl IntoIterator<Item = &'a str>, machine: &str) -> Self {
        self.resources = resources.into_iter().map(str::to_owned).collect();
        machine.clone_into(&mut self.machine);
        self
    }
}
