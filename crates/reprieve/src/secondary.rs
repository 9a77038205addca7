//! Approves events for other VMs that do not answer (`--approve-for`): Azure advises a secondary that
//! approves for a primary which has become unresponsive, so that its restart is not delayed.
//! <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#user-initiated-events>

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::{Event, EventType};
use reprieve_azure::scheduled_events::{Client, Watcher};
use reprieve_core::ports::{Member, Roster};
use reprieve_core::{Phase, WorkerId};
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
    /// This machine's present boot.
    pub(crate) boot: String,
    /// How long an event waits before it is approved for them.
    pub(crate) wait: Duration,
}

/// An event that waits for VMs that do not answer.
#[derive(Default)]
struct Waiting {
    /// When to approve it; `None` while a worker is in the way.
    from: Option<Instant>,
    /// The worker that was last in the way.
    obstacle: Option<WorkerId>,
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

    /// Whether the worker is on one of the VMs, as far as is known. A worker that does not know its VM's
    /// name yet may be, but not with this machine's boot. One without the metadata service, such as on a
    /// developer's machine, never knows a name; wherever it is, it hears of no event, so an approval
    /// takes no notice from it.
    fn may_be_on(&self, member: &Member, vms: &[String]) -> bool {
        if !member.vm.is_empty() {
            return vms.iter().any(|vm| vm.eq_ignore_ascii_case(&member.vm));
        }
        let is_here = !member.boot.is_empty() && member.boot == self.boot;
        !is_here && !member.without_sources
    }

    async fn review(&self, events: &[Event], waiting: &mut HashMap<String, Waiting>) {
        let members = match self.roster.members(self.roster.pace() * REPORTS_MISSED).await {
            Ok(members) => members,
            // Who can't see whether they answer must not speak for them.
            Err(error) => return tracing::debug!(%error, "failed to read the roster; approving for nobody"),
        };
        for event in events {
            let (id, vms) = (&event.event_id, event.resources.join(", "));
            let state = waiting.entry(id.clone()).or_default();
            if let Some(member) = members.iter().find(|member| self.may_be_on(member, &event.resources)) {
                state.from = None;
                if state.obstacle.replace(member.worker.clone()).as_ref() != Some(&member.worker) {
                    let (worker, vm) = (&member.worker, &member.vm);
                    tracing::info!(event = id, vms, %worker, vm, "not approving an event for other VMs: a worker is on one of them, or its VM is not known yet");
                }
                continue;
            }
            let now = Instant::now();
            if state.is_approved || now < *state.from.get_or_insert(now + self.wait) {
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
                    state.from = Some(now + AGAIN_AFTER);
                    tracing::warn!(event = id, vms, %error, "failed to approve an event for other VMs");
                }
            }
        }
    }
}
