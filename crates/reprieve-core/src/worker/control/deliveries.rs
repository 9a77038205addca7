//! What the control loop does when deliveries come, and when their guardians end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Control;
use crate::error::Result;
use crate::ports::Delivery;
use crate::telemetry::ByOutcome;
use crate::worker::Outcome;
use crate::worker::guardian::Guardian;
use crate::worker::outcome::Ended;

/// How long nothing is received after a job was too long for this machine.
const TOO_LONG_REST: Duration = Duration::from_secs(10);

/// What a receive that was begun at `since`, for leases of this length, came to.
pub(super) struct Received {
    pub(super) since: Instant,
    pub(super) lease: Duration,
    pub(super) deliveries: Result<Vec<Delivery>>,
}

impl Control {
    pub(super) fn received(&mut self, Received { since, lease, deliveries: received }: Received) {
        self.deaf = received.is_err();
        let deliveries = received.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not receive; trying again");
            Vec::new()
        });
        if deliveries.is_empty() {
            self.pace.slow_down();
        } else {
            self.pace.hurry();
        }
        for delivery in deliveries {
            if let Some(drain) = &mut self.drain {
                drain.arrived();
            }
            let shared = Arc::clone(&self.shared);
            self.guardians
                .spawn(Guardian::new(shared, delivery, since, lease, self.deadline.subscribe()).guard());
        }
        self.count_in_flight();
    }

    pub(super) fn ended(&mut self, ended: Option<Box<Ended>>) {
        self.count_in_flight();
        let Some(mut ended) = ended else {
            // A defect of the guardian: the message comes back when its lease ends, and that is said.
            tracing::error!("a delivery's guardian panicked; its message comes back when its lease ends");
            self.abandoned += 1;
            return;
        };
        self.count(&ended.kind, ended.outcome);
        if ended.too_long {
            // There may be more like it, and another worker is to have the time to take them.
            self.resting_until = Some(Instant::now() + TOO_LONG_REST);
            self.arrival = None;
        }
        match ended.outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Abandoned => self.abandoned += 1,
            _ => {}
        }
        if let Some(drain) = &mut self.drain {
            drain.note(&ended);
            if let Some(task) = ended.task.take() {
                // How it ends was decided when it was given up.
                self.lingering.spawn(async move { drop(task.await) });
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
