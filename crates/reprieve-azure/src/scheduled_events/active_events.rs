//! Compares each document with those before it: finds new, changed and ended events, and whether
//! they concern this VM. Documents may come in several api-versions side by side.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{Error, ErrorKind, Initiator, Notice, NoticeId, Phase, Result};
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::document::{Answer, ApiVersion, Event, EventType, NotBefore, ServiceClock};

/// How long an event that one api-version listed stays active while another one, which knows its
/// type, leaves it out. Answers come each second, or every 6 s where they are slow.
const LISTED_MAX: Duration = Duration::from_secs(10);

/// How long it is remembered that an event has ended: longer than any answer takes.
const ENDED_KEPT: Duration = Duration::from_mins(3);

/// How long an event stays active when an older api-version than the one that contained it leaves
/// it out. Newer versions are tried every 30 s; after this time no document will say how the event
/// ended.
const HIDDEN_MAX: Duration = Duration::from_hours(2);

/// The active events, as of the last document.
///
/// ```text
///                    ┌─┐ Changed
///                    ▼ │
///   absent ───► Scheduled ───► absent: Withdrawn
///      │ Noticed    │
///      │            ▼ Started
///      └───────► Started ────► absent: Completed
/// ```
///
/// There is no status for "completed": an event just vanishes, and its last phase decides which
/// ending that was. Events are compared field by field and never skipped because of the document's
/// incarnation, which may restart.
///
/// An event is active while any api-version lists it. Its fields are those that one version lists;
/// another version's answer only moves it forward, from scheduled to started, so that answers which
/// cross do not seem to change it.
///
/// An event that no longer names this VM has ended for this VM and is new for the other VMs, and
/// the reverse.
#[derive(Debug, Default)]
pub struct ActiveEvents {
    events: BTreeMap<Key, ActiveEvent>,
    /// The events that have ended, and when the answer without them was requested. An answer that was
    /// requested before is older, although it came later.
    ended: BTreeMap<Key, Instant>,
}

type Key = (Scope, NoticeId);

/// The last documented state of an event.
#[derive(Debug, Clone)]
struct ActiveEvent {
    event: Event,
    /// The api-version of the document that its fields are from.
    version: ApiVersion,
    /// The last time at which each api-version listed it.
    listed: BTreeMap<ApiVersion, Listed>,
    /// When it last changed.
    changed_at: SystemTime,
}

/// An answer that lists an event.
#[derive(Debug, Clone, Copy)]
struct Listed {
    /// The time of the request.
    sent: Instant,
    /// The time of receipt.
    at: Instant,
}

impl Listed {
    const fn in_answer(answer: &Answer) -> Self {
        Self { sent: answer.sent, at: answer.at }
    }
}

impl ActiveEvents {
    /// Applies an answer for the VM called `name`, and returns the changes since the one before.
    ///
    /// Changes of active events come before those of ended ones. A reader that applies them one by
    /// one is therefore never without a notice while one is active. This VM's changes come before
    /// other VMs'.
    #[must_use = "a change that is not passed on is a notice lost"]
    pub fn update(&mut self, answer: &Answer, name: &str) -> Vec<EventChange> {
        // Keyed by id: an id that occurs twice in a document must not be reported as changing at
        // every poll.
        let documented: BTreeMap<Key, &Event> =
            answer.document.events.iter().map(|event| (key(event, name), event)).collect();
        let mut changes = Vec::new();
        self.ended.retain(|_, sent| answer.age_of(*sent) < ENDED_KEPT);
        for (key, event) in &documented {
            if self.ended.get(key).is_some_and(|sent| answer.sent < *sent) {
                continue;
            }
            let before = self.events.get_mut(key);
            if let Some(before) = before
                && before.is_newer_than(event, answer)
            {
                before.listed.insert(answer.version, Listed::in_answer(answer));
                continue;
            }
            let before = self.events.get(key);
            let event = normalized(event, before.map(|before| &before.event), answer.version);
            let kind = change_kind(before.map(|before| &before.event), &event);
            let changed_at =
                before.filter(|_| kind.is_none()).map_or(answer.wall, |before| before.changed_at);
            let mut listed = before.map(|before| before.listed.clone()).unwrap_or_default();
            listed.insert(answer.version, Listed::in_answer(answer));
            let now = ActiveEvent { event, version: answer.version, listed, changed_at };
            if let Some(kind) = kind {
                changes.push(now.change(kind, key.0));
            }
            self.events.insert(key.clone(), now);
        }
        let has_ended = |key: &Key, event: &mut ActiveEvent| {
            !documented.contains_key(key) && !event.remains_without(answer)
        };
        for ((scope, id), mut ended) in self.events.extract_if(.., has_ended) {
            self.ended.insert((scope, id), answer.sent);
            let kind = ChangeKind::ending(ended.event.event_status.phase());
            (ended.version, ended.changed_at) = (answer.version, answer.wall);
            changes.push(EventChange { not_before: None, ..ended.change(kind, scope) });
        }
        changes
    }

