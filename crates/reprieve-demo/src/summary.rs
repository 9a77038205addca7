//! The results of a demo in numbers, computed from its history; `--json` prints them.

use serde::Serialize;

use crate::history::{Eviction, History, Recovery, VmEnd};
use crate::schedule::Fault;
use crate::store::StoreKind;

/// The numbers of a demo.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub(crate) jobs: usize,
    /// Jobs that were completed, however often.
    pub(crate) completed: usize,
    /// Jobs that were not.
    pub(crate) lost: usize,
    /// Jobs that were completed more than once.
    pub(crate) duplicated: usize,
    /// Frames that are there and differ from an uninterrupted render.
    pub(crate) different: usize,
    /// Evictions that were injected.
    pub(crate) evictions: usize,
    /// Kills that were injected.
    pub(crate) kills: usize,
    /// Faults of the schedule that found no VM with work.
    pub(crate) missed: usize,
    /// Messages that were left, in the queue and in the poison queue.
    pub(crate) left_over: u64,
    /// Steps in all jobs, each counted once.
    pub(crate) steps_total: u64,
    /// Steps that were done again.
    pub(crate) steps_redone: u64,
    /// From the moment a worker had read its notice until its last lease was released; `None`
    /// without an eviction.
    pub(crate) notice_to_released_ms: Option<Spread>,
    /// The same from the moment the notice was published, with the wait until the worker asked
    /// again.
    pub(crate) announced_to_released_ms: Option<Spread>,
    /// From a kill until another VM had begun a step of the job; `None` without a job that was
    /// held.
    pub(crate) recovered_after_kill_ms: Option<Longest>,
    pub(crate) output_digest: String,
    pub(crate) reference_digest: String,
    pub(crate) seed: u64,
    pub(crate) store: StoreKind,
    /// How long a lease was, where a killed worker's jobs wait for its end; `None` where the store
    /// sees that it died.
    pub(crate) lease_ms: Option<u64>,
    pub(crate) seconds: f64,
    pub(crate) schedule: Vec<Fault>,
}

/// The spread of several measurements. With few of them, the upper percentiles are the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Spread {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

/// The worst of something measured several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Longest {
    pub(crate) max: u64,
}

impl Spread {
    /// The spread of these values; `None` without any.
    pub(crate) fn of(all: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut sorted: Vec<_> = all.into_iter().collect();
        sorted.sort_unstable();
        // The nearest rank.
        let rank =
            |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).checked_sub(1)?).copied();
        Some(Self { p50: rank(50)?, p99: rank(99)?, max: *sorted.last()? })
    }
}

impl Summary {
    /// The results of `history` with the planned `schedule`; `left_over` messages were left when it
    /// ended.
    pub(crate) fn of(history: &History, schedule: Vec<Fault>, left_over: u64) -> Self {
        let jobs = history.jobs.len();
        let count = |what: fn(&crate::history::JobHistory) -> bool| {
            history.jobs.iter().filter(|job| what(job)).count()
        };
        let lost = count(|job| job.png.is_none() || job.completions == 0);
        let ends =
            |what: fn(&crate::history::VmHistory) -> bool| history.vms.iter().filter(|vm| what(vm)).count();
        let evictions = ends(|vm| matches!(vm.end, VmEnd::Evicted(_)) || vm.missed_notice_ms.is_some());
        let kills = ends(|vm| matches!(vm.end, VmEnd::Killed(_)) && vm.missed_notice_ms.is_none());
        let evicted = || history.evictions().filter(|eviction| eviction.held > 0);
        let recovered = history.recoveries().map(|recovery| recovery.after_ms).max();
        Self {
            jobs,
            completed: jobs - lost,
            lost,
            duplicated: count(|job| job.completions > 1),
            different: count(|job| job.png.is_some() && !job.matches_reference),
            evictions,
            kills,
            missed: schedule.len().saturating_sub(evictions + kills),
            left_over,
            steps_total: jobs as u64 * u64::from(history.steps_per_job),
            steps_redone: history
                .vms
                .iter()
                .flat_map(|vm| &vm.shifts)
                .map(|shift| u64::from(shift.redone))
                .sum(),
            notice_to_released_ms: Spread::of(evicted().map(|eviction| eviction.released_after_ms)),
            announced_to_released_ms: Spread::of(evicted().map(Eviction::announced_to_released_ms)),
            recovered_after_kill_ms: recovered.map(|max| Longest { max }),
            output_digest: history.output_digest.clone(),
            reference_digest: history.reference_digest.clone(),
            seed: history.seed,
            store: history.store,
            lease_ms: history.lease_ms(),
            #[expect(clippy::cast_precision_loss, reason = "a demo does not last for centuries")]
            seconds: history.took_ms as f64 / 1e3,
            schedule,
        }
    }

