//! Rules about messages: none is lost, leases end in time after a notice, and none waits while a
//! worker is free.

use std::time::Duration;

use reprieve_core::MessageId;

use super::Checker;
use super::view::{DrainView, MessageState, MessageView};
use crate::fleet::history::{Event, What};

/// How late a drain may be: the time of the last answers.
const SLACK: Duration = Duration::from_millis(250);

/// How long after trouble its answers may still be under way.
const AFTERMATH: Duration = Duration::from_secs(60);

/// How long an idle fleet may take to receive a message: the longest pause of a shard that failed,
/// and one round of polls.
const UNNOTICED: Duration = Duration::from_secs(100);

impl Checker<'_> {
    pub(super) fn messages(&mut self, event: &Event) {
        let process = event.process;
        match &event.what {
            What::Sent { job, message, .. } => self.sent(*job, message),
            What::Received { message, count, lease } => {
                self.was_idle(message);
                self.hold(process, message, *lease);
                if let Some(view) = self.view.messages.get_mut(message) {
                    (view.count, view.received) = (*count, event.at);
                }
            }
            What::Renewed { message, lease } => self.hold(process, message, *lease),
            What::Released { message, delay, .. } => {
                self.place(message, MessageState::Visible(self.now + *delay));
            }
            What::Completed { message } => {
                self.place(message, MessageState::Gone);
                self.must_not_be_lost(message);
                let job = self.view.messages.get(message).map_or(usize::MAX, |view| view.job);
                if let Some(job) = self.view.jobs.get_mut(job) {
                    job.completed = Some(event.at);
                }
            }
            What::DeadLettered { message, .. } => self.place(message, MessageState::Letter),
            What::LetterRemoved { message } => {
                self.place(message, MessageState::Gone);
                self.must_not_be_lost(message);
            }
            What::Result { job, taken: true, .. } | What::Output { job, taken: true, .. } => {
                if let Some(job) = self.view.jobs.get_mut(*job) {
                    job.done = true;
                }
            }
            What::Noticed(notice) => self.noticed(process.unwrap_or_default(), *notice),
            What::Withdrawn => self.view.drains.retain(|drain| Some(drain.process) != process),
            _ => {}
        }
    }

    fn sent(&mut self, job: usize, message: &MessageId) {
        if let Some(job) = self.view.jobs.get_mut(job) {
            job.sent = true;
        }
        let state = MessageState::Visible(self.now);
        let view = MessageView { job, state, count: 0, received: self.now, deaths: (0, 0), failures: 0 };
        self.view.messages.insert(message.clone(), view);
    }

    fn hold(&mut self, process: Option<u32>, message: &MessageId, lease: Duration) {
        let by = process.unwrap_or_default();
        self.place(message, MessageState::Leased { by, until: self.now + lease });
        if let Some(process) = self.view.process(process) {
            process.holds.insert(message.clone());
        }
    }

    /// Moves the message to `state`, and removes it from the process that held it.
    fn place(&mut self, message: &MessageId, state: MessageState) {
        let Some(view) = self.view.messages.get_mut(message) else { return };
        let before = std::mem::replace(&mut view.state, state);
        if let MessageState::Leased { by, .. } = before
            && let Some(process) = self.view.processes.get_mut(&by)
        {
            process.holds.remove(message);
        }
    }

    /// Checks that a job that is not done still has a message or a dead letter.
    fn must_not_be_lost(&mut self, message: &MessageId) {
        let Some(job) = self.view.messages.get(message).map(|view| view.job) else { return };
        let done = self.view.jobs.get(job).is_none_or(|job| job.done);
        let mut messages = self.view.messages.values().filter(|view| view.job == job);
        if !done && !self.view.is_cancelled(job) && messages.all(|view| view.state == MessageState::Gone) {
            self.accuse("lost", Some(job), format!("{message} was its last message, and it is not done"));
        }
    }

    fn noticed(&mut self, process: u32, notice: Duration) {
        let (asked, budget) = (self.now, self.plan.budget);
        let due = if notice.is_zero() { budget } else { budget.min(notice) };
        let until = asked + due.max(budget.min(Duration::from_secs(2)));
        self.view.drains.push(DrainView { process, asked, until });
    }

    /// Checks the drains that should have ended by now.
    pub(super) fn end_drains(&mut self) {
        let now = self.now;
        let over = self.view.drains.extract_if(.., |drain| drain.until + SLACK < now);
        for drain in over.collect::<Vec<_>>() {
            let Some(process) = self.view.processes.get(&drain.process) else { continue };
            if !process.is_well_since(drain.asked.saturating_sub(AFTERMATH)) {
                continue;
            }
            let held = |message: &&MessageId| {
                let view = self.view.messages.get(*message);
                view.is_some_and(
                    |it| matches!(it.state, MessageState::Leased { until, .. } if until > drain.until + SLACK),
                )
            };
            if let Some(message) = process.holds.iter().find(held) {
                let why = format!(
                    "p{} still holds {message} after the drain that began at {:.3}s",
                    drain.process,
                    drain.asked.as_secs_f64()
                );
                self.accuse("held past the budget", None, why);
            }
        }
    }

    /// Checks that a message that is received now did not wait for a worker that was free all the
    /// time.
    fn was_idle(&mut self, message: &MessageId) {
        let Some(view) = self.view.messages.get(message) else { return };
        let visible = match view.state {
            MessageState::Visible(since) => since,
            MessageState::Leased { until, .. } => until,
            MessageState::Letter | MessageState::Gone => return,
        };
        let (job, limit) = (view.job, UNNOTICED + self.plan.lease * 4);
        if self.is_limited(job) {
            return;
        }
        let shard = message.as_str().strip_prefix("work-").and_then(|rest| rest.split('-').next());
        // The calm machine is busy now and then for as long as its jobs take.
        let Some(shard) = shard.and_then(|shard| shard.parse::<usize>().ok()) else { return };
        let free = self.view.processes.iter().find(|(_, process)| {
            let since = process.available.map(|since| since.max(visible));
            !process.is_calm
                && shard < process.shards
                && since.is_some_and(|since| self.now.saturating_sub(since) > limit)
        });
        if let Some((process, _)) = free {
            let since = visible.as_secs_f64();
            let why =
                format!("{message} could be received since {since:.3}s, and p{process} had a slot for it");
            self.accuse("idle", Some(job), why);
        }
    }
}
