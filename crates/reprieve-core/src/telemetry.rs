//! All metrics. Their names are an interface: changing one is a breaking change.
//!
//! | metric | kind | labels | what it counts |
//! |---|---|---|---|
//! | `reprieve_jobs_total` | counter | `kind`, `outcome` | ended deliveries, by [`crate::worker::Outcome`] |
//! | `reprieve_in_flight` | gauge | | deliveries held now |
//! | `reprieve_stage` | gauge | `stage` | 1 for the worker's current stage, 0 for the others |
//! | `reprieve_notice_to_released_seconds` | histogram | | from a notice to the release of the last lease |
//! | `reprieve_notice_to_quiesced_seconds` | histogram | | from a notice until the last task stopped or was abandoned |
//! | `reprieve_budget_left_seconds` | histogram | | unused part of a drain's budget |
//! | `reprieve_work_lost_seconds` | histogram | | work since the last checkpoint of the jobs that a drain cut off |
//! | `reprieve_stale_writes_blocked_total` | counter | | writes refused because their writer no longer owned the job |
//! | `reprieve_leases_lost_total` | counter | | leases that ended before their jobs did |
//! | `reprieve_lease_renewals_total` | counter | `result` | renewals, `ok` or `error` |
//! | `reprieve_checkpoint_seconds` | histogram | `kind` | duration of saves |
//! | `reprieve_checkpoint_bytes` | histogram | `kind` | size of saved states |
//! | `reprieve_checkpoint_errors_total` | counter | `kind` | failed saves |
//! | `reprieve_checkpoints_unreadable_total` | counter | | damaged or missing records and checkpoints |
//! | `reprieve_cleaned_total` | counter | `what` | objects that the worker removed from the store because nothing needed them |
//! | `reprieve_notices_total` | counter | `kind` | events announced for this machine; `other` for an unknown type |
//! | `reprieve_approvals_total` | counter | `result` | approvals, `ok`, `refused` or `error` |
//! | `reprieve_ledger_entries_total` | counter | `result` | entries of the ledger, `ok`, `error`, or `dropped` because too many waited |
//! | `reprieve_metadata_staleness_seconds` | gauge | | age of the metadata service's last valid answer |
//! | `reprieve_metadata_errors_total` | counter | `reason` | polls of the metadata service without a valid answer |
//! | `reprieve_stalled_jobs` | gauge | `kind` | running jobs that have made no step, no save and no progress for long |
//! | `reprieve_healing_actions_total` | counter | `layer`, `action` | actions that heal a fault, by [`crate::healing`] |
//! | `reprieve_dependency_state` | gauge | `dependency`, `state` | 1 for the dependency's state, 0 for the others: that of its breaker, `closed`, `open` or `half-open`; where that is closed, `refuses` if it refuses what jobs that need it do, or `limited` while few jobs that use it may begin until these fare well for a while, because jobs that did without it held their slots for long |
//! | `reprieve_pressure` | gauge | `cause` | 1 while the machine is under pressure because of `memory`, `disk` or `io-errors`, else 0 |
//! | `reprieve_metadata_version` | gauge | `version` | 1 for the api-version used for polling, 0 for the others |

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The label of metrics by kind of job, or by kind of notice.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByKind {
    /// The kind.
    pub kind: String,
}

/// The labels of `reprieve_jobs_total`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByOutcome {
    /// The job's kind; empty when the message could not be read.
    pub kind: Cow<'static, str>,
    /// How the delivery ended.
    pub outcome: &'static str,
}

/// The labels of `reprieve_dependency_state`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByDependency {
    /// The dependency's name in the worker's settings.
    pub dependency: String,
    /// The state.
    pub state: &'static str,
}

/// The labels of `reprieve_healing_actions_total`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByLayer {
    /// The layer that acts: `job`, `slot`, `worker` or `vm`.
    pub layer: &'static str,
    /// What it does.
    pub action: &'static str,
}

/// The label of `reprieve_pressure`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByCause {
    /// The cause.
    pub cause: &'static str,
}

/// The label of `reprieve_stage`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByStage {
    /// The stage.
    pub stage: &'static str,
}

/// The label of metrics by result.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByResult {
    /// `ok`, `error` or `refused`.
    pub result: &'static str,
}

