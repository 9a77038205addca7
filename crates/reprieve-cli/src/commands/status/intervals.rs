//! How often the jobs of each kind are saved, and why.

use std::collections::BTreeMap;
use std::time::Duration;

use reprieve::checkpoint::{Bound, KindInterval, Rate};
use reprieve::ports::WorkerReport;

use crate::format::{duration, plain};

const HOUR_MS: u64 = 3_600_000;

/// A line for each kind, with the intervals of all workers that go by the same rate of losses. What a save takes is
/// measured by each worker, and differs.
pub(super) fn intervals(workers: &[WorkerReport]) -> Vec<[String; 4]> {
    let mut kinds: BTreeMap<(&str, String), Vec<&KindInterval>> = BTreeMap::new();
    for report in workers.iter().filter_map(|report| report.intervals.as_ref()) {
        for kind in &report.kinds {
            kinds.entry((&kind.kind, why(report.rate))).or_default().push(kind);
        }
    }
    let row = |((kind, why), all): ((&str, String), Vec<&KindInterval>)| {
        let every = range(all.iter().map(|one| interval(one)));
        let save = range(all.iter().filter_map(|one| Some((one.save_ms?, time(one.save_ms?)))));
        let save = save.unwrap_or_else(|| "not measured yet".to_owned());
        [plain(kind), every.unwrap_or_default(), save, why]
    };
    kinds.into_iter().map(row).collect()
}

fn interval(kind: &KindInterval) -> (u64, String) {
    let bound = match kind.bound {
        Some(Bound::Floor) => " (floor)",
        Some(Bound::Ceiling) => " (ceiling)",
        None => "",
    };
    (kind.every_ms, time(kind.every_ms) + bound)
}

fn why(rate: Option<Rate>) -> String {
    let Some(Rate { counted, assumed, between_ms, floor_ms, ceiling_ms }) = rate else {
        return "set by --checkpoint-every".to_owned();
    };
    format!(
        "a machine loses work once in {}: {} in {} VM-hours, and {} in {} assumed; floor {}, ceiling {}",
        time(between_ms),
        losses(counted.count),
        counted.vm_ms / HOUR_MS,
        assumed.count,
        assumed.vm_ms / HOUR_MS,
        time(floor_ms),
        time(ceiling_ms),
    )
}

/// The shortest and the longest.
fn range(all: impl Iterator<Item = (u64, String)> + Clone) -> Option<String> {
    let (shortest, longest) = (all.clone().min()?.1, all.max()?.1);
    Some(if shortest == longest { shortest } else { format!("{shortest} to {longest}") })
}

fn losses(count: u64) -> String {
    if count == 1 { "1 loss".to_owned() } else { format!("{count} losses") }
}

fn time(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use reprieve::WorkerId;
    use reprieve::checkpoint::{CheckpointEvery, IntervalReport, Losses};

    use super::*;

    fn worker(setting: CheckpointEvery, counted: Losses, kind: &str, save_ms: Option<u64>) -> WorkerReport {
        let kinds = [(kind.to_owned(), save_ms.map(Duration::from_millis))];
        let intervals = Some(IntervalReport::new(setting, counted, kinds));
        WorkerReport { intervals, ..WorkerReport::new(WorkerId::unique()) }
    }

    #[test]
    fn a_kind_is_shown_once_for_all_workers_that_save_it_for_the_same_reason() {
        const AUTO: CheckpointEvery = CheckpointEvery::Auto;
        let few = Losses { count: 1, vm_ms: 100 * HOUR_MS };
        let many = Losses { count: 7, vm_ms: 310 * HOUR_MS };
        let older = WorkerReport { intervals: None, ..WorkerReport::new(WorkerId::unique()) };
        let workers = [
            worker(AUTO, many, "train", Some(1_200)),
            worker(AUTO, many, "train", Some(1_400)),
            worker(AUTO, few, "train", Some(1_200)),
            worker(AUTO, many, "resize", None),
            worker(AUTO, many, "dear", Some(90_000)),
            worker(CheckpointEvery::Every(Duration::from_secs(30)), many, "set", Some(80)),
            older,
        ];
        let rows: Vec<_> = intervals(&workers).into_iter().map(|row| row.join(" | ")).collect();
        insta::assert_snapshot!(rows.join("\n"));
    }
}
