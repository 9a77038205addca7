//! Which kinds of job another machine could begin: one for which no event is announced that could end its work.
//!
//! The roster is asked only while such an event is announced for this machine. Without an answer nobody else is known,
//! and jobs begin here.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::ids::WorkerId;
use crate::notice::NoticeKind;
use crate::ports::{Roster, WorkerReport};

/// How often the roster is asked, unless its workers report less often.
const EVERY: Duration = Duration::from_secs(10);

/// The oldest report that counts: a worker repeats its own every 10 to 15 s.
const REPORT_AGE_MAX: Duration = Duration::from_secs(45);

/// For how long an answer counts, and the longest wait for one.
const ANSWER_KEPT: Duration = Duration::from_mins(1);
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// The kinds that others could begin, and when that was known.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    known: Mutex<Option<(Instant, BTreeSet<String>)>>,
    is_asking: AtomicBool,
}

impl Elsewhere {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, BTreeSet<String>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another machine could begin a job of the kind.
    pub(super) fn serves(&self, kind: &str) -> bool {
        self.lock().as_ref().is_some_and(|(at, kinds)| at.elapsed() < ANSWER_KEPT && kinds.contains(kind))
    }

    /// Whether to ask the roster now; if so, [`ask`](Self::ask) must follow.
    pub(super) fn begin_to_ask(&self, roster: &dyn Roster) -> bool {
        let every = EVERY.max(roster.pace());
        let is_due = self.lock().as_ref().is_none_or(|(at, _)| at.elapsed() >= every);
        is_due && !self.is_asking.swap(true, Relaxed)
    }

    /// Asks the roster for the worker `own`.
    pub(super) async fn ask(&self, roster: &dyn Roster, own: &WorkerId) {
        let kinds = match timeout(ASK_WITHIN, roster.reports(REPORT_AGE_MAX)).await {
            Ok(Ok(reports)) => kinds_elsewhere(&reports, own),
            Ok(Err(error)) => {
                tracing::debug!(%error, "failed to ask the roster who else works; jobs begin here");
                BTreeSet::new()
            }
            Err(_) => BTreeSet::new(),
        };
        let is_any = !kinds.is_empty();
        let was_any =
            self.lock().replace((Instant::now(), kinds)).is_some_and(|(_, kinds)| !kinds.is_empty());
        match (was_any, is_any) {
            (false, true) => {
                tracing::info!("another machine could begin long jobs; they are left to it");
            }
            (true, false) => {
                tracing::info!("no other machine could begin long jobs any more; they begin here");
            }
            _ => {}
        }
        self.is_asking.store(false, Relaxed);
    }
}

/// Returns the kinds that workers of other machines serve from the same queue, on machines for which no event is
/// announced but freezes, and that are under no pressure.
fn kinds_elsewhere(reports: &[WorkerReport], own: &WorkerId) -> BTreeSet<String> {
    let Some(own) = reports.iter().find(|report| report.worker == *own) else { return BTreeSet::new() };
    // By the platform's names where both are known, or else by the boot.
    let is_here = |other: &WorkerReport| match (other.vm.as_str(), own.vm.as_str()) {
        ("", _) | (_, "") => !other.boot.is_empty() && other.boot == own.boot,
        (other, own) => other == own,
    };
    let lasts = |other: &WorkerReport| {
        let is_harmless = other.notices.iter().all(|notice| notice.kind == NoticeKind::Freeze.as_str());
        let takes_work = other.machine.as_ref().is_none_or(|machine| machine.pressure.is_empty());
        other.stage == "start" && is_harmless && takes_work
    };
    let others = reports.iter().filter(|other| other.worker != own.worker && other.queue == own.queue);
    others.filter(|other| !is_here(other) && lasts(other)).flat_map(|other| other.kinds.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::ActiveNotice;
    use crate::pressure::{ActivePressure, MachineReport};

    fn report(worker: &str, vm: &str) -> WorkerReport {
        WorkerReport {
            queue: "q".to_owned(),
            kinds: vec!["k".to_owned()],
            vm: vm.to_owned(),
            boot: format!("boot of {vm}"),
            stage: "start".to_owned(),
            ..WorkerReport::new(WorkerId::new(worker.to_owned()))
        }
    }

    fn noticed(kind: &str) -> WorkerReport {
        let notice = ActiveNotice {
            id: "n".to_owned(),
            kind: kind.to_owned(),
            started: false,
            not_before_unix_ms: None,
            doing: "going on".to_owned(),
            approved: false,
        };
        WorkerReport { notices: vec![notice], ..report("b", "vm_1") }
    }

    #[test]
    fn another_machine_counts_while_it_works_and_no_event_is_announced_for_it() {
        let other = report("b", "vm_1");
        let low = ActivePressure { cause: "memory".to_owned(), why: String::new(), since_unix_ms: 0 };
        let pressed = MachineReport { pressure: vec![low], acts: true, ..MachineReport::default() };
        let table = [
            ("another machine", other.clone(), true),
            (
                "another name with the same kernel",
                WorkerReport { boot: "boot of vm_0".to_owned(), ..other.clone() },
                true,
            ),
            ("this machine", report("b", "vm_0"), false),
            (
                "this machine before its name is known",
                WorkerReport { vm: String::new(), ..report("b", "vm_0") },
                false,
            ),
            ("a machine without a name", WorkerReport { boot: String::new(), ..report("b", "") }, true),
            ("another queue", WorkerReport { queue: "p".to_owned(), ..other.clone() }, false),
            ("another kind", WorkerReport { kinds: vec!["j".to_owned()], ..other.clone() }, false),
            ("a drain", WorkerReport { stage: "shutdown".to_owned(), ..other.clone() }, false),
            ("an eviction", noticed("Preempt"), false),
            ("a restart days ahead", noticed("Reboot"), false),
            ("a recommendation", noticed("SpotRebalanceRecommendation"), false),
            ("a freeze", noticed("Freeze"), true),
            ("pressure", WorkerReport { machine: Some(pressed), ..other.clone() }, false),
        ];
        let own = report("a", "vm_0");
        for (name, other, counts) in table {
            let kinds = kinds_elsewhere(&[own.clone(), other], &own.worker);
            assert_eq!(kinds.contains("k"), counts, "{name}");
        }
        assert_eq!(
            kinds_elsewhere(std::slice::from_ref(&other), &own.worker),
            BTreeSet::new(),
            "not known itself"
        );
    }
}
