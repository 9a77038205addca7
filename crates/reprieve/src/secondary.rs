//! Approves events for other VMs that do not answer (`--approve-for`): Azure advises a secondary that
//! approves for a primary which has become unresponsive, so that its restart is not delayed.
//! <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#user-initiated-events>

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::{Event, EventType};
use reprieve_azure::scheduled_events::{Client, Watcher};
use reprieve_core::Phase;
use reprieve_core::ports::Roster;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often the active events are looked at. It costs no request while there is none.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A machine whose workers have not reported for so many intervals does not answer.
const REPORTS_MISSED: u32 = 4;

/// How long one approval is tried.
const APPROVE_WITHIN: Duration = Duration::from_secs(10);

/// The pause after an approval that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Watches the events of other VMs.
pub(crate) struct Secondary {
    pub(crate) watcher: Arc<Watcher>,
    pub(crate) metadata: Client,
    pub(crate) roster: Arc<dyn Roster>,
    /// The VMs.
    pub(crate) vms: Vec<String>,
    /// How long an event waits before it is approved for them.
    pub(crate) wait: Duration,
}

/// An event that waits for VMs that do not answer.
struct Waiting {
    /// When to approve it.
    from: Instant,
    is_approved: bool,
}

impl Secondary {
    /// Runs without end.
    pub(crate) async fn run(self) {
        let mut waiting: HashMap<String, Waiting> = HashMap::new();
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let active = self.watcher.active_events().into_iter().map(|change| change.event);
            let events: Vec<_> = active.filter(|event| self.may_approve(event)).collect();
            waiting.retain(|id, _| events.iter().any(|event| event.event_id == *id));
            if !events.is_empty() {
                self.review(&events, &mut waiting).await;
            }
        }
    }

    /// Whether the event concerns no other VM than those. An eviction is never approved, and a deletion
    /// needs no hurry.
    fn may_approve(&self, event: &Event) -> bool {
        let is_theirs = |vm: &String| self.vms.iter().any(|theirs| theirs.eq_ignore_ascii_case(vm));
        let is_known =
            matches!(event.event_type, EventType::Reboot | EventType::Redeploy | EventType::Freeze);
        is_known
            && event.event_status.phase() == Phase::Scheduled
            && !event.resources.is_empty()
            && event.resources.iter().all(is_theirs)
    }

    async fn review(&self, events: &[Event], waiting: &mut HashMap<String, Waiting>) {
        let members = match self.roster.members(self.roster.pace() * REPORTS_MISSED).await {
            Ok(members) => members,
            // Who can't see whether they answer must not speak for them.
            Err(error) => return tracing::debug!(%error, "failed to read the roster; approving for nobody"),
        };
        for event in events {
            let (id, vms) = (&event.event_id, event.resources.join(", "));
            let answers = |vm: &String| members.iter().any(|member| member.vm.eq_ignore_ascii_case(vm));
            // A worker that does not know its VM's name yet may be on one of them.
            let is_nameless = members.iter().any(|member| member.vm.is_empty());
            if is_nameless || event.resources.iter().any(answers) {
                waiting.remove(id);
                continue;
            }
            let now = Instant::now();
            let state =
                waiting.entry(id.clone()).or_insert(Waiting { from: now + self.wait, is_approved: false });
            if state.is_approved || now < state.from {
                continue;
            }
            match self.metadata.approve(&[id], APPROVE_WITHIN).await {
                Ok(()) => {
                    state.is_approved = true;
                    tracing::warn!(
                        event = id,
                        vms,
                        "approved an event for other VMs, on which no worker answers"
                    );
                }
                Err(error) => {
                    state.from = now + AGAIN_AFTER;
                    tracing::warn!(event = id, vms, %error, "failed to approve an event for other VMs");
                }
            }
        }
    }
}
