//! What is so in the mock: its VMs, and the events that stand, as of a given moment. No network, no timers.

use std::time::{Duration, SystemTime};

use reprieve_azure::scheduled_events::NotBefore;
use reprieve_azure::scheduled_events::document::{Document, Event, EventStatus, EventType};
use reprieve_core::{Error, ErrorKind};
use tokio::time::Instant;
use uuid::Uuid;

use super::announcement::Announcement;
use super::state::{Evicted, State, VmState, Which};

/// The VMs and events of one mock.
///
/// Whatever is due has happened: [`settle`](Self::settle) is called with the present before anything is read or
/// changed, so that an event starts and ends at its time though nobody looks.
#[derive(Debug)]
pub(super) struct World {
    incarnation: u64,
    vms: Vec<Vm>,
    events: Vec<Planned>,
    started_for: Duration,
}

/// A VM, as long as it exists.
#[derive(Debug, Clone)]
pub(super) struct Vm {
    pub(super) name: String,
    /// Never used again, unlike the name.
    pub(super) id: Uuid,
    polls: u64,
}

#[derive(Debug)]
struct Planned {
    event: Event,
    next: Due,
}

/// What becomes of an event next.
#[derive(Debug, Clone, Copy)]
enum Due {
    Start(Instant),
    Vanish(Instant),
}

impl Due {
    const fn at(self) -> Instant {
        match self {
            Self::Start(at) | Self::Vanish(at) => at,
        }
    }
}

/// Why the mock did not do as it was told, in one sentence.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn during(self, operation: &'static str) -> Error {
        Error::new(self.kind, operation, self.message)
    }
}

fn refuse<T>(kind: ErrorKind, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { kind, message: message.into() })
}

impl World {
    pub(super) fn new(started_for: Duration) -> Self {
        // A century is for ever, and still fits into an instant.
        let started_for = started_for.min(Duration::from_hours(100 * 365 * 24));
        // As in the published sample, the first document has the incarnation 1 and no events.
        Self { incarnation: 1, vms: Vec::new(), events: Vec::new(), started_for }
    }

