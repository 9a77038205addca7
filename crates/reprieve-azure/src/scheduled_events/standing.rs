//! Compares each document with those before it: what is new for this VM, what has changed, what is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reprieve_core::clock::instant_at;
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{Error, ErrorKind, Initiator, Notice, NoticeId, Phase, Result};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::NotBefore;
use super::document::{Document, Event, EventType};

/// The events that stand for this VM, as of the last document.
///
/// ```text
///                    ┌─┐ another NotBefore
///                    ▼ │
///   absent ───► Scheduled ───► absent: Over(Withdrawn)
///      │            │
///      │            ▼
///      └───────► Started ────► absent: Over(Completed)
///
///   each arrow into Scheduled or Started is a Noticed
/// ```
///
/// There is no status for "completed": an event just vanishes, and what it had come to says which ending that was.
/// Events are compared field by field and never skipped by the document's incarnation, which may start again.
#[derive(Debug, Default)]
pub struct Standing {
    ours: BTreeMap<NoticeId, Seen>,
    /// Events of the rest of the set, so that each is mentioned in the log once and not at every poll.
    elsewhere: BTreeSet<NoticeId>,
}

/// What was last said of an event, as far as it makes a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    event_id: String,
    event_type: EventType,
    phase: Phase,
    not_before: String,
    /// Whether it names this VM and no other.
    sole: bool,
}

impl Standing {
    /// Takes in the document that was received at `now` by the VM called `name`, and returns what has changed since
    /// the one before.
    ///
    /// Notices come before endings, so that a caller who acts on one change after the other is at no moment without
    /// a notice while one stands.
    #[must_use = "a change that is not passed on is a notice lost"]
    pub fn update(&mut self, document: &Document, name: &str, now: Instant) -> Vec<Change> {
        let (ours, others): (Vec<_>, Vec<_>) = document.events.iter().partition(|event| event.concerns(name));
        self.mention(&others);

        // By id, because an id that a document gives twice must not be told as changing at every poll.
        let ours: BTreeMap<NoticeId, &Event> =
            ours.into_iter().map(|event| (event.notice_id(), event)).collect();
        let mut changes = Vec::new();
        for (id, event) in &ours {
            let seen = Seen::from(*event);
            if self.ours.get(id) != Some(&seen) {
                changes.push(Change::Noticed(notice(id.clone(), event, name, now)));
                self.ours.insert(id.clone(), seen);
            }
        }
        for (id, seen) in self.ours.extract_if(.., |id, _| !ours.contains_key(id)) {
            let ending = match seen.phase {
                Phase::Scheduled => Ending::Withdrawn,
                Phase::Started => Ending::Completed,
            };
            info!(event.id = %id, kind = seen.event_type.as_str(), ?ending, "event is over");
            changes.push(Change::Over(id, ending));
        }
        changes
    }

    /// The id to approve for the notice `id`, spelled as the platform spells it; `None` when the event is over and so
    /// needs no approval.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an event that does not name this VM alone: an approval lets it begin on
    /// every VM it names, and their work is not this one's to give up.
    pub fn approval(&self, id: &NoticeId) -> Result<Option<&str>> {
        let refuse = |why: &str| {
            Err(Error::new(
                ErrorKind::Invalid,
                "approve an event",
                format!("event {id} {why}; it is left to begin by itself"),
            ))
        };
        match self.ours.get(id) {
            None => Ok(None),
            Some(seen) if seen.event_id.is_empty() => refuse("was given no id"),
            Some(seen) if !seen.sole => refuse("does not name this VM alone"),
            Some(seen) => Ok(Some(&seen.event_id)),
        }
    }

    fn mention(&mut self, others: &[&Event]) {
        let ids: BTreeSet<NoticeId> = others.iter().map(|event| event.notice_id()).collect();
        for event in others.iter().filter(|event| !self.elsewhere.contains(&event.notice_id())) {
            debug!(event.id = %event.event_id, kind = event.event_type.as_str(), resources = ?event.resources, "event is for other VMs");
        }
        self.elsewhere = ids;
    }
}

impl From<&Event> for Seen {
    fn from(event: &Event) -> Self {
        let phase = event.event_status.phase();
        Self {
            event_id: event.event_id.clone(),
            event_type: event.event_type.clone(),
            phase,
            // Once it has begun, the time before which it would not have says nothing.
            not_before: if phase == Phase::Started { String::new() } else { event.not_before.clone() },
            sole: event.resources.len() == 1,
        }
    }
}

/// The notice that tells of `event`.
fn notice(id: NoticeId, event: &Event, name: &str, now: Instant) -> Notice {
    let phase = event.event_status.phase();
    let not_before = match (phase, NotBefore::read(&event.not_before)) {
        (Phase::Started, _) | (Phase::Scheduled, NotBefore::Blank) => None,
        (Phase::Scheduled, NotBefore::At(at)) => Some(instant_at(at)),
        (Phase::Scheduled, NotBefore::Unreadable) => {
            warn!(event.id = %id, not_before = ?event.not_before, "NotBefore can't be read, so the event is taken to begin at once");
            None
        }
    };
    info!(
        event.id = %id,
        kind = event.event_type.as_str(),
        ?phase,
        not_before = event.not_before,
        source = event.event_source,
        description = event.description,
        "event for this VM"
    );
    let initiator = match event.event_source.as_str() {
        "Platform" => Initiator::Platform,
        "User" => Initiator::User,
        _ => Initiator::Unknown,
    };
    Notice {
        id,
        kind: event.event_type.kind(),
        phase,
        received: now,
        not_before,
        duration: event
            .duration_in_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs),
        initiator,
        resources: event.resources.clone(),
        machine: event.resources.iter().find(|it| it.eq_ignore_ascii_case(name)).cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
