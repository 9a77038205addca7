//! Invented histories for tests.

use crate::history::{Eviction, History, JobHistory, Recovery, Shift, ShiftEnd, VmEnd, VmHistory};
use crate::schedule::{Fault, Kind};
use crate::store::StoreKind;
use crate::summary::Summary;

/// A story in which these jobs and VMs are all there is.
pub(super) fn history(jobs: Vec<JobHistory>, vms: Vec<VmHistory>) -> History {
    History {
        seed: 1,
        store: StoreKind::Sqlite,
        took_ms: 28_400,
        notice_ms: 5_000,
        checkpoint_every_ms: 1_000,
        steps_per_job: 40,
        jobs,
        vms,
        output_digest: "a".into(),
        reference_digest: "a".into(),
    }
}

/// A VM that did nothing and ended so.
pub(super) fn vm(end: VmEnd, missed_notice_ms: Option<u64>) -> VmHistory {
    let (name, shifts) = ("vm-1".into(), Vec::new());
    VmHistory { name, began_ms: 0, ended_ms: 9, end, missed_notice_ms, shifts }
}

const STEPS: u32 = 24;

/// Four frames, an eviction and a kill.
pub(super) fn good() -> (History, Summary) {
    let eviction = Eviction {
        announced_ms: 4_000,
        noticed_ms: 4_610,
        released_after_ms: 14,
        held: 2,
        abandoned: 0,
        work_lost_ms: 0,
    };
    let recoveries = vec![Recovery { job: 1, after_ms: 310, steps_redone: 3 }];
    let vms = vec![
        named_vm(
            "vm-1",
            (0, 9_000),
            VmEnd::Evicted(eviction),
            vec![
                shift(0, (300, 4_624), 0, (18, 0), ShiftEnd::Released),
                shift(2, (310, 4_620), 0, (17, 0), ShiftEnd::Released),
            ],
        ),
        named_vm(
            "vm-2",
            (0, 6_000),
            VmEnd::Killed(recoveries),
            vec![
                shift(1, (320, 6_000), 0, (20, 0), ShiftEnd::Killed),
                shift(3, (330, 5_800), 0, (24, 0), ShiftEnd::Completed),
            ],
        ),
        named_vm(
            "vm-3",
            (0, 12_400),
            VmEnd::Finished,
            vec![
                shift(0, (4_700, 6_200), 18, (6, 0), ShiftEnd::Completed),
                shift(2, (4_710, 6_300), 17, (7, 0), ShiftEnd::Completed),
                shift(1, (6_310, 8_100), 17, (7, 3), ShiftEnd::Completed),
            ],
        ),
        named_vm("vm-4", (6_010, 12_400), VmEnd::Finished, vec![]),
    ];
    let history = History {
        seed: 7,
        store: StoreKind::Sqlite,
        took_ms: 12_300,
        notice_ms: 5_000,
        checkpoint_every_ms: 1_000,
        steps_per_job: STEPS,
        jobs: (0..4).map(job).collect(),
        vms,
        output_digest: "5e884898da28047151d0e56f8dc62927".to_owned(),
        reference_digest: "5e884898da28047151d0e56f8dc62927".to_owned(),
    };
    let summary = Summary::of(&history, schedule(), 0);
    assert_eq!(summary.faults(), [""; 0]);
    (history, summary)
}

/// The same with a frame lost, one that differs, one that was finished twice, a message left over,
/// faults that did not strike, and a drain slower than promised.
pub(super) fn bad() -> (History, Summary) {
    let (mut history, _) = good();
    history.jobs[0].png = None;
    history.jobs[0].completions = 0;
    history.jobs[1].matches_reference = false;
    history.jobs[2].completions = 2;
    history.output_digest = "ffff".to_owned();
    if let VmEnd::Evicted(eviction) = &mut history.vms[0].end {
        eviction.released_after_ms = 3_200;
        eviction.work_lost_ms = 800;
    }
    history.vms[1].missed_notice_ms = Some(5_500);
    let missed = [schedule(), schedule()].concat();
    let summary = Summary::of(&history, missed, 1);
    (history, summary)
}

fn schedule() -> Vec<Fault> {
    [(Kind::Eviction, 300), (Kind::Kill, 500)]
        .map(|(kind, at_permille)| Fault { kind, at_permille, slot: 0 })
        .to_vec()
}

fn named_vm(name: &str, (began_ms, ended_ms): (u64, u64), end: VmEnd, shifts: Vec<Shift>) -> VmHistory {
    VmHistory { name: name.to_owned(), began_ms, ended_ms, end, missed_notice_ms: None, shifts }
}

/// A shift at `job` from when to when, from which step on, and how many steps: all, and those done
/// again.
pub(super) fn shift(
    job: usize,
    (from_ms, to_ms): (u64, u64),
    first_step: u32,
    (steps, redone): (u32, u32),
    end: ShiftEnd,
) -> Shift {
    Shift { job, from_ms, to_ms, first_step, steps, redone, end }
}

fn job(number: u32) -> JobHistory {
    JobHistory {
        id: format!("0199-{number}"),
        png: Some(vec![1, 2, 3]),
        matches_reference: true,
        completions: 1,
    }
}