    /// The active events as if they were new; this VM's events first.
    pub fn changes(&self) -> impl Iterator<Item = EventChange> {
        self.events.iter().map(|((scope, _), active)| {
            let kind = match active.event.event_status.phase() {
                Phase::Scheduled => ChangeKind::Noticed,
                Phase::Started => ChangeKind::Started,
            };
            active.change(kind, *scope)
        })
    }

    /// The id to approve for the notice `id`, in the platform's spelling; `None` when the event has
    /// ended and needs no approval.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an event that can't be approved: a recommendation, an
    /// event without an id, and one that does not name this VM, so that other VMs decide about it.
    pub fn approval(&self, id: &NoticeId) -> Result<Option<&str>> {
        let refuse = |why: &str| {
            let message = format!("event {id} {why}; the event begins at its own time");
            Err(Error::new(ErrorKind::Invalid, "approve an event", message))
        };
        match (self.of(Scope::ThisVm, id), self.of(Scope::OtherVms, id)) {
            (None, None) => Ok(None),
            (None, Some(_)) => refuse("is for other VMs"),
            (Some(event), _) if event.event_type == EventType::SpotRebalanceRecommendation => {
                refuse("is a recommendation")
            }
            (Some(event), _) if event.event_id.is_empty() => refuse("has no id"),
            (Some(event), _) => Ok(Some(&event.event_id)),
        }
    }

    fn of(&self, scope: Scope, id: &NoticeId) -> Option<&Event> {
        self.events.get(&(scope, id.clone())).map(|active| &active.event)
    }
}

impl ActiveEvent {
    fn change(&self, kind: ChangeKind, scope: Scope) -> EventChange {
        let not_before = match NotBefore::read(&self.event.not_before) {
            NotBefore::At(at) => Some(at),
            NotBefore::Blank | NotBefore::Unreadable => None,
        };
        let (event, version, at) = (self.event.clone(), self.version, self.changed_at);
        EventChange { kind, scope, event, not_before, version, at }
    }

    /// Whether the fields are from another api-version that still lists the event, and `listed` does
    /// not move it forward.
    fn is_newer_than(&self, listed: &Event, answer: &Answer) -> bool {
        let is_listed = self.listed.get(&self.version).is_some_and(|it| answer.age_of(it.at) < LISTED_MAX);
        let phases = (self.event.event_status.phase(), listed.event_status.phase());
        let moves = phases == (Phase::Scheduled, Phase::Started);
        answer.version != self.version && is_listed && !moves
    }

    /// Notes that `answer` lacks the event. Returns whether it may still be active: a later request
    /// listed it, another version lists it, or `answer` leaves it out because its version is older
    /// than the event's type.
    fn remains_without(&mut self, answer: &Answer) -> bool {
        if self.listed.values().any(|listed| answer.sent < listed.sent) {
            return true;
        }
        self.listed.remove(&answer.version);
        // Versions older than the documented one are polled only while no newer one answers, so they do not
        // go on to say that they list an event.
        let is_overruled = |version: ApiVersion| {
            version < ApiVersion::DOCUMENTED
                && version < answer.version
                && answer.version.knows(&self.event.event_type)
        };
        self.listed.retain(|version, _| !is_overruled(*version));
        self.listed.iter().any(|(version, listed)| {
            let is_hidden = answer.version < *version && !answer.version.knows(&self.event.event_type);
            answer.age_of(listed.at) < if is_hidden { HIDDEN_MAX } else { LISTED_MAX }
        })
    }
}

fn key(event: &Event, name: &str) -> Key {
    let scope = if event.concerns(name) { Scope::ThisVm } else { Scope::OtherVms };
    (scope, event.notice_id())
}

/// Normalizes the event for comparison: removes fields without meaning, and fills in those that the
/// api-version in use leaves out.
fn normalized(event: &Event, before: Option<&Event>, version: ApiVersion) -> Event {
    let mut event = event.clone();
    if event.event_status.phase() == Phase::Started {
        // `NotBefore` means nothing once the event has begun.
        event.not_before.clear();
    }
    let Some(before) = before else { return event };
    // The id's case may differ between answers.
    before.event_id.clone_into(&mut event.event_id);
    if !version.has_description() && event.description.is_empty() {
        before.description.clone_into(&mut event.description);
    }
    if !version.has_source() && event.event_source.is_empty() {
        before.event_source.clone_into(&mut event.event_source);
    }
    if !version.has_duration() && event.duration_in_seconds.is_none() {
        event.duration_in_seconds = before.duration_in_seconds;
    }
    event
}