    /// Lets everything happen that is due by `now`, in its order.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(index) = self.next_due(now) {
            self.step(index);
        }
    }

    /// What every VM is told.
    pub(super) fn document(&self) -> Document {
        Document {
            document_incarnation: self.incarnation.into(),
            events: self.events.iter().map(|planned| planned.event.clone()).collect(),
        }
    }

    /// All there is to know.
    pub(super) fn state(&self) -> State {
        let vms = self.vms.iter().map(|vm| VmState {
            name: vm.name.clone(),
            vm_id: vm.id.to_string(),
            path: format!("/vm/{}", vm.name),
            polls: vm.polls,
        });
        State { document: self.document(), vms: vms.collect() }
    }

    /// The VM called `name`, or the first one.
    pub(super) fn vm(&self, name: Option<&str>) -> Option<&Vm> {
        match name {
            None => self.vms.first(),
            Some(name) => self.vms.iter().find(|vm| vm.name.eq_ignore_ascii_case(name)),
        }
    }

    /// Counts a poll of the VM.
    pub(super) fn count_poll(&mut self, id: Uuid) {
        if let Some(vm) = self.vms.iter_mut().find(|vm| vm.id == id) {
            vm.polls += 1;
        }
    }

    /// Adds a VM under a name that Azure would take.
    /// <https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftcompute>
    pub(super) fn add_vm(&mut self, name: &str) -> Result<(), Refusal> {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let ends_well = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && !name.ends_with(['.', '-']);
        if !plain || !ends_well || name.len() > 64 {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{name:?} can't be a VM's name: 1 to 64 letters, digits, -, _ and ., beginning with a letter or digit"
                ),
            );
        }
        if self.vm(Some(name)).is_some() {
            return refuse(ErrorKind::Conflict, format!("there is a VM called {name:?} already"));
        }
        self.vms.push(Vm { name: name.to_owned(), id: Uuid::now_v7(), polls: 0 });
        Ok(())
    }

    /// Removes a VM. Its events stay, as they do for its neighbours in Azure, until they end.
    pub(super) fn remove_vm(&mut self, name: &str) -> Result<(), Refusal> {
        let name = self.known(name)?;
        self.vms.retain(|vm| vm.name != name);
        Ok(())
    }

    /// Announces that the platform takes the VM back. A VM is evicted only once.
    pub(super) fn evict(
        &mut self,
        vm: &str,
        notice: Duration,
        now: Instant,
        wall: SystemTime,
    ) -> Result<Evicted, Refusal> {
        let vm = self.known(vm)?;
        let stands =
            |planned: &Planned| planned.event.event_type == EventType::Preempt && planned.event.concerns(&vm);
        if let Some(planned) = self.events.iter().find(|planned| stands(planned)) {
            let message = format!("{vm} is being evicted already, by event {}", planned.event.event_id);
            return refuse(ErrorKind::Conflict, message);
        }
        let event = self.announce(Announcement::preempt(&vm, notice), now, wall)?;
        Ok(Evicted { event_id: event.event_id, vm, not_before: event.not_before })
    }

    /// Announces an event, or starts it at once if it gives no notice.
    pub(super) fn announce(
        &mut self,
        what: Announcement,
        now: Instant,
        wall: SystemTime,
    ) -> Result<Event, Refusal> {
        let not_before = match what.notice {
            None => String::new(),
            Some(notice) => match wall.checked_add(notice).and_then(NotBefore::write) {
                Some(text) => text,
                None => {
                    return refuse(
                        ErrorKind::Invalid,
                        format!("a notice of {notice:?} ends after the year 9999"),
                    );
                }
            },
        };
        let event = Event {
            event_id: Uuid::now_v7().to_string().to_uppercase(),
            event_status: if what.notice.is_some() { EventStatus::Scheduled } else { EventStatus::Started },
            event_type: what.event_type,
            resource_type: "VirtualMachine".to_owned(),
            resources: what.resources,
            not_before,
            description: what.description,
            event_source: what.source,
            duration_in_seconds: Some(what.duration.map_or(-1, |duration| duration.as_secs().cast_signed())),
        };
        let next = match what.notice {
            Some(notice) => Due::Start(now + notice),
            None => Due::Vanish(now + self.started_for),
        };
        self.events.push(Planned { event: event.clone(), next });
        self.incarnation += 1;
        Ok(event)
    }

    /// Withdraws events that have not started; returns their ids.
    pub(super) fn withdraw(&mut self, which: &Which) -> Result<Vec<String>, Refusal> {
        let meant: Box<dyn Fn(&Event) -> bool> = match which {
            Which::Vm(name) => {
                let name = self.known(name)?;
                Box::new(move |event| event.concerns(&name))
            }
            Which::EventId(id) => Box::new(move |event| event.event_id.eq_ignore_ascii_case(id)),
        };
        let is_withdrawable =
            |planned: &Planned| meant(&planned.event) && planned.event.event_status == EventStatus::Scheduled;
        let stood = self.events.iter().any(|planned| meant(&planned.event));
        let gone: Vec<_> = self
            .events
            .extract_if(.., |planned| is_withdrawable(planned))
            .map(|planned| planned.event.event_id)
            .collect();
        match (gone.is_empty(), stood) {
            (false, _) => {
                self.incarnation += 1;
                Ok(gone)
            }
            (true, true) => refuse(ErrorKind::Conflict, "the event has started, so it can't be withdrawn"),
            (true, false) => refuse(ErrorKind::NotFound, "there is no such event"),
        }
    }

    /// Lets events start that a VM has approved: each for all of its VMs, and again without effect.
    pub(super) fn approve(&mut self, event_ids: &[String], now: Instant) -> Result<(), Refusal> {
        let mut indices = Vec::with_capacity(event_ids.len());
        for id in event_ids {
            match self.events.iter().position(|planned| planned.event.event_id.eq_ignore_ascii_case(id)) {
                Some(index) => indices.push(index),
                None => return refuse(ErrorKind::Invalid, format!("there is no event {id:?}")),
            }
        }
        for index in indices {
            if let Due::Start(at) = &mut self.events[index].next {
                *at = now;
            }
        }
        self.settle(now);
        Ok(())
    }

    fn known(&self, name: &str) -> Result<String, Refusal> {
        if let Some(vm) = self.vm(Some(name)) {
            return Ok(vm.name.clone());
        }
        let names: Vec<_> = self.vms.iter().map(|vm| vm.name.as_str()).collect();
        refuse(
            ErrorKind::NotFound,
            format!("there is no VM called {name:?}; there are: {}", names.join(", ")),
        )
    }

    fn next_due(&self, now: Instant) -> Option<usize> {
        let due = self.events.iter().enumerate().filter(|(_, planned)| planned.next.at() <= now);
        due.min_by_key(|(_, planned)| planned.next.at()).map(|(index, _)| index)
    }

    fn step(&mut self, index: usize) {
        self.incarnation += 1;
        match self.events[index].next {
            Due::Start(at) => {
                let planned = &mut self.events[index];
                planned.event.event_status = EventStatus::Started;
                planned.event.not_before.clear();
                planned.next = Due::Vanish(at + self.started_for);
            }
            Due::Vanish(_) => {
                self.events.remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests;
