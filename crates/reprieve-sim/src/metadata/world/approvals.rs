//! Approvals: VMs of the set let events begin before their time.

use reprieve_azure::scheduled_events::ApiVersion;
use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::ErrorKind;

use super::World;
use super::events::{Due, Planned};
use crate::metadata::announcement::OtherTenants;
use crate::metadata::moment::Moment;
use crate::metadata::refusal::{Refusal, refuse};
use crate::metadata::state::{Approval, Entry, What};

impl World {
    /// Records the VM `by`'s approval of events. One approval counts for all VMs of an event; a
    /// repeated one has no effect.
    ///
    /// Every VM of a set sees the events of all, and may approve them. An event that is missing
    /// from its version is unknown to it.
    pub(in crate::metadata) fn approve(
        &mut self,
        event_ids: &[String],
        by: &str,
        version: ApiVersion,
        now: Moment,
    ) -> Result<(), Refusal> {
        let mut indices = Vec::with_capacity(event_ids.len());
        for id in event_ids {
            let meant = self.events.iter().position(|planned| {
                planned.event.event_id.eq_ignore_ascii_case(id) && version.knows(&planned.event.event_type)
            });
            match meant {
                Some(index) => indices.push(index),
                None => return refuse(ErrorKind::Invalid, format!("there is no event {id:?}")),
            }
        }
        for index in indices {
            self.approve_one(index, by, now);
        }
        self.bring_forward(now);
        self.settle(now);
        Ok(())
    }

    fn approve_one(&mut self, index: usize, by: &str, now: Moment) {
        let planned = &mut self.events[index];
        if planned.approvals.iter().any(|approval| approval.vm == by) {
            return;
        }
        planned.approvals.push(Approval { vm: by.to_owned(), at_unix_ms: now.unix_ms() });
        let event = &planned.event;
        let entry = Entry {
            event_id: Some(event.event_id.clone()),
            event_type: Some(event.event_type.as_str().to_owned()),
            vms: vec![by.to_owned()],
            ..Entry::new(now, What::Approved)
        };
        self.note(entry);
    }

    /// Brings forward the start of every event with all its approvals.
    ///
    /// A deletion waits for the approvals of all other deletions that are to come.
    /// <https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-terminate-notification#tips-and-best-practices>
    pub(super) fn bring_forward(&mut self, now: Moment) {
        let is_delete = |planned: &Planned| planned.event.event_type == EventType::Terminate;
        let is_to_come = |planned: &Planned| matches!(planned.next, Due::Start(_));
        let deletes_wait = self
            .events
            .iter()
            .any(|planned| is_delete(planned) && is_to_come(planned) && planned.approvals.is_empty());
        for planned in &mut self.events {
            let Due::Start(when) = planned.next else { continue };
            if planned.approvals.is_empty() || (deletes_wait && is_delete(planned)) {
                continue;
            }
            let allowed = match planned.other_tenants {
                OtherTenants::None => now,
                OtherTenants::Silent => when,
                OtherTenants::ApproveAfter(after) => planned.announced.after(after),
            };
            let allowed = if allowed.at < now.at { now } else { allowed };
            if allowed.at < when.at {
                planned.next = Due::Start(allowed);
            }
        }
    }
}
