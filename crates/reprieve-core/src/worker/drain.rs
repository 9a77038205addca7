//! One drain, from its notice to its report. The guardians do the work; this collects the figures.

use std::time::Duration;

use tokio::time::Instant;

use super::delivery::{DeliveryReport, Outcome};
use crate::clock::unix_millis;
use crate::deadline::Deadline;
use crate::notice::Notice;
use crate::report::DrainReport;
use crate::telemetry::Telemetry;

#[derive(Debug)]
pub(super) struct Drain {
    pub(super) deadline: Deadline,
    report: DrainReport,
    began: Instant,
    released_at: Instant,
    /// The time at which the rest is abandoned when the hard mark passed while this machine was
    /// frozen.
    grace: Option<Instant>,
}

/// How long held deliveries have after a freeze that lasted past the hard mark: calls under way may
/// have succeeded, and their answers are awaited.
const GRACE: Duration = Duration::from_secs(2);

/// The shortest silence of the control loop that counts as a freeze; the loop runs once a second.
const FREEZE: Duration = Duration::from_millis(1_500);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Drain {
    /// Begins the report: `held` deliveries must be released before `deadline`.
    pub(super) fn begin(queue: &str, notice: &Notice, deadline: Deadline, held: usize) -> Self {
        let report = DrainReport {
            queue: queue.to_owned(),
            notice: notice.kind.as_str().to_owned(),
            at_unix_ms: unix_millis() - i64::try_from(deadline.asked().elapsed().as_millis()).unwrap_or(0),
            held: held as u64,
            ..DrainReport::default()
        };
        Self { deadline, report, began: deadline.asked(), released_at: deadline.asked(), grace: None }
    }

    /// Returns when the rest is abandoned.
    pub(super) fn hard_mark(&self) -> Instant {
        self.grace.unwrap_or(self.deadline.hard())
    }

    /// Reports whether to abandon the rest at once, now that the hard mark has come. It is not
    /// abandoned yet when the control loop was `silent` for so long that the machine must have been
    /// frozen.
    pub(super) fn is_hard(&mut self, silent: Duration) -> bool {
        if self.grace.is_some() || silent < FREEZE {
            return true;
        }
        self.grace = Some(Instant::now() + GRACE);
        false
    }

    /// Moves the deadline to the earlier of `deadline` and the present one.
    pub(super) fn tighten(&mut self, deadline: Deadline) {
        self.deadline = self.deadline.min(deadline);
    }

    /// Tightens the deadline for another notice. If that ends a patient drain's patience, `notice`
    /// becomes the reported reason.
    pub(super) fn tighten_for(&mut self, notice: &Notice, deadline: Deadline) {
        let patient = self.deadline.patient_until().is_some();
        self.tighten(deadline);
        if patient && self.deadline.patient_until().is_none() {
            notice.kind.as_str().clone_into(&mut self.report.notice);
        }
    }

    /// Counts a delivery that arrived during the drain; it is released like the others.
    pub(super) fn arrived(&mut self) {
        self.report.held += 1;
    }

    /// Counts how one delivery ended.
    pub(super) fn note(&mut self, ended: &DeliveryReport) {
        let report = &mut self.report;
        match ended.outcome {
            Outcome::Unstarted | Outcome::Deferred => report.released_unstarted += 1,
            Outcome::Saved => report.released_saved += 1,
            Outcome::Cut => report.released_cut += 1,
            Outcome::Unconfirmed => report.released_unconfirmed += 1,
            Outcome::Abandoned => report.abandoned += 1,
            Outcome::LeaseLost => report.leases_lost += 1,
            Outcome::Completed | Outcome::Duplicate | Outcome::Retried | Outcome::DeadLettered => {
                report.finished += 1;
            }
        }
        match ended.outcome {
            Outcome::Unconfirmed => report.work_unconfirmed_ms += millis(ended.work_at_stake),
            Outcome::Cut => report.work_lost_ms += millis(ended.work_at_stake),
            _ => {}
        }
        self.released_at = self.released_at.max(ended.settled_at);
    }

    /// Counts what is left at the hard mark: `left` deliveries that were not released, `running`
    /// tasks that have not ended.
    pub(super) fn abandon(&mut self, left: usize, running: usize) {
        self.report.abandoned += left as u64;
        self.report.still_running += running as u64;
        if left > 0 {
            self.released_at = Instant::now();
        }
    }

    /// Completes the report, logs and counts it, and returns it to be stored.
    pub(super) fn end(mut self, telemetry: &Telemetry) -> DrainReport {
        let asked = self.deadline.asked();
        let quiesced = asked.elapsed();
        let released = self.released_at.saturating_duration_since(asked);
        let left = self.deadline.left();
        self.report.released_after_ms = millis(released);
        self.report.quiesced_after_ms = millis(quiesced);
        self.report.budget_left_ms = millis(left);
        let patient = self.deadline.patient_until().is_some();
        self.report.patient_ms = millis(if patient { quiesced } else { asked - self.began });
        if !patient {
            // A job that was left to finish does not show how fast one can be released.
            telemetry.notice_to_released.observe(released.as_secs_f64());
            telemetry.notice_to_quiesced.observe(quiesced.as_secs_f64());
            telemetry.budget_left.observe(left.as_secs_f64());
        }
        telemetry.work_lost.observe(Duration::from_millis(self.report.work_lost_ms).as_secs_f64());
        let r = &self.report;
        tracing::info!(
            notice = r.notice,
            held = r.held,
            unstarted = r.released_unstarted,
            saved = r.released_saved,
            cut = r.released_cut,
            unconfirmed = r.released_unconfirmed,
            finished = r.finished,
            leases_lost = r.leases_lost,
            abandoned = r.abandoned,
            still_running = r.still_running,
            work_lost_ms = r.work_lost_ms,
            work_unconfirmed_ms = r.work_unconfirmed_ms,
            patient_ms = r.patient_ms,
            released_after_ms = r.released_after_ms,
            quiesced_after_ms = r.quiesced_after_ms,
            budget_left_ms = r.budget_left_ms,
            "drained"
        );
        self.report
    }

    /// Returns the number of deliveries released so far.
    pub(super) fn released(&self) -> u64 {
        let r = &self.report;
        r.released_unstarted + r.released_saved + r.released_cut + r.released_unconfirmed
    }
}
