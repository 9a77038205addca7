//! A worker that was frozen for longer than its lease, as by SIGSTOP or a paused VM.

use reprieve_core::ErrorKind;
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::Ending;
use reprieve_core::process::Gate;
use reprieve_core::worker::Settings;

use crate::support::*;

fn short_lease() -> Settings {
    Settings { lease: secs(6), budget: secs(3), ..settings() }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_no_other_worker_took_goes_on_at_once() {
    for frozen_at_ms in [500, 2_100, 3_700, 5_100, 9_900] {
        let (store, job) = (memory::store(), Steps::default());
        let ids = enqueue(&store, &[Plan::new(60, 500)]).await;
        let gate = Gate::new();
        let worker = start_in(&gate, &store, &job, short_lease());
        tokio::time::sleep(ms(frozen_at_ms)).await;
        gate.freeze();
        tokio::time::sleep(secs(10)).await;
        gate.thaw();
        // Thirty seconds of work, some of it before the freeze.
        emptied(&store, secs(33)).await;
        assert_eq!(job.trace.redone(), 0, "frozen at {frozen_at_ms} ms");
        assert_eq!(job.trace.steps(&ids[0]).len(), 60);
        let stopped = worker.stop().await;
        assert_eq!((stopped.completed, stopped.abandoned), (1, 0), "frozen at {frozen_at_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_another_worker_took_is_stopped_and_counts_as_lost_and_not_as_abandoned() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(60, 500)]).await;
    let gate = Gate::new();
    let worker = start_in(&gate, &store, &job, short_lease());
    tokio::time::sleep(secs(11)).await;
    gate.freeze();
    tokio::time::sleep(secs(7)).await;
    let other = start(&store, &job);
    within(secs(5), "a claim", async || record(&store, &ids[0]).await.unwrap().owner.count == 2).await;
    gate.thaw();
    emptied(&store, secs(60)).await;
    assert!(job.trace.redone() <= 13, "{} steps redone", job.trace.redone());
    assert_eq!(worker.stop().await.abandoned, 0);
    assert_eq!(other.stop().await.completed, 1);
}

/// Settlements that were applied while the machine was frozen, with a response that came too late.
#[tokio::test(start_paused = true)]
async fn settlements_that_were_applied_before_a_freeze_are_not_given_up_after_it() {
    for op in [Op::Complete, Op::Release] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let steps = if op == Op::Complete { 2 } else { 1_000 };
        enqueue(&inner, &[Plan::new(steps, 500); 4]).await;
        let gate = Gate::new();
        let worker = start_in(&gate, &store, &job, short_lease());
        faults.next_calls(op, 4, Fault::LateAnswer(secs(5)));
        if op == Op::Release {
            tokio::time::sleep(secs(2)).await;
            worker.notices.notice(preempt("evicted"));
        }
        faults.called(op, 4).await;
        gate.freeze();
        tokio::time::sleep(secs(20)).await;
        gate.thaw();
        tokio::time::sleep(secs(5)).await;
        let stopped = worker.stop().await;
        assert_eq!(stopped.abandoned, 0, "{op:?}: {stopped:?}");
        let left = if op == Op::Complete { 0 } else { 4 };
        assert_eq!((total(&inner).await, poisoned(&inner).await.len()), (left, 0), "{op:?}");
    }
}

/// A worker that no longer owns the job must not write itself into the record, least of all after
/// the record was removed because the job is done.
#[tokio::test(start_paused = true)]
async fn a_worker_claims_nothing_after_the_end_of_its_lease() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(4, 500)]).await;
    let killed = start_with(&inner, &job, short_lease(), ManualNotices::answered());
    tokio::time::sleep(ms(100)).await;
    killed.kill().await;
    faults.every_call(Op::Save, Fault::Fail(ErrorKind::Unavailable));
    let gate = Gate::new();
    let _frozen = start_in(&gate, &store, &job, short_lease());
    faults.called(Op::Save, 3).await;
    gate.freeze();
    let _other = start_with(&inner, &job, short_lease(), ManualNotices::answered());
    emptied(&inner, secs(30)).await;
    faults.clear_all();
    gate.thaw();
    tokio::time::sleep(secs(60)).await;
    let left = record(&inner, &ids[0]).await;
    assert!(left.is_none(), "written after the job was done: {left:?}");
}

/// The machine is frozen while a first save checks whether the job is done. Meanwhile another
/// worker finishes the job.
#[tokio::test(start_paused = true)]
async fn a_first_save_that_a_freeze_interrupted_leaves_no_record_of_a_finished_job() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(12, 500)]).await;
    let gate = Gate::new();
    let worker = start_in(&gate, &store, &job, short_lease());
    faults.next_calls(Op::Exists, 1, Fault::LateAnswer(ms(100)));
    faults.called(Op::Exists, 1).await;
    gate.freeze();
    tokio::time::sleep(secs(7)).await;
    let other = start(&inner, &job);
    emptied(&inner, secs(30)).await;
    within(secs(5), "no record", async || record(&inner, &ids[0]).await.is_none()).await;
    gate.thaw();
    tokio::time::sleep(secs(30)).await;
    assert!(record(&inner, &ids[0]).await.is_none(), "a late save created it again");
    assert_eq!(worker.stop().await.abandoned, 0);
    assert_eq!(other.stop().await.completed, 1);
}

/// After a freeze one renewal decides, so it gets a longer timeout than others.
#[tokio::test(start_paused = true)]
async fn a_renewal_after_a_freeze_may_take_a_third_of_the_lease() {
    for (answer_ms, redone) in [(1_850, 0..=0), (2_500, 1..=3)] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan::new(60, 500)]).await;
        let gate = Gate::new();
        let worker = start_in(&gate, &store, &job, short_lease());
        tokio::time::sleep(ms(5_700)).await;
        gate.freeze();
        tokio::time::sleep(secs(10)).await;
        faults.next_calls(Op::Renew, 1, Fault::LateAnswer(ms(answer_ms)));
        gate.thaw();
        emptied(&inner, secs(60)).await;
        assert!(
            redone.contains(&job.trace.redone()),
            "answered after {answer_ms} ms: {}",
            job.trace.redone()
        );
        assert_eq!(worker.stop().await.abandoned, 0);
    }
}

/// The drain's deadline has passed when the worker first sees the notice.
#[tokio::test(start_paused = true)]
async fn a_notice_from_before_the_end_of_a_freeze_still_leaves_time_to_release() {
    for withdrawn in [false, true] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &[Plan::new(60, 500); 4]).await;
        let gate = Gate::new();
        let settings = Settings { lease: secs(300), budget: secs(2), concurrency: 4, ..settings() };
        let worker = start_in(&gate, &store, &job, settings);
        tokio::time::sleep(secs(8)).await;
        gate.freeze();
        let notice = preempt("evicted");
        let id = notice.id.clone();
        worker.notices.notice(notice);
        tokio::time::sleep(secs(20)).await;
        if withdrawn {
            worker.notices.over(&id, Ending::Withdrawn);
        }
        gate.thaw();
        assert_eq!(worker.drained().await.abandoned, 0, "withdrawn: {withdrawn}");
        assert_eq!(job.trace.redone(), 0);
    }
}
