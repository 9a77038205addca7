//! Announces events, and changes them from outside.

use std::time::{Duration, SystemTime};

use reprieve_azure::scheduled_events::NotBefore;
use reprieve_azure::scheduled_events::document::{Event, EventStatus, EventType};
use reprieve_core::ErrorKind;
use tokio::time::Instant;
use uuid::Uuid;

use super::{World, is_advice};
use crate::metadata::announcement::{Announcement, OtherTenants};
use crate::metadata::moment::Moment;
use crate::metadata::plan::EventPlan;
use crate::metadata::refusal::{Refusal, refuse};
use crate::metadata::state::{Approval, EventState, Evicted, Status, What, Which};

/// An active event, and its next change.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) event: Event,
    pub(super) next: Due,
    pub(super) announced: Moment,
    pub(super) started: Option<Moment>,
    /// How long it stays in the document once it has started.
    pub(super) started_for: Duration,
    pub(super) other_tenants: OtherTenants,
    pub(super) gone: bool,
    pub(super) approvals: Vec<Approval>,
}

/// The next change of an event.
#[derive(Debug, Clone, Copy)]
pub(super) enum Due {
    Start(Moment),
    Vanish(Moment),
}

impl Due {
    pub(super) const fn at(self) -> Instant {
        match self {
            Self::Start(when) | Self::Vanish(when) => when.at,
        }
    }
}

impl Planned {
    pub(super) fn has_started(&self) -> bool {
        self.event.event_status == EventStatus::Started
    }

    pub(super) fn state(&self) -> EventState {
        let (starts, ends) = match self.next {
            Due::Start(when) => (Some(when), None),
            Due::Vanish(when) => (self.started, Some(when)),
        };
        EventState {
            event_id: self.event.event_id.clone(),
            event_type: self.event.event_type.as_str().to_owned(),
            status: if self.has_started() { Status::Started } else { Status::Scheduled },
            vms: self.event.resources.clone(),
            source: self.event.event_source.clone(),
            description: self.event.description.clone(),
            announced_at_unix_ms: self.announced.unix_ms(),
            starts_at_unix_ms: starts.map(Moment::unix_ms),
            ends_at_unix_ms: ends.map(Moment::unix_ms),
            approvals: self.approvals.clone(),
        }
    }
}

impl World {
    /// Announces the eviction of the VM. A VM is evicted only once.
    pub(in crate::metadata) fn evict(
        &mut self,
        vm: &str,
        notice: Duration,
        now: Moment,
    ) -> Result<Evicted, Refusal> {
        let vm = self.known(vm)?;
        let is_eviction =
            |planned: &Planned| planned.event.event_type == EventType::Preempt && planned.event.concerns(&vm);
        if let Some(planned) = self.events.iter().find(|planned| is_eviction(planned)) {
            let message = format!("{vm} is being evicted already, by event {}", planned.event.event_id);
            return refuse(ErrorKind::Conflict, message);
        }
        let event = self.announce(Announcement::preempt(&vm, notice), now)?;
        Ok(Evicted { event_id: event.event_id, vm, not_before: event.not_before })
    }

    /// Announces an event in its written form, for a scenario that runs for `target`, if any.
    pub(in crate::metadata) fn announce_plan(
        &mut self,
        plan: &EventPlan,
        target: Option<&str>,
        now: Moment,
    ) -> Result<Event, Refusal> {
        let announcement = plan.announcement(&self.vm_names(target))?;
        self.announce(announcement, now)
    }

    /// Announces an event, or starts it at once if it gives no notice.
    pub(in crate::metadata) fn announce(
        &mut self,
        what: Announcement,
        now: Moment,
    ) -> Result<Event, Refusal> {
        let notice = what.notice.map(|notice| notice / self.speed.get());
        let started_for = self.sped_up(what.started_for.unwrap_or(self.started_for));
        let next = match notice {
            Some(notice) if is_advice(&what.event_type) => Due::Vanish(now.after(notice)),
            Some(notice) => Due::Start(now.after(notice)),
            None => Due::Vanish(now.after(started_for)),
        };
        let other_tenants = match what.other_tenants {
            OtherTenants::ApproveAfter(after) => OtherTenants::ApproveAfter(self.sped_up(after)),
            other => other,
        };
        let gone = what.gone;
        let event = self.event(what, notice, now)?;
        self.events.push(Planned {
            event: event.clone(),
            next,
            announced: now,
            started: notice.is_none().then_some(now),
            started_for,
            other_tenants,
            gone,
            approvals: Vec::new(),
        });
        self.incarnation += 1;
        self.note_event(&event, if notice.is_some() { What::Announced } else { What::Started }, now);
        if notice.is_none() && gone {
            self.remove_all(&event.resources, now);
        }
        Ok(event)
    }

