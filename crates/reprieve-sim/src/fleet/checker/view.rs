//! The checker's view of processes, messages and jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reprieve_core::record::{Record, Status};
use reprieve_core::{Fence, MessageId};

use crate::fleet::history::{Event, What};
use crate::fleet::plan::Plan;

/// Everything that the checker tracks.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) processes: BTreeMap<u32, ProcessView>,
    pub(super) messages: BTreeMap<MessageId, MessageView>,
    pub(super) jobs: Vec<JobView>,
    pub(super) drains: Vec<DrainView>,
    /// The number of machines besides the calm one.
    machines: usize,
}

/// A process.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is true or not whatever the others are")]
pub(super) struct ProcessView {
    pub(super) slots: usize,
    pub(super) old: bool,
    pub(super) shards: usize,
    pub(super) is_calm: bool,
    pub(super) ended: bool,
    /// The job that killed it while that job's record had it run alone.
    pub(super) killed_by: Option<usize>,
    pub(super) frozen: bool,
    pub(super) troubled: bool,
    /// It was asked to drain or to stop, and must not take work.
    pub(super) leaving: bool,
    /// When it was last frozen or in trouble.
    pub(super) disturbed: Option<Duration>,
    /// When it was last ended or delayed from outside.
    pub(super) struck: Option<Duration>,
    /// Since when it could have received messages.
    pub(super) available: Option<Duration>,
    /// The messages that it holds.
    pub(super) holds: BTreeSet<MessageId>,
    /// The jobs marked as running alone in it.
    pub(super) alone: BTreeSet<usize>,
}

/// A message.
#[derive(Debug)]
pub(super) struct MessageView {
    pub(super) job: usize,
    pub(super) state: MessageState,
    /// The number of the last delivery.
    pub(super) count: u32,
    /// When the last delivery was received.
    pub(super) received: Duration,
    /// Deaths that the job caused in deliveries of this message since it moved: all, and the proved
    /// ones.
    pub(super) deaths: (u32, u32),
    /// Failures noted in deliveries of this message since the job moved.
    pub(super) failures: u32,
}

/// The state of a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MessageState {
    /// Can be received from that time on.
    Visible(Duration),
    /// Leased until that time.
    Leased { by: u32, until: Duration },
    /// In the poison queue.
    Letter,
    /// Deleted.
    Gone,
}

/// A job.
#[derive(Debug, Default)]
pub(super) struct JobView {
    pub(super) sent: bool,
    /// Its result or output exists.
    pub(super) done: bool,
    /// When the last completed of its messages was completed.
    pub(super) completed: Option<Duration>,
    /// Its record was created by a write that was under way when the job finished.
    pub(super) late: bool,
    /// When its result was written.
    pub(super) result: Option<Duration>,
    /// When a program began to cancel it.
    pub(super) asked_to_cancel: Option<Duration>,
    /// When a program was told that it is cancelled.
    pub(super) cancelled: Option<Duration>,
    /// The processes and deliveries that are in a step of it.
    pub(super) inside: BTreeSet<(u32, Fence)>,
    pub(super) record: Option<Record>,
    /// The newest step saved in the record.
    pub(super) state: Option<u32>,
    /// The step that each owner found in the record when it claimed the job.
    pub(super) floors: BTreeMap<Fence, Option<u32>>,
    /// Deliveries that have begun a step.
    pub(super) begun: BTreeSet<(u32, Option<MessageId>, Fence)>,
    /// When each process last saved the job, or began it.
    pub(super) safe: BTreeMap<u32, Duration>,
    /// Processes that held two of its messages at the same time.
    pub(super) twice: BTreeSet<u32>,
    pub(super) output: Option<Fence>,
    /// The delivery that last began a step in each process.
    pub(super) running: BTreeMap<u32, Fence>,
    /// Everything that ended or delayed a delivery of the job since it moved.
    pub(super) incidents: Vec<Duration>,
    /// Incidents that a move cleared. They count again once the record is removed: a message that
    /// is left does not know of the move.
    pub(super) cleared: Vec<Duration>,
    /// The incidents from outside while the job ran alone.
    pub(super) outside: Vec<Duration>,
}