/// The label of `reprieve_cleaned_total`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByWhat {
    /// The kind of the removed objects.
    pub what: &'static str,
}

/// The label of `reprieve_metadata_errors_total`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByReason {
    /// Why the poll failed.
    pub reason: &'static str,
}

/// The label of `reprieve_metadata_version`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByVersion {
    /// The api-version.
    pub version: &'static str,
}

type HistogramFamily = Family<ByKind, Histogram, fn() -> Histogram>;

/// A worker's metrics. The fields are the table above, in its order.
#[derive(Debug)]
#[expect(missing_docs, reason = "the module's table describes each")]
pub struct Telemetry {
    registry: Registry,
    pub jobs: Family<ByOutcome, Counter>,
    pub in_flight: Gauge,
    pub stage: Family<ByStage, Gauge>,
    /// `reprieve_stalled_jobs`
    pub stalled_jobs: Family<ByKind, Gauge>,
    /// `reprieve_healing_actions_total`
    pub healing_actions: Family<ByLayer, Counter>,
    /// `reprieve_dependency_state`
    pub dependency_state: Family<ByDependency, Gauge>,
    /// `reprieve_pressure`
    pub pressure: Family<ByCause, Gauge>,
    pub notice_to_released: Histogram,
    pub notice_to_quiesced: Histogram,
    pub budget_left: Histogram,
    pub work_lost: Histogram,
    pub stale_writes_blocked: Counter,
    pub leases_lost: Counter,
    pub lease_renewals: Family<ByResult, Counter>,
    pub checkpoint_seconds: HistogramFamily,
    pub checkpoint_bytes: HistogramFamily,
    pub checkpoint_errors: Family<ByKind, Counter>,
    pub checkpoints_unreadable: Counter,
    pub cleaned: Family<ByWhat, Counter>,
    pub notices: Family<ByKind, Counter>,
    pub approvals: Family<ByResult, Counter>,
    pub ledger_entries: Family<ByResult, Counter>,
    pub metadata_staleness: Gauge<f64, AtomicU64>,
    pub metadata_errors: Family<ByReason, Counter>,
    pub metadata_version: Family<ByVersion, Gauge>,
}

/// 5 ms to 20 s: a release takes milliseconds, a budget is ten seconds.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.005, 2.0, 13))
}

/// 64 bytes to 1 GiB.
fn bytes() -> Histogram {
    Histogram::new(exponential_buckets(64.0, 4.0, 13))
}

/// One second to three hours.
fn lost() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.5, 11))
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

