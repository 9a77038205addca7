//! The machines of the fleet, from the roster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reprieve_core::healing::Fleet;
use reprieve_core::interruption::Stage;
use reprieve_core::ports::{Roster, WorkerReport};
use reprieve_core::{NoticeKind, Result, WorkerId};

/// A machine none of whose workers has reported for so long is silent. Workers report every ten or fifteen seconds.
pub(super) const FRESH: Duration = Duration::from_secs(60);

/// Silent machines count as ill for so long.
pub(super) const RECENT: Duration = Duration::from_mins(10);

/// For how long the roster keeps a report.
const KEPT: Duration = Duration::from_hours(24);

/// Reads the fleet: all that have reported `within` this time. The store says how old reports are, so that no clock of
/// a machine counts. A worker that `is_new` may have been started in an outage: if it sees no other machine, those of the
/// last day are the fleet.
pub(super) async fn look(
    roster: &dyn Roster,
    vm: &str,
    boot: &str,
    within: Duration,
    is_new: bool,
) -> Result<Fleet> {
    let (fresh, recent) = tokio::try_join!(roster.reports(FRESH), roster.reports(within))?;
    let fleet = count(&fresh, &recent, vm, boot);
    if is_new && count(&fresh, &[], vm, boot).others == 0 {
        return Ok(count(&fresh, &roster.reports(KEPT).await?, vm, boot));
    }
    Ok(fleet)
}

/// The ages by which the last report of an earlier worker is looked for: no clock of a machine says it.
const AGES: [Duration; 5] = [
    Duration::from_mins(20),
    Duration::from_hours(1),
    Duration::from_hours(3),
    Duration::from_hours(8),
    KEPT,
];

/// Returns how long ago an earlier worker of this machine reported at most: for so long the store may have been away
/// before `worker` began. One that reported within ten minutes proves that only where there is no older one, because it
/// may have begun in the same outage. `None` if there is no report of any.
pub(super) async fn last_before(
    roster: &dyn Roster,
    vm: &str,
    boot: &str,
    worker: &WorkerId,
) -> Result<Option<Duration>> {
    let recent = roster.reports(RECENT).await?;
    let is_recent = |report: &WorkerReport| recent.iter().any(|it| it.worker == report.worker);
    for age in AGES {
        let reports = roster.reports(age).await?;
        if reports.iter().any(|report| is_of(report, vm, boot) && !is_recent(report)) {
            return Ok(Some(age));
        }
    }
    // One that still reports is no earlier one.
    let fresh = roster.reports(FRESH).await?;
    let is_earlier = |report: &WorkerReport| {
        report.worker != *worker
            && is_of(report, vm, boot)
            && fresh.iter().all(|it| it.worker != report.worker)
    };
    Ok(recent.iter().any(is_earlier).then_some(RECENT))
}

/// Whether this is a report of this machine.
fn is_of(report: &WorkerReport, vm: &str, boot: &str) -> bool {
    (!vm.is_empty() && report.vm.eq_ignore_ascii_case(vm)) || (!boot.is_empty() && report.boot == boot)
}

/// Returns the places to which workers of this boot have written that are gone by now. One that still writes there proves
/// that the disk is sound, whatever is wrong with another's way to it.
pub(super) async fn written_before(roster: &dyn Roster, boot: &str) -> Result<BTreeSet<String>> {
    if boot.is_empty() {
        return Ok(BTreeSet::new());
    }
    let (fresh, kept, died) =
        tokio::try_join!(roster.reports(FRESH), roster.reports(KEPT), roster.departed(KEPT))?;
    let is_gone = |report: &&WorkerReport| fresh.iter().all(|it| it.worker != report.worker);
    let places =
        |report: &WorkerReport| if report.boot == boot { report.written.clone() } else { Vec::new() };
    let mut written: BTreeSet<_> = kept.iter().filter(is_gone).chain(&died).flat_map(places).collect();
    for sound in fresh.iter().filter(|report| report.fault.is_none()).flat_map(places) {
        written.remove(&sound);
    }
    Ok(written)
}

/// A machine: by its name where that is known, else by its boot, else by its worker.
fn machine(report: &WorkerReport) -> &str {
    [report.vm.as_str(), report.boot.as_str()]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| report.worker.as_str())
}