/// A drain and the time by which it must end.
#[derive(Debug)]
pub(super) struct DrainView {
    pub(super) process: u32,
    pub(super) asked: Duration,
    pub(super) until: Duration,
}

impl View {
    pub(super) fn new(plan: &Plan) -> Self {
        let machines = plan.machines.len();
        Self { machines, jobs: plan.jobs.iter().map(|_| JobView::default()).collect(), ..Self::default() }
    }

    /// Whether the job's record says that it was cancelled.
    pub(super) fn is_cancelled(&self, job: usize) -> bool {
        let record = self.jobs.get(job).and_then(|job| job.record.as_ref());
        record.is_some_and(|record| record.status == Status::Cancelled)
    }

    pub(super) fn process(&mut self, process: Option<u32>) -> Option<&mut ProcessView> {
        self.processes.get_mut(&process?)
    }

    /// Returns the message of `job` that `process` holds; the one of this delivery where the fence
    /// is known.
    pub(super) fn held(&self, process: u32, job: usize, fence: Option<Fence>) -> Option<&MessageId> {
        let count = fence.map(|fence| fence.as_u64() & u64::from(u32::MAX));
        let is_it =
            |it: &MessageView| it.job == job && count.is_none_or(|count| u64::from(it.count) == count);
        let holds = &self.processes.get(&process)?.holds;
        holds.iter().find(|message| self.messages.get(*message).is_some_and(is_it))
    }

    /// Returns the jobs with messages that `process` holds.
    pub(super) fn jobs_of(&self, process: u32) -> Vec<usize> {
        let holds = self.processes.get(&process).map(|it| &it.holds);
        let jobs = holds.into_iter().flatten().filter_map(|message| self.messages.get(message));
        jobs.map(|message| message.job).filter(|job| *job < self.jobs.len()).collect()
    }

    /// Updates the view of the event's process.
    pub(super) fn update_process(&mut self, event: &Event) {
        let Some(number) = event.process else { return };
        // Such a suspect may wait for hours until it can be alone, and no other job begins then.
        let waits = |job: &usize| {
            let record = self.jobs[*job].record.as_ref();
            record.is_some_and(|it| it.account.is_suspect() && it.account.vanished_unproved > 0)
        };
        let waits = self.jobs_of(number).iter().any(waits);
        let process = self.processes.entry(number).or_default();
        match &event.what {
            What::Started { machine, slots, old, shards } => {
                (process.slots, process.old, process.shards) = (*slots, *old, *shards);
                process.is_calm = *machine == self.machines;
            }
            What::Ended(_) => process.ended = true,
            What::Noticed(_) | What::AskedToStop => process.leaving = true,
            What::Withdrawn => process.leaving = false,
            What::Frozen => process.frozen = true,
            What::Thawed => process.frozen = false,
            What::Troubled => process.troubled = true,
            What::Untroubled => process.troubled = false,
            _ => {}
        }
        if matches!(event.what, What::Frozen | What::Thawed | What::Troubled | What::Untroubled) {
            process.disturbed = Some(event.at);
        }
        let is_available = !(process.ended
            || process.leaving
            || process.frozen
            || process.troubled
            || process.old
            || process.holds.len() >= process.slots
            || waits
            || !process.alone.is_empty());
        process.available = if is_available { process.available.or(Some(event.at)) } else { None };
    }
}

impl ProcessView {
    /// Returns whether the process and its link to the store have been undisturbed since `since`.
    pub(super) fn is_well_since(&self, since: Duration) -> bool {
        !(self.frozen || self.troubled || self.ended) && self.disturbed.is_none_or(|last| last < since)
    }
}
