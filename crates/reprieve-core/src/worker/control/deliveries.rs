//! The control loop's handling of received deliveries and of guardians that have ended.

use std::sync::Arc;

use super::Control;
use crate::process::in_process;
use crate::telemetry::ByOutcome;
use crate::worker::Outcome;
use crate::worker::delivery::{DeliveryReport, Guardian};
use crate::worker::receiver::Received;

impl Control {
    pub(super) fn received(&mut self, received: Received) {
        let (since, lease, deliveries) = self.receiver.received(received);
        for delivery in deliveries {
            if let Some(drain) = &mut self.drain {
                drain.arrived();
            }
            let (shared, drain) = (Arc::clone(&self.shared), self.deadline.subscribe());
            let guardian = Guardian::new(shared, delivery, since, lease, drain);
            self.guardians.spawn(in_process(guardian.guard()));
        }
        self.count_in_flight();
    }

    pub(super) fn ended(&mut self, ended: Option<Box<DeliveryReport>>) {
        self.count_in_flight();
        let Some(mut ended) = ended else {
            // A bug in the guardian. The message returns when its lease ends, and the log names the
            // cause.
            tracing::error!("a delivery's guardian panicked; its message comes back when its lease ends");
            self.abandoned += 1;
            return;
        };
        self.count(&ended.kind, ended.outcome);
        if ended.too_long {
            self.receiver.rest();
        }
        match ended.outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Abandoned => self.abandoned += 1,
            _ => {}
        }
        if let Some(epilogue) = ended.epilogue.take() {
            self.epilogues.spawn(in_process(epilogue));
        }
        if let Some(drain) = &mut self.drain {
            drain.note(&ended);
            if let Some(task) = ended.task.take() {
                // The drain already counted this task when the guardian gave it up; only its end
                // matters.
                self.lingering.spawn(in_process(async move { drop(task.await) }));
            }
        }
    }

    pub(super) fn count(&self, kind: &str, outcome: Outcome) {
        let label = ByOutcome { kind: kind.to_owned(), outcome: outcome.as_str() };
        self.shared.telemetry.jobs.get_or_create(&label).inc();
    }

    pub(super) fn count_in_flight(&self) {
        self.shared.telemetry.in_flight.set(i64::try_from(self.guardians.len()).unwrap_or(i64::MAX));
    }
}
