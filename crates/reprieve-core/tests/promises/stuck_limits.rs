//! Stuck slots that hold the places of a kind with a limit: only the end of the process frees them.

use std::sync::atomic::Ordering::Relaxed;

use reprieve_core::ErrorKind;
use reprieve_core::memory::Fault;
use reprieve_core::worker::{Limits, StopReason};
use tokio::time::{Instant, sleep};

use crate::stuck::{Blocking, jobs_of, start, until};
use crate::support::*;

fn per_worker(most: usize) -> Limits {
    Limits { per_worker: Some(most), step_timeout: Some(secs(5)), ..Limits::default() }
}

fn in_fleet(most: u32) -> Limits {
    Limits { in_fleet: Some(most), step_timeout: Some(secs(5)), ..Limits::default() }
}

/// A worker of eight slots with so many threads that block.
async fn blocked(limits: Limits, count: usize) -> Blocking {
    let blocking = start(8, limits, |worker| worker);
    blocking.send(true, count).await;
    within(secs(60), "the jobs", async || jobs_of(&blocking).await.len() == count).await;
    until(|| blocking.blocked.load(Relaxed) >= count).await;
    blocking
}

/// The same whose job does not come back, because it is cancelled.
async fn cancelled(limits: Limits) -> Blocking {
    let blocking = blocked(limits, 1).await;
    cancel(&blocking.store, &jobs_of(&blocking).await[0]).await;
    blocking
}

async fn ends_as_stuck(blocking: Blocking) {
    within(secs(600), "the end of the worker", async || blocking.ends.is_finished()).await;
    assert_eq!(blocking.done("worker", "restart"), 1);
    assert_eq!(blocking.ends.await.unwrap().reason, StopReason::Stuck);
    assert_eq!(leased(&blocking.store).await, 0);
    drop(blocking.unblock);
    blocking.jobs.shutdown_background();
}

/// Lets ten minutes pass in which the stuck slot is replaced, and nothing more.
async fn works_on(blocking: &Blocking) {
    sleep(secs(600)).await;
    let done = ["mark_stuck", "replace_slot"].map(|action| blocking.done("slot", action));
    assert_eq!((done, blocking.ends.is_finished()), ([1, 1], false));
}

#[tokio::test(start_paused = true)]
async fn a_worker_ends_when_stuck_slots_hold_all_places_of_a_kind_that_has_waiting_work() {
    for most in [1, 2] {
        let began = Instant::now();
        let blocking = blocked(per_worker(most), most).await;
        blocking.send(false, 5).await;
        ends_as_stuck(blocking).await;
        assert!((secs(60)..secs(300)).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_slot_that_leaves_its_kind_a_place_or_whose_kind_has_no_work_ends_no_worker() {
    let two = cancelled(per_worker(2)).await;
    works_on(&two).await;
    two.send(false, 20).await;
    emptied(&two.store, secs(600)).await;
    assert!(!two.ends.is_finished());
    two.end();
    let one = cancelled(per_worker(1)).await;
    works_on(&one).await;
    one.send(false, 1).await;
    ends_as_stuck(one).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_ends_when_a_stuck_slot_holds_one_of_the_fleet_also_without_waiting_work_here() {
    ends_as_stuck(cancelled(in_fleet(2)).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_slot_that_has_lost_its_slot_of_the_fleet_ends_no_worker() {
    let blocking = cancelled(in_fleet(2)).await;
    within(secs(30), "the cancellation", async || jobs_of(&blocking).await.is_empty()).await;
    blocking.faults.everything(Fault::Fail(ErrorKind::Unavailable));
    sleep(secs(200)).await;
    blocking.faults.clear_all();
    works_on(&blocking).await;
    blocking.end();
}