impl Telemetry {
    /// Creates metrics with the value zero.
    #[must_use]
    pub fn new() -> Self {
        let mut telemetry = Self {
            registry: Registry::with_prefix("reprieve"),
            jobs: Family::default(),
            in_flight: Gauge::default(),
            stage: Family::default(),
            stalled_jobs: Family::default(),
            healing_actions: Family::default(),
            dependency_state: Family::default(),
            pressure: Family::default(),
            notice_to_released: seconds(),
            notice_to_quiesced: seconds(),
            budget_left: seconds(),
            work_lost: lost(),
            stale_writes_blocked: Counter::default(),
            leases_lost: Counter::default(),
            lease_renewals: Family::default(),
            checkpoint_seconds: Family::new_with_constructor(seconds),
            checkpoint_bytes: Family::new_with_constructor(bytes),
            checkpoint_errors: Family::default(),
            checkpoints_unreadable: Counter::default(),
            cleaned: Family::default(),
            notices: Family::default(),
            approvals: Family::default(),
            ledger_entries: Family::default(),
            metadata_staleness: Gauge::default(),
            metadata_errors: Family::default(),
            metadata_version: Family::default(),
        };
        telemetry.register();
        telemetry
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        // The encoder adds `_total` to counters.
        r.register("jobs", "Deliveries that ended", self.jobs.clone());
        r.register("in_flight", "Deliveries held now", self.in_flight.clone());
        r.register("stage", "1 for the worker's current stage", self.stage.clone());
        r.register("stalled_jobs", "Running jobs that have not moved for long", self.stalled_jobs.clone());
        r.register("healing_actions", "Actions that heal a fault", self.healing_actions.clone());
        r.register("dependency_state", "1 for the state of a dependency", self.dependency_state.clone());
        r.register("pressure", "1 while the machine is under pressure", self.pressure.clone());
        r.register(
            "notice_to_released_seconds",
            "From a notice to the last lease released",
            self.notice_to_released.clone(),
        );
        r.register(
            "notice_to_quiesced_seconds",
            "From a notice to the last task stopped or abandoned",
            self.notice_to_quiesced.clone(),
        );
        r.register("budget_left_seconds", "Unused budget of a drain", self.budget_left.clone());
        r.register(
            "work_lost_seconds",
            "Work since the last checkpoint of the jobs a drain cut off",
            self.work_lost.clone(),
        );
        r.register(
            "stale_writes_blocked",
            "Writes refused because their writer no longer held the job",
            self.stale_writes_blocked.clone(),
        );
        r.register("leases_lost", "Leases that ended before their jobs did", self.leases_lost.clone());
        r.register("lease_renewals", "Lease renewals", self.lease_renewals.clone());
        r.register("checkpoint_seconds", "Duration of saves", self.checkpoint_seconds.clone());
        r.register("checkpoint_bytes", "Size of checkpoints", self.checkpoint_bytes.clone());
        r.register("checkpoint_errors", "Saves that failed", self.checkpoint_errors.clone());
        r.register(
            "checkpoints_unreadable",
            "Records and checkpoints that were damaged or missing",
            self.checkpoints_unreadable.clone(),
        );
        r.register("cleaned", "Objects removed because nothing needed them", self.cleaned.clone());
        r.register("notices", "Events announced for this machine", self.notices.clone());
        r.register("approvals", "Approvals of events", self.approvals.clone());
        r.register(
            "ledger_entries",
            "Entries of the ledger, by whether they were written",
            self.ledger_entries.clone(),
        );
        r.register(
            "metadata_staleness_seconds",
            "Age of the metadata service's last valid answer",
            self.metadata_staleness.clone(),
        );
        r.register("metadata_errors", "Failed polls of the metadata service", self.metadata_errors.clone());
        r.register("metadata_version", "1 for the api-version in use", self.metadata_version.clone());
    }

    /// The metrics in the Prometheus text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string fails only when it can't grow, which aborts anyway.
        let _infallible = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dashboards are built on the table in this module's documentation.
    #[test]
    fn every_documented_metric_is_exported_under_its_name() {
        let telemetry = Telemetry::new();
        telemetry.jobs.get_or_create(&ByOutcome { kind: "k".into(), outcome: "completed" }).inc();
        let of_cache = ByDependency { dependency: "cache".to_owned(), state: "open" };
        telemetry.dependency_state.get_or_create(&of_cache).set(1);
        let of_job = ByLayer { layer: "job", action: "stop_job" };
        telemetry.healing_actions.get_or_create(&of_job).inc();
        telemetry.stage.get_or_create(&ByStage { stage: "start" }).set(1);
        telemetry.pressure.get_or_create(&ByCause { cause: "disk" }).set(1);
        telemetry.lease_renewals.get_or_create(&ByResult { result: "ok" }).inc();
        let kind = ByKind { kind: "k".into() };
        telemetry.checkpoint_seconds.get_or_create(&kind).observe(0.1);
        telemetry.checkpoint_bytes.get_or_create(&kind).observe(10.0);
        telemetry.checkpoint_errors.get_or_create(&kind).inc();
        telemetry.stalled_jobs.get_or_create(&kind).set(1);
        telemetry.cleaned.get_or_create(&ByWhat { what: "results" }).inc();
        telemetry.notices.get_or_create(&kind).inc();
        telemetry.approvals.get_or_create(&ByResult { result: "ok" }).inc();
        telemetry.ledger_entries.get_or_create(&ByResult { result: "ok" }).inc();
        telemetry.metadata_errors.get_or_create(&ByReason { reason: "throttled" }).inc();
        telemetry.metadata_version.get_or_create(&ByVersion { version: "2020-07-01" }).set(1);
        let text = telemetry.encode();
        let documented: Vec<_> = include_str!("telemetry.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! | `")?.split('`').next())
            .collect();
        assert!(documented.len() > 10);
        for name in documented {
            let found = text
                .lines()
                .any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ', '_'])));
            assert!(found, "{name} is documented but not exported:\n{text}");
        }
    }
}
