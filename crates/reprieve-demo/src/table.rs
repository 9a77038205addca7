//! The table at the end, in words that need no explanation.

use crate::format::{count, range, span};
use crate::history::{Story, VmEnd};
use crate::store::StoreKind;
use crate::summary::{Spread, Summary};

/// What happened, a line for each thing.
pub(crate) fn table(story: &Story, summary: &Summary) -> String {
    let mut table = String::new();
    let mut line = |what: String, said: String| {
        table.push_str(format!("{what:13}{said}").trim_end());
        table.push('\n');
    };
    line(count(summary.jobs, "frame"), frames(summary));
    if summary.evictions > 0 {
        line(count(summary.evictions, "eviction"), evictions(story, summary));
    }
    if summary.kills > 0 {
        line(count(summary.kills, "kill"), kills(story));
    }
    line("work".to_owned(), work(summary));
    line(String::new(), format!("{:.1} s{}, seed {}", summary.seconds, on(summary.store), summary.seed));
    table.extend(summary.faults().into_iter().map(|fault| {
        format!(
            "NOT AS PROMISED: {fault}
"
        )
    }));
    table
}

fn frames(summary: &Summary) -> String {
    let Summary { jobs, completed, lost, duplicated, different, .. } = *summary;
    if lost + duplicated + different == 0 {
        return "all rendered, each once, each equal to an uninterrupted render".to_owned();
    }
    format!(
        "{completed} of {jobs} rendered, {lost} LOST, {duplicated} rendered more than once, {different} not equal to an \
         uninterrupted render"
    )
}

fn evictions(story: &Story, summary: &Summary) -> String {
    let in_vain = story.vms.iter().filter(|vm| vm.announced_in_vain_ms.is_some()).count();
    let too_short = "too short a notice to act on, and ended as kills do";
    let handed_back = match summary.notice_to_released_ms {
        Some(spread) => {
            format!("handed back {} after the notice was read; {}", between(spread, story), lost(story))
        }
        None if in_vain == summary.evictions => return too_short.to_owned(),
        None => "no job was held".to_owned(),
    };
    if in_vain == 0 { handed_back } else { format!("{handed_back}; {in_vain} had {too_short}") }
}

fn lost(story: &Story) -> String {
    let lost = match story.evictions().map(|eviction| eviction.work_lost_ms).sum() {
        0 => "no work lost".to_owned(),
        lost_ms => format!("{} of work lost", span(lost_ms)),
    };
    match story.evictions().map(|eviction| eviction.abandoned).sum() {
        0 => lost,
        left => format!("{lost}; {} not handed back in time", count(left, "job")),
    }
}

/// From the shortest to the longest.
fn between(spread: Spread, story: &Story) -> String {
    let held = story.evictions().filter(|eviction| eviction.held > 0);
    let least = held.map(|eviction| eviction.released_after_ms).min().unwrap_or(spread.max);
    range(least, spread.max)
}

fn kills(story: &Story) -> String {
    let unnoticed = story.vms.iter().filter(|vm| vm.announced_in_vain_ms.is_none());
    let after = unnoticed.flat_map(|vm| match &vm.end {
        VmEnd::Killed(recoveries) => recoveries.as_slice(),
        VmEnd::Finished | VmEnd::Evicted(_) => &[],
    });
    let after: Vec<_> = after.map(|recovery| recovery.after_ms).collect();
    match (after.iter().min(), after.iter().max()) {
        (Some(&least), Some(&most)) => {
            let waited =
                |lease_ms| format!("; leases of {} s had to end, and a VM to have room", lease_ms / 1_000);
            let waited = story.lease_ms().map(waited).unwrap_or_default();
            format!("without notice; another VM went on {} later{waited}", range(least, most))
        }
        _ => "without notice; no job was held".to_owned(),
    }
}

fn work(summary: &Summary) -> String {
    let (redone, total) = (summary.steps_redone, summary.steps_total);
    if redone == 0 {
        return format!("none of {total} steps had to be done again");
    }
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let percent = redone as f64 * 100.0 / total.max(1) as f64;
    format!("{redone} of {total} steps had to be done again ({percent:.1} %)")
}

/// Where that was, unless it is where a demo always is.
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
    use crate::history::{Eviction, JobStory, Recovery, VmStory};

    fn evicted(held: u64, released_after_ms: u64, work_lost_ms: u64) -> VmStory {
        let (announced_ms, noticed_ms, abandoned) = (1, 2, 0);
        let eviction =
            Eviction { announced_ms, noticed_ms, released_after_ms, held, abandoned, work_lost_ms };
        vm(VmEnd::Evicted(eviction), None)
    }

    fn killed(after_ms: &[u64]) -> VmStory {
        let recovery = |&after_ms| Recovery { job: 0, after_ms, steps_redone: 1 };
        vm(VmEnd::Killed(after_ms.iter().map(recovery).collect()), None)
    }

    fn table_of(jobs: Vec<JobStory>, vms: Vec<VmStory>) -> String {
        let story = Story { seed: 42, ..fixtures::story(jobs, vms) };
        table(&story, &Summary { steps_redone: 3, ..Summary::of(&story, Vec::new(), 0) })
    }

    fn job(completions: u32) -> JobStory {
        let png = (completions > 0).then(|| vec![1]);
        JobStory { id: "a".into(), png, as_expected: true, completions }
    }

    #[test]
    fn a_newcomer_understands_the_table() {
        let vms = vec![evicted(2, 9, 0), evicted(1, 31, 0), killed(&[250, 420])];
        insta::assert_snapshot!(table_of(vec![job(1); 12], vms));
    }

    #[test]
    fn where_only_the_end_of_a_lease_tells_that_is_said() {
        let jobs = vec![job(1)];
        let story =
            Story { store: StoreKind::Azurite, ..fixtures::story(jobs, vec![killed(&[3_250, 5_900])]) };
        let table = table(&story, &Summary::of(&story, Vec::new(), 0));
        assert!(
            table.contains("went on 3.2 s to 5.9 s later; leases of 6 s had to end, and a VM to have room\n"),
            "{table}"
        );
        assert!(table.contains(" s on azurite, seed 1\n"), "{table}");
    }

    #[test]
    fn what_an_evicted_vm_kept_is_said() {
        let mut vm = evicted(2, 9_990, 0);
        if let VmEnd::Evicted(eviction) = &mut vm.end {
            eviction.abandoned = 1;
        }
        let table = table_of(vec![job(1)], vec![vm]);
        assert!(table.contains("no work lost; 1 job not handed back in time"), "{table}");
    }

    #[test]
    fn what_went_wrong_is_not_overlooked() {
        let vms = vec![evicted(2, 9, 700), vm(VmEnd::Killed(Vec::new()), Some(3)), killed(&[33, 7_277])];
        insta::assert_snapshot!(table_of(vec![job(1), job(0), job(2)], vms));
    }
}
