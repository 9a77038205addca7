//! What the platform has announced for each VM, in the order in which it happens.

use std::collections::BTreeMap;

use reprieve::ports::{ActiveNotice, WorkerReport};
use serde::Serialize;

/// An event further ahead than this is not an ordinary one, which is announced ten or fifteen minutes ahead.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-scheduling>
const PREDICTED_AFTER_MS: i64 = 3_600_000;

/// The events of one VM.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Timeline {
    /// The VM's name; of a VM without one, its worker's id.
    pub(super) vm: String,
    /// Those that have begun, then those that may begin at any moment, then the others by their time.
    pub(super) events: Vec<Foretold>,
}

/// An event that is announced.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Foretold {
    pub(super) id: String,
    pub(super) kind: String,
    /// What happens to the VM.
    pub(super) meaning: String,
    pub(super) has_begun: bool,
    /// When it begins at the earliest, in milliseconds since the Unix epoch, if that is known.
    pub(super) not_before_unix_ms: Option<i64>,
    /// What the VM's workers do, each thing with their number.
    pub(super) workers: BTreeMap<String, usize>,
    /// How many of them have approved it.
    pub(super) approved: usize,
}

/// Returns the time lines of all VMs with an event. A VM whose workers `are_silent` has the events that they reported
/// last; one with a worker that reports has those that it reports.
pub(super) fn timelines(
    workers: &[WorkerReport],
    now: i64,
    is_silent: impl Fn(&WorkerReport) -> bool,
) -> Vec<Timeline> {
    let mut vms: BTreeMap<&str, Vec<&WorkerReport>> = BTreeMap::new();
    for report in workers {
        let vm = if report.vm.is_empty() { report.worker.as_str() } else { report.vm.as_str() };
        vms.entry(vm).or_default().push(report);
    }
    let of_vm = |(vm, mut reports): (&str, Vec<&WorkerReport>)| {
        if reports.iter().any(|report| !is_silent(report)) {
            reports.retain(|report| !is_silent(report));
        }
        Timeline { vm: vm.to_owned(), events: events(&reports, now) }
    };
    vms.into_iter().map(of_vm).filter(|timeline| !timeline.events.is_empty()).collect()
}

/// The events that these workers of one VM report, each once.
fn events(reports: &[&WorkerReport], now: i64) -> Vec<Foretold> {
    let mut events: BTreeMap<&str, Foretold> = BTreeMap::new();
    for notice in reports.iter().flat_map(|report| &report.notices) {
        let event = events.entry(&notice.id).or_insert_with(|| Foretold::of(notice, now));
        // A worker may hear of the beginning a second after another.
        event.has_begun |= notice.started;
        *event.workers.entry(notice.doing.clone()).or_default() += 1;
        event.approved += usize::from(notice.approved);
    }
    let mut events: Vec<_> = events.into_values().collect();
    events.sort_by_key(|event| (!event.has_begun, event.not_before_unix_ms, event.id.clone()));
    events
}

impl Foretold {
    fn of(notice: &ActiveNotice, now: i64) -> Self {
        let is_far = notice.not_before_unix_ms.is_some_and(|at| at.saturating_sub(now) > PREDICTED_AFTER_MS);
        Self {
            id: notice.id.clone(),
            kind: notice.kind.clone(),
            meaning: meaning(&notice.kind, is_far),
            has_begun: notice.started,
            not_before_unix_ms: notice.not_before_unix_ms,
            workers: BTreeMap::new(),
            approved: 0,
        }
    }
}

fn meaning(kind: &str, is_far: bool) -> String {
    let meaning = match kind {
        "Preempt" => "the VM is evicted",
        "Terminate" => "the VM is deleted",
        "Reboot" => "the VM restarts",
        "Redeploy" => "the VM moves to another host, without its temporary disk",
        "Freeze" => "the VM pauses and keeps its memory",
        "SpotRebalanceRecommendation" => "the VM is likelier than others to be evicted soon",
        "Signal" => "the worker was asked to stop",
        "Manual" => "somebody asked the worker to release everything",
        "Repair" => "the VM has a fault, and its worker asks for its replacement",
        "Restart" => "too many of the worker's slots are stuck, and it starts again",
        _ => "not known to this version",
    };
    let why = if is_far { "; its host is predicted to fail" } else { "" };
    format!("{meaning}{why}")
}

