//! The table of results.

use crate::format::{count, range, span};
use crate::history::{History, VmEnd};
use crate::store::StoreKind;
use crate::summary::{Spread, Summary};

/// The results, one per line.
pub(crate) fn table(history: &History, summary: &Summary) -> String {
    let mut table = String::new();
    let mut line = |what: String, text: String| {
        table.push_str(format!("{what:13}{text}").trim_end());
        table.push('\n');
    };
    line(count(summary.jobs, "frame"), frames(summary));
    if summary.evictions > 0 {
        line(count(summary.evictions, "eviction"), evictions(history, summary));
    }
    if summary.kills > 0 {
        line(count(summary.kills, "kill"), kills(history));
    }
    line("work".to_owned(), work(summary));
    line(String::new(), format!("{:.1} s{}, seed {}", summary.seconds, on(summary.store), summary.seed));
    table.extend(summary.faults().into_iter().map(|fault| {
        format!(
            "FAILED: {fault}
"
        )
    }));
    table
}

fn frames(summary: &Summary) -> String {
    let Summary { jobs, completed, lost, duplicated, different, .. } = *summary;
    if lost + duplicated + different == 0 {
        return "each rendered once, each equal to an uninterrupted render".to_owned();
    }
    format!(
        "{completed} of {jobs} rendered, {lost} LOST, {duplicated} rendered more than once, {different} not equal to an \
         uninterrupted render"
    )
}

fn evictions(history: &History, summary: &Summary) -> String {
    let missed = history.vms.iter().filter(|vm| vm.missed_notice_ms.is_some()).count();
    let too_short = "a notice too short to act on and ended like kills";
    let released = match summary.notice_to_released_ms {
        Some(spread) => {
            format!("jobs released {} after the notice was read; {}", between(spread, history), lost(history))
        }
        None if missed == summary.evictions => return too_short.to_owned(),
        None => "no job was held".to_owned(),
    };
    if missed == 0 { released } else { format!("{released}; {missed} had {too_short}") }
}

fn lost(history: &History) -> String {
    let lost = match history.evictions().map(|eviction| eviction.work_lost_ms).sum() {
        0 => "no work lost".to_owned(),
        lost_ms => format!("{} of work lost", span(lost_ms)),
    };
    match history.evictions().map(|eviction| eviction.abandoned).sum() {
        0 => lost,
        left => format!("{lost}; {} not released in time", count(left, "job")),
    }
}

/// From the shortest to the longest.
fn between(spread: Spread, history: &History) -> String {
    let held = history.evictions().filter(|eviction| eviction.held > 0);
    let least = held.map(|eviction| eviction.released_after_ms).min().unwrap_or(spread.max);
    range(least, spread.max)
}

fn kills(history: &History) -> String {
    let unnoticed = history.vms.iter().filter(|vm| vm.missed_notice_ms.is_none());
    let after = unnoticed.flat_map(|vm| match &vm.end {
        VmEnd::Killed(recoveries) => recoveries.as_slice(),
        VmEnd::Finished | VmEnd::Evicted(_) => &[],
    });
    let after: Vec<_> = after.map(|recovery| recovery.after_ms).collect();
    match (after.iter().min(), after.iter().max()) {
        (Some(&least), Some(&most)) => {
            let waited = |lease_ms| {
                format!("; leases of {} s had to end first, and a VM needed a free slot", lease_ms / 1_000)
            };
            let waited = history.lease_ms().map(waited).unwrap_or_default();
            format!("without notice; another VM resumed {} later{waited}", range(least, most))
        }
        _ => "without notice; no job was held".to_owned(),
    }
}

fn work(summary: &Summary) -> String {
    let (redone, total) = (summary.steps_redone, summary.steps_total);
    if redone == 0 {
        return format!("none of {total} steps were repeated");
    }
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let percent = redone as f64 * 100.0 / total.max(1) as f64;
    format!("{redone} of {total} steps were repeated ({percent:.1} %)")
}

/// The store, when it is not the default.
const fn on(store: StoreKind) -> &'static str {
    match store {
        StoreKind::Sqlite => "",
        StoreKind::Azurite => " on azurite",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, vm};
    use crate::history::{Eviction, JobHistory, Recovery, VmHistory};

    fn evicted(held: u64, released_after_ms: u64, work_lost_ms: u64) -> VmHistory {
        let (announced_ms, noticed_ms, abandoned) = (1, 2, 0);
        let eviction =
            Eviction { announced_ms, noticed_ms, released_after_ms, held, abandoned, work_lost_ms };
        vm(VmEnd::Evicted(eviction), None)
    }

    fn killed(after_ms: &[u64]) -> VmHistory {
        let recovery = |&after_ms| Recovery { job: 0, after_ms, steps_redone: 1 };
        vm(VmEnd::Killed(after_ms.iter().map(recovery).collect()), None)
    }

    fn table_of(jobs: Vec<JobHistory>, vms: Vec<VmHistory>) -> String {
        let history = History { seed: 42, ..fixtures::history(jobs, vms) };
        table(&history, &Summary { steps_redone: 3, ..Summary::of(&history, Vec::new(), 0) })
    }

    fn job(completions: u32) -> JobHistory {
        let png = (completions > 0).then(|| vec![1]);
        JobHistory { id: "a".into(), png, matches_reference: true, completions }
    }

    #[test]
    fn a_newcomer_understands_the_table() {
        let vms = vec![evicted(2, 9, 0), evicted(1, 31, 0), killed(&[250, 420])];
        insta::assert_snapshot!(table_of(vec![job(1); 12], vms));
    }

    #[test]
    fn the_table_names_the_lease_where_only_its_end_reveals_a_death() {
        let jobs = vec![job(1)];
        let history =
            History { store: StoreKind::Azurite, ..fixtures::history(jobs, vec![killed(&[3_250, 5_900])]) };
        let table = table(&history, &Summary::of(&history, Vec::new(), 0));
        assert!(
            table.contains(
                "resumed 3.2 s to 5.9 s later; leases of 6 s had to end first, and a VM needed a free slot\n"
            ),
            "{table}"
        );
        assert!(table.contains(" s on azurite, seed 1\n"), "{table}");
    }

    #[test]
    fn jobs_that_an_evicted_vm_did_not_release_are_counted() {
        let mut vm = evicted(2, 9_990, 0);
        if let VmEnd::Evicted(eviction) = &mut vm.end {
            eviction.abandoned = 1;
        }
        let table = table_of(vec![job(1)], vec![vm]);
        assert!(table.contains("no work lost; 1 job not released in time"), "{table}");
    }

    #[test]
    fn the_table_shows_every_fault() {
        let vms = vec![evicted(2, 9, 700), vm(VmEnd::Killed(Vec::new()), Some(3)), killed(&[33, 7_277])];
        insta::assert_snapshot!(table_of(vec![job(1), job(0), job(2)], vms));
    }
}
