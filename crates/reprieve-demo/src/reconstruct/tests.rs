//! Histories from hand-written journals and logs. A job has four steps; times are seconds.

use super::*;

const BEGAN: i64 = 1_000_000;

fn at(seconds: i64) -> i64 {
    BEGAN + seconds * 1_000
}

/// Returns the journal lines of `vm`'s shift at `job`: these steps, one second each, the first at
/// second `from`.
fn worked(vm: &str, delivery: u32, job: usize, steps: std::ops::Range<u32>, from: i64) -> Vec<Entry> {
    let entry = |step: u32, at_unix_ms, what| Entry { at_unix_ms, vm: vm.into(), job, delivery, step, what };
    let each = |(step, second)| {
        [entry(step, at(second), StepEvent::Began), entry(step, at(second + 1), StepEvent::Done)]
    };
    steps.zip(from..).flat_map(each).collect()
}

fn completed(vm: &str, job: usize, second: i64) -> Logged {
    Logged { at_unix_ms: at(second), vm: vm.into(), what: LogEvent::Completed { id: format!("job-{job}") } }
}

fn drained(vm: &str, held: u64, noticed: i64, after_ms: u64) -> Logged {
    let report = Drained {
        held,
        released_after_ms: after_ms,
        quiesced_after_ms: after_ms,
        work_lost_ms: 0,
        abandoned: 0,
    };
    Logged {
        at_unix_ms: at(noticed).saturating_add_unsigned(after_ms),
        vm: vm.into(),
        what: LogEvent::Drained(report),
    }
}

fn output(job: usize) -> Output {
    Output { id: format!("job-{job}"), has_result: true, png: Some(vec![1]), matches_reference: true }
}

fn reconstruct(lifetimes: Vec<Lifetime>, entries: Vec<Entry>, logged: Vec<Logged>, jobs: usize) -> History {
    seen(lifetimes, entries, logged, jobs).reconstruct()
}

fn seen(lifetimes: Vec<Lifetime>, mut entries: Vec<Entry>, logged: Vec<Logged>, jobs: usize) -> Observations {
    entries.sort_by_key(|entry| entry.at_unix_ms);
    Observations {
        seed: 7,
        store: super::StoreKind::Sqlite,
        notice: Duration::from_secs(5),
        checkpoint_every: Duration::from_secs(1),
        steps_per_job: 4,
        outputs: (0..jobs).map(output).collect(),
        output_digest: "same".into(),
        reference_digest: "same".into(),
        lifetimes,
        entries,
        logged,
    }
}

fn life(vm: &str, from: i64, to: i64, end: End) -> Lifetime {
    Lifetime::new(vm, at(from), at(to), end)
}

#[test]
fn undisturbed_work_is_one_shift_for_each_job() {
    let entries = [worked("vm-1", 1, 0, 0..4, 1), worked("vm-1", 1, 1, 0..4, 2)].concat();
    let logged = vec![completed("vm-1", 0, 5), completed("vm-1", 1, 6)];
    let history = reconstruct(vec![life("vm-1", 0, 9, End::Finished)], entries, logged, 2);
    assert_eq!((history.took_ms, history.notice_ms, history.checkpoint_every_ms), (6_000, 5_000, 1_000));
    let [vm] = &history.vms[..] else { panic!("{history:?}") };
    assert!(matches!(vm.end, VmEnd::Finished));
    assert_eq!((vm.began_ms, vm.ended_ms), (0, 9_000));
    let shifts: Vec<_> =
        vm.shifts.iter().map(|s| (s.job, s.from_ms, s.to_ms, s.steps, s.redone, s.end)).collect();
    assert_eq!(
        shifts,
        [(0, 1_000, 5_000, 4, 0, ShiftEnd::Completed), (1, 2_000, 6_000, 4, 0, ShiftEnd::Completed)]
    );
    assert!(history.jobs.iter().all(|job| job.completions == 1));
}

#[test]
fn an_eviction_has_its_delays_and_its_released_jobs() {
    let entries = [worked("vm-1", 1, 0, 0..2, 1), worked("vm-2", 2, 0, 2..4, 5)].concat();
    let logged = vec![drained("vm-1", 1, 3, 14), completed("vm-2", 0, 7)];
    let lifetimes = vec![
        life("vm-1", 0, 8, End::Evicted { announced_unix_ms: at(2) }),
        life("vm-2", 4, 9, End::Finished),
    ];
    let history = reconstruct(lifetimes, entries, logged, 1);
    let VmEnd::Evicted(eviction) = &history.vms[0].end else { panic!("{history:?}") };
    assert_eq!((eviction.announced_ms, eviction.noticed_ms, eviction.released_after_ms), (2_000, 3_000, 14));
    assert_eq!((eviction.held, eviction.announced_to_released_ms()), (1, 1_014));
    let [shift] = &history.vms[0].shifts[..] else { panic!("{history:?}") };
    assert_eq!((shift.end, shift.to_ms), (ShiftEnd::Released, 3_014));
    let [next] = &history.vms[1].shifts[..] else { panic!("{history:?}") };
    assert_eq!((next.first_step, next.steps, next.redone, next.end), (2, 2, 0, ShiftEnd::Completed));
}