/// Whether its machine was about to be taken away: one that is silent since then is gone, and has no fault.
fn was_leaving(report: &WorkerReport) -> bool {
    let goes = [NoticeKind::Preempt, NoticeKind::Terminate];
    report.notices.iter().any(|notice| goes.iter().any(|kind| notice.kind == kind.as_str()))
}

/// Whether a worker has not begun to work, so that its report does not say yet how its machine is.
fn begins(report: &WorkerReport) -> bool {
    [Stage::Recover, Stage::Resume].iter().any(|stage| report.stage == stage.as_str())
}

fn count(fresh: &[WorkerReport], recent: &[WorkerReport], vm: &str, boot: &str) -> Fleet {
    let is_own = |report: &WorkerReport| is_of(report, vm, boot);
    let mut healthy: BTreeMap<&str, bool> = BTreeMap::new();
    for report in recent.iter().filter(|report| !is_own(report) && !was_leaving(report)) {
        healthy.entry(machine(report)).or_insert(false);
    }
    for report in fresh.iter().filter(|report| !is_own(report) && !begins(report)) {
        healthy.insert(machine(report), true);
    }
    for report in fresh.iter().filter(|report| !is_own(report) && report.fault.is_some()) {
        healthy.entry(machine(report)).and_modify(|is_healthy| *is_healthy = false);
    }
    Fleet {
        has_own: fresh.iter().any(is_own),
        others: healthy.len(),
        healthy: healthy.values().filter(|is_healthy| **is_healthy).count(),
    }
}

#[cfg(test)]
mod tests {
    use reprieve_core::ports::ActiveNotice;

    use super::*;

    fn report(worker: &str, vm: &str, fault: Option<&str>) -> WorkerReport {
        let (vm, boot) = (vm.to_owned(), format!("boot of {vm}"));
        WorkerReport { vm, boot, fault: fault.map(str::to_owned), ..WorkerReport::new(WorkerId::new(worker)) }
    }

    #[test]
    fn a_machine_of_which_only_workers_that_begin_report_is_not_known_to_be_healthy() {
        let fresh = ["recover", "resume", "start"].map(|stage| WorkerReport {
            stage: stage.to_owned(),
            ..report(stage, if stage == "recover" { "a" } else { "b" }, None)
        });
        let fleet = count(&fresh, &fresh, "own", "");
        assert_eq!((fleet.others, fleet.healthy), (2, 1));
    }

    #[test]
    fn a_silent_machine_that_was_to_be_taken_away_is_none_of_the_fleet() {
        let leaving = |worker, vm, kind: NoticeKind| {
            let notice = ActiveNotice {
                id: "1".to_owned(),
                kind: kind.as_str().to_owned(),
                started: true,
                not_before_unix_ms: None,
                doing: "resting".to_owned(),
                approved: false,
            };
            WorkerReport { notices: vec![notice], ..report(worker, vm, None) }
        };
        let fresh = [leaving("1", "a", NoticeKind::Preempt)];
        let mut recent = fresh.to_vec();
        recent.extend([
            leaving("2", "evicted", NoticeKind::Preempt),
            leaving("3", "scaled in", NoticeKind::Terminate),
            leaving("4", "rebooted", NoticeKind::Reboot),
            // It is back, or another worker of it had no notice, and it is silent.
            leaving("5", "restored", NoticeKind::Preempt),
            report("6", "restored", None),
        ]);
        let fleet = count(&fresh, &recent, "own", "");
        assert_eq!((fleet.others, fleet.healthy), (3, 1));
    }

    #[test]
    fn a_machine_is_healthy_while_a_worker_of_it_reports_and_none_a_fault() {
        let fresh = [
            report("1", "own", Some("disk error")),
            report("2", "a", None),
            report("3", "b", None),
            report("4", "b", Some("read-only")),
            report("5", "", None),
        ];
        let mut recent = fresh.to_vec();
        recent.extend([report("6", "a", None), report("7", "silent", None), report("8", "own", None)]);
        let fleet = count(&fresh, &recent, "OWN", "");
        assert_eq!(fleet, Fleet { has_own: true, others: 4, healthy: 2 });
        assert!(!count(&fresh[1..], &recent, "own", "").has_own, "its own report is old");
        assert_eq!(count(&[], &[], "own", "boot"), Fleet::default());
        // A worker that does not know its VM's name yet is known by the boot.
        assert_eq!(
            count(&fresh[..1], &fresh[..1], "", "boot of own"),
            Fleet { has_own: true, ..Fleet::default() }
        );
    }
}
