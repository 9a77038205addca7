//! The passage of time: events begin and end, and scenarios perform their steps, each at its time.

use reprieve_azure::scheduled_events::document::{Event, EventStatus};
use tokio::time::Instant;

use super::events::{Due, Planned};
use super::{ENDED_MAX, World};
use crate::metadata::moment::Moment;
use crate::metadata::state::{Entry, EventState, Status, What};

/// The next thing that is due.
enum Next {
    /// The event of this index begins or ends.
    Event(usize),
    /// The scenario of this index performs a step.
    Run(usize),
}

impl World {
    /// Performs everything that is due by `now`, in order and at its own time.
    pub(in crate::metadata) fn settle(&mut self, now: Moment) {
        while let Some((at, next)) = self.next_due(now.at) {
            let then = now.back_to(at);
            match next {
                Next::Event(index) => self.advance(index, then),
                Next::Run(index) => self.run_step(index, then),
            }
        }
    }

    /// Returns what is due first. An event comes before a scenario that is due at the same time.
    fn next_due(&self, now: Instant) -> Option<(Instant, Next)> {
        let events = self.events.iter().enumerate();
        let events = events.map(|(index, planned)| (planned.next.at(), Next::Event(index)));
        let runs = self.runs.iter().enumerate();
        let runs = runs.filter_map(|(index, run)| Some((run.next_at()?, Next::Run(index))));
        events.chain(runs).filter(|(at, _)| *at <= now).min_by_key(|(at, _)| *at)
    }

    fn advance(&mut self, index: usize, now: Moment) {
        let planned = &mut self.events[index];
        if let Due::Vanish(_) = planned.next {
            let id = planned.event.event_id.clone();
            return self.end(|planned| planned.event.event_id == id, now);
        }
        planned.event.event_status = EventStatus::Started;
        planned.event.not_before.clear();
        planned.started = Some(now);
        planned.next = Due::Vanish(now.after(planned.started_for));
        let (event, gone) = (planned.event.clone(), planned.gone);
        self.incarnation += 1;
        self.note_event(&event, What::Started, now);
        if gone {
            self.remove_all(&event.resources, now);
        }
        self.bring_forward(now);
    }

    /// Ends the selected events; there must be at least one.
    pub(super) fn end(&mut self, ended: impl Fn(&Planned) -> bool, now: Moment) {
        let removed: Vec<_> = self.events.extract_if(.., |planned| ended(planned)).collect();
        self.incarnation += 1;
        for planned in removed {
            let (status, what) = if planned.has_started() {
                (Status::Completed, What::Completed)
            } else {
                (Status::Withdrawn, What::Withdrawn)
            };
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back(EventState {
                status,
                starts_at_unix_ms: planned.started.map(Moment::unix_ms),
                ends_at_unix_ms: Some(now.unix_ms()),
                ..planned.state()
            });
            self.note_event(&planned.event, what, now);
        }
        self.bring_forward(now);
    }

    /// Removes those of these VMs that are the mock's own.
    pub(super) fn remove_all(&mut self, names: &[String], now: Moment) {
        for name in names {
            if self.vm(Some(name)).is_some() {
                // The VM exists, so the removal succeeds.
                let _removed = self.remove_vm(name, now);
            }
        }
    }

    pub(super) fn note_event(&mut self, event: &Event, what: What, now: Moment) {
        self.note(Entry {
            event_id: Some(event.event_id.clone()),
            event_type: Some(event.event_type.as_str().to_owned()),
            vms: event.resources.clone(),
            ..Entry::new(now, what)
        });
    }
}