#[test]
fn a_kill_has_its_recoveries_with_time_and_step() {
    let entries = [worked("vm-1", 1, 0, 0..3, 1), worked("vm-2", 2, 0, 1..4, 6)].concat();
    let lifetimes = vec![life("vm-1", 0, 5, End::Killed), life("vm-2", 5, 11, End::Finished)];
    let history = reconstruct(lifetimes, entries, vec![completed("vm-2", 0, 10)], 1);
    let VmEnd::Killed(recoveries) = &history.vms[0].end else { panic!("{history:?}") };
    let [recovery] = &recoveries[..] else { panic!("{recoveries:?}") };
    assert_eq!((recovery.job, recovery.after_ms, recovery.steps_redone), (0, 1_000, 2));
    assert_eq!((history.vms[0].shifts[0].end, history.vms[0].shifts[0].to_ms), (ShiftEnd::Killed, 5_000));
    assert_eq!(history.vms[1].shifts[0].redone, 2);
}

#[test]
fn a_too_short_notice_ends_as_a_kill_with_the_notice_recorded() {
    let entries = [worked("vm-1", 1, 0, 0..2, 1), worked("vm-2", 2, 0, 2..4, 5)].concat();
    let lifetimes = vec![
        life("vm-1", 0, 4, End::Evicted { announced_unix_ms: at(3) }),
        life("vm-2", 4, 9, End::Finished),
    ];
    let history = reconstruct(lifetimes, entries, vec![completed("vm-2", 0, 7)], 1);
    assert!(matches!(&history.vms[0].end, VmEnd::Killed(recoveries) if recoveries.len() == 1), "{history:?}");
    assert_eq!(history.vms[0].missed_notice_ms, Some(3_000));
    assert_eq!(history.vms[0].shifts[0].end, ShiftEnd::Killed);
}

#[test]
fn a_job_that_was_completed_in_the_moment_of_a_kill_was_not_interrupted() {
    // Killed after it had settled the job, before it could say so.
    let lifetimes = vec![life("vm-1", 0, 6, End::Killed)];
    let history = reconstruct(lifetimes, worked("vm-1", 1, 0, 0..4, 1), vec![], 1);
    assert!(matches!(&history.vms[0].end, VmEnd::Killed(recoveries) if recoveries.is_empty()), "{history:?}");
    assert_eq!(history.vms[0].shifts[0].end, ShiftEnd::Completed);
    assert_eq!((history.jobs[0].completions, history.took_ms), (1, 5_000));
}

#[test]
fn the_last_step_of_a_job_may_be_done_again_too() {
    let entries = [worked("vm-1", 1, 0, 0..4, 1), worked("vm-2", 2, 0, 3..4, 7)].concat();
    let lifetimes = vec![life("vm-1", 0, 6, End::Killed), life("vm-2", 6, 9, End::Finished)];
    let history = reconstruct(lifetimes, entries, vec![completed("vm-2", 0, 8)], 1);
    assert_eq!(history.vms[0].shifts[0].end, ShiftEnd::Killed);
    assert!(matches!(&history.vms[0].end, VmEnd::Killed(all) if all[0].steps_redone == 1), "{history:?}");
}

#[test]
fn a_job_without_a_result_was_not_completed_whatever_the_log_has() {
    let mut seen = seen(
        vec![life("vm-1", 0, 9, End::Finished)],
        worked("vm-1", 1, 0, 0..4, 1),
        vec![completed("vm-1", 0, 5)],
        1,
    );
    seen.outputs[0].has_result = false;
    assert_eq!(seen.reconstruct().jobs[0].completions, 0);
}

#[test]
fn a_job_completed_twice_counts_two_completions() {
    let logged = vec![completed("vm-1", 0, 5), completed("vm-2", 0, 6)];
    let lifetimes = vec![life("vm-1", 0, 9, End::Finished), life("vm-2", 0, 9, End::Finished)];
    let history = reconstruct(lifetimes, worked("vm-1", 1, 0, 0..4, 1), logged, 1);
    assert_eq!(history.jobs[0].completions, 2);
}

#[test]
fn steps_redone_are_what_the_interruptions_cost_together() {
    // Killed twice running, the second time before it had caught up.
    let entries =
        [worked("vm-1", 1, 0, 0..3, 1), worked("vm-2", 2, 0, 0..2, 6), worked("vm-3", 3, 0, 1..4, 10)]
            .concat();
    let lifetimes = vec![
        life("vm-1", 0, 5, End::Killed),
        life("vm-2", 5, 9, End::Killed),
        life("vm-3", 9, 14, End::Finished),
    ];
    let history = reconstruct(lifetimes, entries, vec![completed("vm-3", 0, 13)], 1);
    let cost: u32 = history.recoveries().map(|recovery| recovery.steps_redone).sum();
    let redone: u32 = history.vms.iter().flat_map(|vm| &vm.shifts).map(|shift| shift.redone).sum();
    assert_eq!((cost, redone), (4, 4));
}