/// The change of an active event; `None` when it is the same as before.
fn change_kind(before: Option<&Event>, now: &Event) -> Option<ChangeKind> {
    match (before.map(|event| event.event_status.phase()), now.event_status.phase()) {
        (None | Some(Phase::Scheduled), Phase::Started) => Some(ChangeKind::Started),
        (None, Phase::Scheduled) => Some(ChangeKind::Noticed),
        (Some(_), _) if before != Some(now) => Some(ChangeKind::Changed),
        (Some(_), _) => None,
    }
}

/// One event that was announced, has changed or has gone.
///
/// Serializes as an object of `what`, `whose`, `event` (in the service's own format), `not_before`
/// and `at` (RFC 3339, or null) and `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventChange {
    /// The kind of change.
    #[serde(rename = "what")]
    pub kind: ChangeKind,
    /// Which VMs the event concerns.
    #[serde(rename = "whose")]
    pub scope: Scope,
    /// The event as last documented, also after it has ended. Fields that the api-version in use
    /// leaves out keep the values of an earlier answer. `NotBefore` is blank once the event has
    /// begun.
    pub event: Event,
    /// The earliest time at which the event may begin. `None` when it has begun or ended, and when
    /// the service gave no readable time, which must be treated as "at once".
    #[serde(serialize_with = "optional_time")]
    pub not_before: Option<SystemTime>,
    /// The api-version of the document that contained the change.
    pub version: ApiVersion,
    /// When that document was received.
    #[serde(serialize_with = "time")]
    pub at: SystemTime,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The event is new, and has not begun.
    Noticed,
    /// A field has changed: its `NotBefore`, its duration, its resources.
    Changed,
    /// The event has begun. It may never have been [`Noticed`](Self::Noticed).
    Started,
    /// The event has gone without having begun.
    Withdrawn,
    /// The event had begun, and has ended.
    Completed,
}

impl ChangeKind {
    /// The kind as it appears in logs and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Changed => "changed",
            Self::Started => "started",
            Self::Withdrawn => "withdrawn",
            Self::Completed => "completed",
        }
    }

    /// Whether the event has ended or was withdrawn.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Withdrawn | Self::Completed)
    }

    /// The ending of an event that was last in this phase and has gone.
    pub(super) const fn ending(phase: Phase) -> Self {
        match phase {
            Phase::Scheduled => Self::Withdrawn,
            Phase::Started => Self::Completed,
        }
    }
}

/// Which VMs an event concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Scope {
    /// This VM, and maybe others; `Resources` lists them all.
    #[serde(rename = "this")]
    ThisVm,
    /// Other VMs only, of the same scale set or availability set.
    #[serde(rename = "rest")]
    OtherVms,
}

impl EventChange {
    /// The event's id as a notice id.
    #[must_use]
    pub fn id(&self) -> NoticeId {
        self.event.notice_id()
    }

    /// Converts the change for the worker of the VM called `name`, received at `clock`; `None` for an
    /// event of other VMs.
    #[must_use]
    pub fn for_worker(&self, name: &str, clock: ServiceClock) -> Option<Change> {
        if self.scope == Scope::OtherVms {
            return None;
        }
        Some(match self.kind {
            ChangeKind::Withdrawn => Change::Over(self.id(), Ending::Withdrawn),
            ChangeKind::Completed => Change::Over(self.id(), Ending::Completed),
            ChangeKind::Noticed | ChangeKind::Changed | ChangeKind::Started => {
                Change::Noticed(self.notice(name, clock))
            }
        })
    }

    fn notice(&self, name: &str, clock: ServiceClock) -> Notice {
        let event = &self.event;
        Notice {
            id: self.id(),
            kind: event.event_type.kind(),
            phase: event.event_status.phase(),
            received: clock.at,
            // A time that can't be read may be any; an event of an unknown type is advice without one.
            not_before: self.not_before.map(|at| clock.instant(at)).or_else(|| {
                (NotBefore::read(&event.not_before) == NotBefore::Unreadable).then_some(clock.at)
            }),
            duration: event.duration(),
            initiator: match event.event_source.as_str() {
                "Platform" => Initiator::Platform,
                "User" => Initiator::User,
                _ => Initiator::Unknown,
            },
            resources: event.resources.clone(),
            machine: event
                .resources
                .iter()
                .find(|it| it.eq_ignore_ascii_case(name))
                .cloned()
                .unwrap_or_default(),
        }
    }
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn optional_time<S: Serializer>(at: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => time(at, serializer),
        None => serializer.serialize_none(),
    }
}

/// Serializes a time; null for one outside jiff's range.
fn time<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    Timestamp::try_from(*at).ok().serialize(serializer)
}

#[cfg(test)]
mod tests;
