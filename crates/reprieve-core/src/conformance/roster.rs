//! The promises of a [`Roster`].

use std::time::Duration;

use tokio::time::sleep;

use super::Fixture;
use crate::clock;
use crate::ids::{JobId, WorkerId};
use crate::ports::{ActiveNotice, DeferredMessage, InFlight, LimitedKind, Progress, Roster, WorkerReport};
use crate::pressure::{ActivePressure, MachineReport, Shown};
use crate::worker::DrainReport;

/// Longer than a test takes.
const LONG: Duration = Duration::from_hours(1);

fn report(worker: &str) -> WorkerReport {
    WorkerReport {
        queue: "default".to_owned(),
        kinds: vec!["resize".to_owned()],
        vm: "spot_7".to_owned(),
        pid: 4711,
        stage: "start".to_owned(),
        at_unix_ms: clock::unix_millis(),
        completed: 12,
        ..WorkerReport::new(WorkerId::new(worker))
    }
}

async fn publish(roster: &dyn Roster, report: &WorkerReport) {
    roster.publish(report).await.expect("publishes");
}

async fn reports(roster: &dyn Roster) -> Vec<WorkerReport> {
    roster.reports(LONG).await.expect("reads reports")
}

/// A report is returned whole, to every process.
pub async fn a_report_comes_back_whole(fixture: &Fixture) {
    let in_flight = InFlight {
        job: JobId::parse("order-17").expect("is valid"),
        kind: "thumbnails".to_owned(),
        delivery: 3,
        progress: Progress { done: u64::MAX, total: 0 },
        steps: 7,
        since_unix_ms: -1,
        moved_unix_ms: Some(6),
        stalled_since_unix_ms: Some(7),
        stalled_in: Some("step 8, span download".to_owned()),
        began_unix_ms: Some(-1),
        kept_ms: u64::MAX,
        escalated: Some("it was interrupted".to_owned()),
    };
    let drain =
        DrainReport { notice: "Preempt".to_owned(), held: 4, work_lost_ms: 250, ..DrainReport::default() };
    let reported = WorkerReport {
        vm: "été\n\"\0".to_owned(),
        in_flight: vec![in_flight.clone(), InFlight { delivery: 1, ..in_flight }],
        notices: vec![ActiveNotice {
            id: "c7061bac".to_owned(),
            kind: "Freeze".to_owned(),
            started: false,
            not_before_unix_ms: Some(1_650_000_000_000),
            doing: "going on".to_owned(),
            approved: true,
        }],
        deferred: vec![DeferredMessage {
            job: "order-18".to_owned(),
            kind: "unheard-of".to_owned(),
            reason: "no worker knows it".to_owned(),
            since_unix_ms: 1_650_000_000_000,
            seen_unix_ms: -1,
        }],
        limits: vec![LimitedKind {
            memory_bytes: Some(1 << 30),
            kind: "scarce".to_owned(),
            running: 1,
            deferred: u64::MAX,
            per_worker: None,
            in_fleet: Some(1_000),
            step_timeout_ms: Some(1_000),
            job_timeout_ms: None,
            stall_after_ms: Some(10_000),
            attempts: 5,
            backoff_ms: 0,
            backoff_max_ms: 1,
        }],
        machine: Some(MachineReport {
            pressure: vec![ActivePressure {
                cause: "disk".to_owned(),
                why: "7 MiB are left".to_owned(),
                since_unix_ms: 1_650_000_000_000,
            }],
            acts: true,
            shown: Shown { io_stall_percent: Some(7), clock_behind_ms: Some(-2_500), ..Shown::default() },
        }),
        last_drain: Some(drain),
        ..report("worker")
    };
    publish(&*fixture.store.roster, &reported).await;
    assert_eq!(reports(&*fixture.another.roster).await, [reported]);
}

/// A worker's report replaces that worker's last one, and no other.
pub async fn a_report_replaces_the_last_one(fixture: &Fixture) {
    let other = report("b");
    publish(&*fixture.another.roster, &other).await;
    publish(&*fixture.store.roster, &report("a")).await;
    let newer = WorkerReport { stage: "shutdown".to_owned(), ..report("a") };
    publish(&*fixture.store.roster, &newer).await;
    assert_eq!(reports(&*fixture.another.roster).await, [newer, other]);
}

/// Reports are ordered by worker id, whatever the order of their publication.
pub async fn reports_come_in_the_order_of_worker_ids(fixture: &Fixture) {
    for worker in ["b", "10", "a", "B", "9"] {
        publish(&*fixture.store.roster, &report(worker)).await;
    }
    let reports = reports(&*fixture.another.roster).await;
    let workers: Vec<_> = reports.iter().map(|report| report.worker.as_str()).collect();
    assert_eq!(workers, ["10", "9", "B", "a", "b"]);
}

/// A withdrawn worker's report is removed; withdrawing an unknown worker succeeds.
pub async fn a_withdrawn_worker_is_forgotten(fixture: &Fixture) {
    let roster = &*fixture.store.roster;
    roster.withdraw(&WorkerId::new("unknown")).await.expect("withdraws");
    publish(roster, &report("stays")).await;
    publish(roster, &report("goes")).await;
    fixture.another.roster.withdraw(&WorkerId::new("goes")).await.expect("withdraws");
    let left: Vec<_> = reports(roster).await.into_iter().map(|report| report.worker).collect();
    assert_eq!(left, [WorkerId::new("stays")]);
}

/// A report older than `max_age` is left out, until its worker publishes again.
pub async fn an_old_report_is_left_out(fixture: &Fixture) {
    let roster = &*fixture.store.roster;
    publish(roster, &report("quiet")).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(roster.reports(Duration::from_secs(1)).await.expect("reads reports"), []);
    assert_eq!(reports(roster).await.len(), 1, "it is old, not gone");
    publish(roster, &report("quiet")).await;
    assert_eq!(fixture.another.roster.reports(Duration::from_mins(1)).await.expect("reads reports").len(), 1);
}

/// One test per promise of a roster; see [`conformance`](crate::conformance).
#[macro_export]
macro_rules! roster_conformance {
    ($fixture:ident $(, $($attribute:tt)*)?) => {
        $crate::__conformance! {
            roster, roster_conformance, $fixture, ($($($attribute)*)?),
            a_report_comes_back_whole,
            a_report_replaces_the_last_one,
            reports_come_in_the_order_of_worker_ids,
            a_withdrawn_worker_is_forgotten,
            an_old_report_is_left_out,
        }
    };
}
