//! The control loop's part in a drain: it begins, tightens and ends the drain.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Control;
use crate::deadline::Deadline;
use crate::interruption::{Event, Stage};
use crate::notice::Notice;
use crate::worker::Outcome;
use crate::worker::delivery::RunningJob;
use crate::worker::drain::Drain;

impl Control {
    pub(super) fn begin_drain(&mut self, what: Option<(&Notice, Deadline)>) {
        let Some((notice, deadline)) = what else { return };
        // Nothing is prepared or awaited any more. A receive under way continues, because it may
        // have leased messages.
        self.preparing = None;
        self.receiver.stop();
        self.drain = Some(Drain::begin(self.publisher.queue(), notice, deadline, self.guardians.len()));
        self.deadline.set(Some(deadline));
    }

    pub(super) fn tighten(&mut self, what: Option<(&Notice, Deadline)>) {
        if let (Some(drain), Some((notice, deadline))) = (&mut self.drain, what) {
            drain.tighten_for(notice, deadline);
            let deadline = Some(drain.deadline);
            self.deadline.set(deadline);
        }
    }

    /// Ends the patience of a drain when the last reason for it is gone: a message that is released
    /// sooner can be worked on sooner.
    pub(super) fn end_patience(&mut self) {
        let budget = self.shared.settings.budget;
        if let Some(drain) = self.drain.as_mut().filter(|drain| drain.deadline.patient_until().is_some()) {
            drain.tighten(drain.deadline.at_once(Instant::now(), budget));
            self.deadline.set(Some(drain.deadline));
        }
    }

    /// Abandons what has not ended by the hard mark.
    pub(super) fn abandon(&mut self) {
        while let Some(ended) = self.guardians.try_join_next() {
            self.ended(ended.ok().map(Box::new));
        }
        let left = self.guardians.len() + usize::from(self.receiver.is_receiving());
        let running = self.lingering.len();
        for kind in self.shared.roll.cards(RunningJob::kind) {
            self.count(kind, Outcome::Abandoned);
        }
        self.guardians = JoinSet::new();
        self.lingering.detach_all();
        self.receiver.abandon();
        self.abandoned += left as u64;
        self.count_in_flight();
        if let Some(drain) = &mut self.drain {
            drain.abandon(left, running);
        }
        if left > 0 {
            tracing::error!(
                left,
                "abandoned what could not be given back in time; its leases end by themselves"
            );
        }
        if running > 0 {
            tracing::warn!(running, "jobs that were given up still run; each keeps its slot until it ends");
        }
    }

    /// Ends the drain once nothing is held, nothing runs, and nothing can arrive any more.
    pub(super) fn drained_perhaps(&mut self) {
        if !self.guardians.is_empty() || !self.lingering.is_empty() || self.receiver.is_receiving() {
            return;
        }
        let Some(drain) = self.drain.take() else { return };
        self.released += drain.released();
        let report = drain.end(&self.shared.telemetry);
        self.budget_left = Duration::from_millis(report.budget_left_ms);
        if report.held > 0 {
            self.publisher.keep(&self.shared.drain_store.blobs, &report);
        }
        self.monitor.drained(report);
        self.deadline.set(None);
        if self.life.stage() != Stage::Stopped {
            self.decide(Event::Drained, None);
        }
    }
}