    /// Returns the event as the document shows it.
    fn event(&self, what: Announcement, notice: Option<Duration>, now: Moment) -> Result<Event, Refusal> {
        let event_id = what.event_id.unwrap_or_else(|| Uuid::now_v7().to_string().to_uppercase());
        if self.events.iter().any(|planned| planned.event.event_id.eq_ignore_ascii_case(&event_id)) {
            return refuse(ErrorKind::Conflict, format!("there is an event {event_id:?} already"));
        }
        let not_before = match notice {
            None => String::new(),
            Some(notice) => match what.not_before {
                Some(text) => text,
                None => written(notice, now.wall)?,
            },
        };
        Ok(Event {
            event_id,
            event_status: if notice.is_some() { EventStatus::Scheduled } else { EventStatus::Started },
            event_type: what.event_type,
            resource_type: "VirtualMachine".to_owned(),
            resources: what.resources,
            not_before,
            description: what.description,
            event_source: what.source,
            duration_in_seconds: Some(what.duration.map_or(-1, |duration| duration.as_secs().cast_signed())),
        })
    }

    /// Starts events before their time; returns their ids.
    pub(in crate::metadata) fn start(&mut self, which: &Which, now: Moment) -> Result<Vec<String>, Refusal> {
        let is_to_begin = |planned: &Planned| matches!(planned.next, Due::Start(_));
        let ids = self.choose(
            which,
            is_to_begin,
            "the event has begun, or is a recommendation, which never begins",
        )?;
        for planned in &mut self.events {
            if ids.contains(&planned.event.event_id) {
                planned.next = Due::Start(now);
            }
        }
        self.settle(now);
        Ok(ids)
    }

    /// Ends events that have begun before their time; returns their ids.
    pub(in crate::metadata) fn complete(
        &mut self,
        which: &Which,
        now: Moment,
    ) -> Result<Vec<String>, Refusal> {
        let ids =
            self.choose(which, Planned::has_started, "the event has not begun, so it can't be completed")?;
        for planned in &mut self.events {
            if ids.contains(&planned.event.event_id) {
                planned.next = Due::Vanish(now);
            }
        }
        self.settle(now);
        Ok(ids)
    }

    /// Withdraws events that have not started; returns their ids.
    pub(in crate::metadata) fn withdraw(
        &mut self,
        which: &Which,
        now: Moment,
    ) -> Result<Vec<String>, Refusal> {
        let is_withdrawable = |planned: &Planned| !planned.has_started();
        let ids = self.choose(which, is_withdrawable, "the event has started, so it can't be withdrawn")?;
        self.end(|planned| ids.contains(&planned.event.event_id), now);
        Ok(ids)
    }

    /// Returns the ids of the selected events for which `possible` holds; fails with `why_not` if
    /// there are none.
    fn choose(
        &self,
        which: &Which,
        possible: impl Fn(&Planned) -> bool,
        why_not: &str,
    ) -> Result<Vec<String>, Refusal> {
        let meant: Box<dyn Fn(&Event) -> bool> = match which {
            Which::Vm(name) => {
                let name = self.known(name)?;
                Box::new(move |event| event.concerns(&name))
            }
            Which::EventId(id) => Box::new(move |event| event.event_id.eq_ignore_ascii_case(id)),
        };
        let mut meant = self.events.iter().filter(|planned| meant(&planned.event)).peekable();
        if meant.peek().is_none() {
            let has_ended = |past: &EventState| matches!(which, Which::EventId(id) if past.event_id.eq_ignore_ascii_case(id));
            return if self.ended.iter().any(has_ended) {
                refuse(ErrorKind::Conflict, "the event has ended")
            } else {
                refuse(ErrorKind::NotFound, "there is no such event")
            };
        }
        let ids: Vec<_> =
            meant.filter(|planned| possible(planned)).map(|planned| planned.event.event_id.clone()).collect();
        if ids.is_empty() { refuse(ErrorKind::Conflict, why_not) } else { Ok(ids) }
    }
}

fn written(notice: Duration, wall: SystemTime) -> Result<String, Refusal> {
    match wall.checked_add(notice).and_then(NotBefore::write) {
        Some(text) => Ok(text),
        None => refuse(ErrorKind::Invalid, format!("a notice of {notice:?} ends after the year 9999")),
    }
}
