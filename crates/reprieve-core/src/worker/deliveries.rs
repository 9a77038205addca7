//! All deliveries that this worker holds: one guardian task for each, and the tasks that outlive
//! their guardians.

use std::borrow::Cow;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::delivery::{Batch, DeliveryReport, Guardian, Outcome, Registry};
use super::shared::{RunningJob, Shared};
use crate::deadline::Deadline;
use crate::ports::Delivery;
use crate::process::in_process;
use crate::telemetry::ByOutcome;
use crate::watch;

/// The deliveries in flight, and the counts of those that have ended.
pub(super) struct Deliveries {
    shared: Arc<Shared>,
    registry: Arc<Registry>,
    guardians: JoinSet<DeliveryReport>,
    /// Writes of deliveries that have ended; the worker does not wait for them.
    epilogues: JoinSet<()>,
    /// Jobs that were given up in this drain and still run.
    given_up: JoinSet<()>,
    completed: u64,
    abandoned: u64,
}

/// The end of a task.
pub(super) enum TaskEnded {
    /// A guardian; `None` if it panicked.
    Guardian(Option<Box<DeliveryReport>>),
    /// A write of a delivery that has ended, or a job that was given up.
    Other,
}

impl Deliveries {
    pub(super) fn new(shared: Arc<Shared>, registry: Arc<Registry>) -> Self {
        let (guardians, epilogues, given_up) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        Self { shared, registry, guardians, epilogues, given_up, completed: 0, abandoned: 0 }
    }

    /// Returns how many deliveries are held.
    pub(super) fn held(&self) -> usize {
        self.guardians.len()
    }

    /// Returns how many jobs were given up and still run.
    pub(super) fn still_running(&self) -> usize {
        self.given_up.len()
    }

    /// Returns how many jobs were completed since the worker began.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns how many deliveries were left to their leases since the worker began.
    pub(super) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Guards a delivery, which was received in `batch`.
    pub(super) fn guard(
        &mut self,
        delivery: Delivery,
        batch: Batch,
        drain: watch::Receiver<Option<Deadline>>,
    ) {
        let (shared, registry) = (Arc::clone(&self.shared), Arc::clone(&self.registry));
        let guardian = Guardian::new(shared, registry, delivery, batch, drain);
        self.guardians.spawn(in_process(guardian.guard()));
        self.show_held();
    }

    /// Waits for the end of a task. Cancel-safe; waits without limit when there is none.
    pub(super) async fn next(&mut self) -> TaskEnded {
        tokio::select! {
            biased;
            Some(ended) = self.guardians.join_next() => TaskEnded::Guardian(ended.ok().map(Box::new)),
            Some(_) = self.given_up.join_next() => TaskEnded::Other,
            Some(_) = self.epilogues.join_next() => TaskEnded::Other,
            else => std::future::pending().await,
        }
    }

    /// Counts how a delivery ended, and takes over the tasks that it left. `draining`: a drain
    /// waits for a job that was given up.
    pub(super) fn ended(
        &mut self,
        ended: Option<Box<DeliveryReport>>,
        draining: bool,
    ) -> Option<Box<DeliveryReport>> {
        self.show_held();
        let Some(mut ended) = ended else {
            // A bug in the guardian. The message returns when its lease ends, and the log names the
            // cause.
            tracing::error!("a delivery's guardian panicked; the message returns when its lease ends");
            self.abandoned += 1;
            return None;
        };
        self.count(ended.kind.clone(), ended.outcome);
        match ended.outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Abandoned => self.abandoned += 1,
            _ => {}
        }
        if let Some(epilogue) = ended.epilogue.take() {
            self.epilogues.spawn(in_process(epilogue));
        }
        if let Some(task) = ended.task.take().filter(|_| draining) {
            // The drain already counted this job when the guardian gave it up; only its end
            // matters.
            self.given_up.spawn(in_process(async move { drop(task.await) }));
        }
        Some(ended)
    }

    /// Returns the end of a guardian that has ended already, if there is one.
    pub(super) fn ended_already(&mut self) -> Option<TaskEnded> {
        self.guardians.try_join_next().map(|ended| TaskEnded::Guardian(ended.ok().map(Box::new)))
    }

    /// Leaves every held delivery to its lease, and does not wait any more for jobs that still run.
    /// Returns the number of each; a receive under way counts as one delivery.
    pub(super) fn abandon(&mut self, receiving: bool) -> (usize, usize) {
        let (left, running) = (self.guardians.len() + usize::from(receiving), self.given_up.len());
        for kind in self.shared.running.map(RunningJob::kind) {
            self.count(kind.into(), Outcome::Abandoned);
        }
        self.guardians = JoinSet::new();
        self.given_up.detach_all();
        self.abandoned += left as u64;
        self.show_held();
        (left, running)
    }

    fn count(&self, kind: Cow<'static, str>, outcome: Outcome) {
        let label = ByOutcome { kind, outcome: outcome.as_str() };
        self.shared.telemetry.jobs.get_or_create(&label).inc();
    }

    fn show_held(&self) {
        self.shared.telemetry.in_flight.set(i64::try_from(self.guardians.len()).unwrap_or(i64::MAX));
    }
}