    /// The failed checks, each as a phrase; empty when all passed.
    pub(crate) fn faults(&self) -> Vec<String> {
        let some = |count: usize, what: &str| (count > 0).then(|| format!("{what}: {count}"));
        let unequal = self.output_digest != self.reference_digest && self.lost + self.different == 0;
        [
            some(self.lost, "frames lost"),
            some(self.duplicated, "frames completed more than once"),
            some(self.different, "frames differ from an uninterrupted render"),
            unequal.then(|| "the digests differ".to_owned()),
            (self.left_over > 0).then(|| format!("messages left in the queue: {}", self.left_over)),
            some(self.missed, "evictions and kills found no VM with work"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl History {
    /// How long a lease was, where a killed VM's jobs waited for its end; `None` where the store
    /// saw that it died.
    pub(crate) fn lease_ms(&self) -> Option<u64> {
        self.store.lease_to_wait_for().map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))
    }

    /// The evictions with a notice that the worker acted on, in the order of the VMs.
    pub(crate) fn evictions(&self) -> impl Iterator<Item = &Eviction> {
        self.vms.iter().filter_map(|vm| match &vm.end {
            VmEnd::Evicted(eviction) => Some(eviction),
            VmEnd::Finished | VmEnd::Killed(_) => None,
        })
    }

    /// The recoveries of the jobs that killed VMs held.
    pub(crate) fn recoveries(&self) -> impl Iterator<Item = &Recovery> {
        self.vms.iter().flat_map(|vm| match &vm.end {
            VmEnd::Killed(recoveries) => recoveries.as_slice(),
            VmEnd::Finished | VmEnd::Evicted(_) => &[],
        })
    }
}

impl Eviction {
    /// From the announcement until the last lease was released.
    pub(crate) fn announced_to_released_ms(&self) -> u64 {
        self.noticed_ms.saturating_sub(self.announced_ms) + self.released_after_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{history, vm};
    use crate::history::{JobHistory, VmHistory};
    use crate::schedule::Kind;

    fn job(png: bool, matches_reference: bool, completions: u32) -> JobHistory {
        JobHistory { id: "a".into(), png: png.then(|| vec![1]), matches_reference, completions }
    }

    fn evicted(held: u64, announced_ms: u64, released_after_ms: u64) -> VmHistory {
        let (noticed_ms, abandoned, work_lost_ms) = (1_000, 0, 0);
        let eviction =
            Eviction { announced_ms, noticed_ms, released_after_ms, held, abandoned, work_lost_ms };
        vm(VmEnd::Evicted(eviction), None)
    }

    fn killed(after_ms: u64) -> VmHistory {
        vm(VmEnd::Killed(vec![Recovery { job: 0, after_ms, steps_redone: 1 }]), None)
    }

    fn schedule(faults: usize) -> Vec<Fault> {
        vec![Fault { kind: Kind::Kill, at_permille: 500, slot: 0 }; faults]
    }

    #[test]
    fn injected_faults_are_counted_and_measured() {
        let vms = vec![
            evicted(2, 100, 14),
            evicted(1, 900, 30),
            evicted(0, 0, 0),
            killed(250),
            killed(420),
            vm(VmEnd::Killed(Vec::new()), Some(7)),
            vm(VmEnd::Finished, None),
        ];
        let summary = Summary::of(&history(vec![job(true, true, 1); 3], vms), schedule(6), 0);
        assert_eq!((summary.evictions, summary.kills, summary.missed), (4, 2, 0));
        assert_eq!(summary.notice_to_released_ms, Some(Spread { p50: 14, p99: 30, max: 30 }));
        assert_eq!(summary.announced_to_released_ms, Some(Spread { p50: 130, p99: 914, max: 914 }));
        assert_eq!(summary.recovered_after_kill_ms, Some(Longest { max: 420 }));
        assert_eq!((summary.steps_total, summary.faults()), (120, Vec::<String>::new()));
    }

    #[test]
    fn every_failed_check_is_a_fault() {
        let good = || vec![job(true, true, 1); 3];
        let with = |bad: JobHistory| [good(), vec![bad]].concat();
        for (jobs, left_over, planned, fault) in [
            (with(job(false, false, 0)), 0, 0, "frames lost: 1"),
            (with(job(true, true, 0)), 0, 0, "frames lost: 1"),
            (with(job(true, true, 2)), 0, 0, "frames completed more than once: 1"),
            (with(job(true, false, 1)), 0, 0, "frames differ from an uninterrupted render: 1"),
            (good(), 2, 0, "messages left in the queue: 2"),
            (good(), 0, 1, "evictions and kills found no VM with work: 1"),
        ] {
            let summary = Summary::of(&history(jobs, Vec::new()), schedule(planned), left_over);
            assert_eq!(summary.faults(), [fault]);
        }
        let differs = History { output_digest: "b".into(), ..history(good(), Vec::new()) };
        assert_eq!(Summary::of(&differs, Vec::new(), 0).faults(), ["the digests differ"]);
    }

    #[test]
    fn a_spread_is_of_nearest_ranks() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([7]), Some(Spread { p50: 7, p99: 7, max: 7 }));
        assert_eq!(Spread::of((1..=200).rev()), Some(Spread { p50: 100, p99: 198, max: 200 }));
    }

    #[test]
    fn the_json_has_everything_that_is_asked_for() {
        let vms = vec![evicted(2, 100, 14), killed(250)];
        let summary = Summary::of(&history(vec![job(true, true, 1)], vms), schedule(2), 0);
        insta::assert_json_snapshot!(summary);
    }
}
