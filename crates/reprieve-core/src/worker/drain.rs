//! Drains, one at a time: from the order to the report. The guardians release their messages; this
//! sets their deadline and collects the figures.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::delivery::{DeliveryReport, Outcome};
use super::shared::Shared;
use crate::clock::unix_millis;
use crate::deadline::Deadline;
use crate::interruption::DrainOrder;
use crate::report::DrainReport;
use crate::telemetry::Telemetry;
use crate::watch;

/// The drain under way, if any, and the figures of those before it.
#[derive(Debug)]
pub(super) struct Drains {
    shared: Arc<Shared>,
    current: Option<Drain>,
    /// The deadline of the drain under way; the guardians follow it.
    deadline: watch::Sender<Option<Deadline>>,
    /// When the dispatcher last ran again after a freeze.
    thawed: Option<Instant>,
    released: u64,
    budget_left: Duration,
}

impl Drains {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (deadline, budget_left) = (watch::Sender::new(None), Duration::ZERO);
        Self { shared, current: None, deadline, thawed: None, released: 0, budget_left }
    }

    /// Returns the channel with the deadline of the drain under way.
    pub(super) fn deadline(&self) -> watch::Receiver<Option<Deadline>> {
        self.deadline.subscribe()
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    /// Returns how many deliveries all drains have released.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    /// Returns what the last drain left of its budget.
    pub(super) fn budget_left(&self) -> Duration {
        self.budget_left
    }

    /// Begins a drain of the worker of `queue`, which holds `held` deliveries.
    pub(super) fn begin(&mut self, queue: &str, order: &DrainOrder, held: usize) {
        self.current = Some(Drain::begin(queue, order, held));
        self.deadline.set(Some(order.deadline));
    }

    /// Tightens the drain under way for another order.
    pub(super) fn tighten(&mut self, order: &DrainOrder) {
        self.change(|drain| drain.tighten_for(order));
    }

    /// Ends the patience of a drain when the last reason for it is gone: a message that is released
    /// sooner can be worked on sooner.
    pub(super) fn end_patience(&mut self) {
        let budget = self.shared.settings.budget;
        self.change(|drain| {
            if drain.deadline.patient_until().is_some() {
                drain.tighten(drain.deadline.at_once(Instant::now(), budget));
            }
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Drain)) {
        if let Some(drain) = &mut self.current {
            change(drain);
            self.deadline.set(Some(drain.deadline));
        }
    }

    /// Counts a delivery that arrived during the drain; it is released like the others.
    pub(super) fn arrived(&mut self) {
        if let Some(drain) = &mut self.current {
            drain.report.held += 1;
        }
    }

    /// Counts how one delivery ended.
    pub(super) fn note(&mut self, ended: &DeliveryReport) {
        if let Some(drain) = &mut self.current {
            drain.note(ended);
        }
    }

    /// Waits for the hard mark, when the rest is abandoned. Cancel-safe; waits without limit when
    /// no drain is under way.
    pub(super) async fn hard_mark(&self) {
        match &self.current {
            Some(drain) => sleep_until(drain.hard_mark()).await,
            None => std::future::pending().await,
        }
    }

    /// Takes in for how long the dispatcher did not run. Too long a silence means that the machine
    /// was frozen.
    pub(super) fn note_silence(&mut self, silent: Duration) {
        if silent >= FREEZE {
            self.thawed = Some(Instant::now());
        }
    }

    /// Reports whether to abandon the rest at once, now that the hard mark has come. Right after a
    /// freeze, it is not abandoned yet.
    pub(super) fn is_hard(&mut self) -> bool {
        let thawed = self.thawed.is_some_and(|at| at.elapsed() < GRACE);
        self.current.as_mut().is_none_or(|drain| drain.is_hard(thawed))
    }

    /// Counts what is left at the hard mark: `left` deliveries that were not released, `running`
    /// jobs that have not ended.
    pub(super) fn abandon(&mut self, left: usize, running: usize) {
        if let Some(drain) = &mut self.current {
            drain.abandon(left, running);
        }
        if left > 0 {
            tracing::error!(
                left,
                "abandoned messages that were not released in time; they return when their leases end"
            );
        }
        if running > 0 {
            tracing::warn!(running, "cancelled jobs are still running; each occupies a slot until it ends");
        }
    }

    /// Ends the drain under way, if any: nothing is held any more. Returns its report.
    pub(super) fn end(&mut self) -> Option<DrainReport> {
        let drain = self.current.take()?;
        self.released += drain.released();
        let report = drain.end(&self.shared.telemetry);
        self.budget_left = Duration::from_millis(report.budget_left_ms);
        self.deadline.set(None);
        Some(report)
    }
}

/// One drain.
#[derive(Debug)]
struct Drain {
    deadline: Deadline,
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

/// The shortest silence of the dispatcher that counts as a freeze; the loop runs once a second.
const FREEZE: Duration = Duration::from_millis(1_500);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Drain {
    /// Begins the report: `held` deliveries must be released before `deadline`.
    fn begin(queue: &str, order: &DrainOrder, held: usize) -> Self {
        let deadline = order.deadline;
        let report = DrainReport {
            queue: queue.to_owned(),
            notice: order.kind.as_str().to_owned(),
            at_unix_ms: unix_millis() - i64::try_from(deadline.asked().elapsed().as_millis()).unwrap_or(0),
            held: held as u64,
            lead_ms: order.lead.map(millis),
            ..DrainReport::default()
        };
        Self { deadline, report, began: deadline.asked(), released_at: deadline.asked(), grace: None }
    }

    /// Returns when the rest is abandoned.
    fn hard_mark(&self) -> Instant {
        self.grace.unwrap_or(self.deadline.hard())
    }

    fn is_hard(&mut self, thawed: bool) -> bool {
        if self.grace.is_some() || !thawed {
            return true;
        }
        self.grace = Some(Instant::now() + GRACE);
        false
    }

    /// Moves the deadline to the earlier of `deadline` and the present one.
    fn tighten(&mut self, deadline: Deadline) {
        self.deadline = self.deadline.min(deadline);
    }

    /// Tightens the deadline for another order. If that ends a patient drain's patience, the order
    /// becomes the reported reason.
    fn tighten_for(&mut self, order: &DrainOrder) {
        let patient = self.deadline.patient_until().is_some();
        self.tighten(order.deadline);
        if patient && self.deadline.patient_until().is_none() {
            order.kind.as_str().clone_into(&mut self.report.notice);
            self.report.lead_ms = order.lead.map(millis);
        }
    }

    fn note(&mut self, ended: &DeliveryReport) {
        let report = &mut self.report;
        match ended.outcome {
            Outcome::Unstarted | Outcome::Deferred => report.released_unstarted += 1,
            Outcome::Saved => report.released_saved += 1,
            Outcome::Cut => report.released_cut += 1,
            Outcome::Unconfirmed => report.released_unconfirmed += 1,
            Outcome::Abandoned => report.abandoned += 1,
            Outcome::LeaseLost => report.leases_lost += 1,
            Outcome::Completed
            | Outcome::Duplicate
            | Outcome::Retried
            | Outcome::DeadLettered
            | Outcome::Escalated
            | Outcome::Cancelled
            | Outcome::Waiting => {
                report.finished += 1;
            }
        }
        report.work_kept_ms += millis(ended.work_kept);
        match ended.outcome {
            Outcome::Unconfirmed => report.work_unconfirmed_ms += millis(ended.work_at_stake),
            Outcome::Cut => report.work_lost_ms += millis(ended.work_at_stake),
            _ => {}
        }
        self.released_at = self.released_at.max(ended.settled_at);
    }

    fn abandon(&mut self, left: usize, running: usize) {
        self.report.abandoned += left as u64;
        self.report.still_running += running as u64;
        if left > 0 {
            self.released_at = Instant::now();
        }
    }

    /// Completes the report, logs and counts it, and returns it to be stored.
    fn end(mut self, telemetry: &Telemetry) -> DrainReport {
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
            work_kept_ms = r.work_kept_ms,
            patient_ms = r.patient_ms,
            released_after_ms = r.released_after_ms,
            quiesced_after_ms = r.quiesced_after_ms,
            budget_left_ms = r.budget_left_ms,
            "drained"
        );
        self.report
    }

    /// Returns the number of deliveries released so far.
    fn released(&self) -> u64 {
        let r = &self.report;
        r.released_unstarted + r.released_saved + r.released_cut + r.released_unconfirmed
    }
}