#[cfg(test)]
mod tests {
    use reprieve::{NoticeKind, WorkerId};

    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn notice(id: &str, kind: &str, in_s: Option<i64>) -> ActiveNotice {
        ActiveNotice {
            id: id.to_owned(),
            kind: kind.to_owned(),
            started: false,
            not_before_unix_ms: in_s.map(|in_s| NOW + in_s * 1_000),
            doing: "going on".to_owned(),
            approved: false,
        }
    }

    fn report(worker: &str, vm: &str, notices: &[ActiveNotice]) -> WorkerReport {
        let report = WorkerReport::new(WorkerId::new(worker.to_owned()));
        WorkerReport { vm: vm.to_owned(), notices: notices.to_vec(), ..report }
    }

    fn shown(workers: &[WorkerReport]) -> Vec<String> {
        let is_silent = |report: &WorkerReport| report.worker.as_str().starts_with("silent");
        let timelines = timelines(workers, NOW, is_silent);
        let line = |timeline: &Timeline| {
            let event = |event: &Foretold| {
                let workers = event.workers.iter().map(|(doing, count)| format!("{count} {doing}"));
                let workers = workers.collect::<Vec<_>>().join(", ");
                format!("{} ({workers}; {} approved)", event.id, event.approved)
            };
            let events: Vec<_> = timeline.events.iter().map(event).collect();
            format!("{}: {}", timeline.vm, events.join(" → "))
        };
        timelines.iter().map(line).collect()
    }

    #[test]
    fn the_events_of_a_vm_are_one_line_in_time_whichever_workers_report_them() {
        let (soon, far) = (notice("soon", "Reboot", Some(600)), notice("far", "Redeploy", Some(500_000)));
        let (any, begun) = (notice("any", "Preempt", None), notice("begun", "Freeze", None));
        let draining = ActiveNotice { doing: "draining".to_owned(), approved: true, ..soon.clone() };
        let begun = ActiveNotice { started: true, ..begun };
        let workers = [
            report("a", "vm_1", &[far.clone(), soon.clone(), any]),
            report("b", "vm_1", &[draining, begun]),
            report("silent", "vm_1", &[notice("over", "Reboot", Some(1))]),
            report("silent-too", "vm_0", std::slice::from_ref(&far)),
            report("c", "", std::slice::from_ref(&soon)),
            report("d", "vm_2", &[]),
        ];
        let of_vm_1 = "vm_1: begun (1 going on; 0 approved) → any (1 going on; 0 approved) → soon (1 draining, 1 going on; 1 approved) → far (1 going on; 0 approved)";
        let expected = ["c: soon (1 going on; 0 approved)", "vm_0: far (1 going on; 0 approved)", of_vm_1];
        assert_eq!(shown(&workers), expected);
    }

    #[test]
    fn an_event_is_said_in_words() {
        let of = |kind, in_s| Foretold::of(&notice("n", kind, in_s), NOW).meaning;
        assert_eq!(of("Reboot", Some(900)), "the VM restarts");
        let predicted =
            "the VM moves to another host, without its temporary disk; its host is predicted to fail";
        assert_eq!(of("Redeploy", Some(86_400 * 3)), predicted);
        for own in [NoticeKind::Signal, NoticeKind::Manual, NoticeKind::Repair, NoticeKind::Restart] {
            let meaning = Foretold::of(&notice("n", own.as_str(), None), NOW).meaning;
            assert!(!meaning.contains("not known"), "{own:?}");
        }
        assert_eq!(of("OsUpgrade", None), "not known to this version");
    }
}
