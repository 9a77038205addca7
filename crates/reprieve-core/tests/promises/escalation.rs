//! A job that interruptions keep from making progress moves to the queue of calmer machines, and
//! finishes there, whatever happens in between.

use std::sync::Arc;

use reprieve_core::memory::{self, Fault, Faults, ManualNotices, MemoryQueue, Op};
use reprieve_core::ports::Store;
use reprieve_core::record::Status;
use reprieve_core::worker::{Escalation, Settings};
use reprieve_core::{BlobName, ErrorKind, JobId};

use crate::support::*;

/// A step that takes longer than these machines last.
const LONG: u64 = 60_000;

/// One store with two queues.
struct Place {
    spot: Store,
    regular: Store,
    /// Of the regular queue.
    faults: Faults,
    job: Steps,
}

impl Place {
    fn new() -> Self {
        Self::over(memory::store())
    }

    fn over(spot: Store) -> Self {
        let queue = Arc::new(MemoryQueue::named("regular"));
        let (regular, faults) = Faults::wrap(Store { queue, ..spot.clone() });
        Self { spot, regular, faults, job: Steps::default() }
    }

    fn escalation(&self) -> Escalation {
        let (queue, name) = (Arc::clone(&self.regular.queue), "regular".to_owned());
        Escalation { queue, name, after: Escalation::AFTER }
    }

    fn start(&self, store: &Store) -> Running {
        let notices = ManualNotices::answered();
        start_escalating(store, &self.job, settings(), notices, self.escalation())
    }

    /// Runs the job on workers that are evicted in the middle of its first step, until it moves.
    async fn evict_until_moved(&self, id: &JobId) {
        for _ in 0..10 {
            let worker = self.start(&self.spot);
            if self.runs_or_moved(id).await {
                worker.stop().await;
                return;
            }
            tokio::time::sleep(ms(LONG / 4)).await;
            worker.evict(secs(30)).await;
            worker.stop().await;
        }
        panic!("it was interrupted ten times and did not move: {:?}", record(&self.spot, id).await);
    }

    /// Waits until the job runs or is gone from its first queue; returns whether it is gone.
    async fn runs_or_moved(&self, id: &JobId) -> bool {
        let is_held = async || leased(&self.spot).await > 0;
        let has_moved = async || total(&self.spot).await == 0;
        within(secs(120), "a delivery", async || {
            has_moved().await || is_held().await && !is_escalated(&self.spot, id).await
        })
        .await;
        // A delivery that moves the job holds it for a moment.
        tokio::time::sleep(secs(1)).await;
        has_moved().await
    }

    async fn is_done(&self, id: &JobId) -> bool {
        self.spot.blobs.exists(&BlobName::parse(format!("results/{id}.json")).unwrap()).await.unwrap()
    }

    /// Runs regular workers until both queues are empty.
    async fn finish(&self, id: &JobId) {
        let _regular = start(&self.regular, &self.job);
        let both = async || total(&self.spot).await + total(&self.regular).await == 0;
        within(secs(3_600), "two empty queues", both).await;
        assert!(self.is_done(id).await);
        assert_eq!(poisoned(&self.spot).await.len() + poisoned(&self.regular).await.len(), 0);
    }
}

async fn is_escalated(store: &Store, id: &JobId) -> bool {
    let record = record(store, id).await;
    record.is_some_and(|record| matches!(record.status, Status::Escalated { .. }))
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_interrupted_without_progress_moves_and_finishes_on_a_calm_machine() {
    let place = Place::new();
    let id = enqueue(&place.spot, &[Plan::new(1, LONG)]).await.remove(0);
    place.evict_until_moved(&id).await;
    assert_eq!((total(&place.spot).await, total(&place.regular).await), (0, 1));
    let found = record(&place.spot, &id).await.unwrap();
    let Status::Escalated { queue, why } = &found.status else { panic!("{found:?}") };
    assert_eq!((queue.as_str(), found.account.unmoved), ("regular", 3), "{why}");

    let regular = place.start(&place.regular);
    within(secs(10), "its claim", async || !is_escalated(&place.spot, &id).await).await;
    let claimed = record(&place.spot, &id).await.unwrap();
    assert_eq!((claimed.generation, claimed.account.unmoved), (1, 0));
    assert_eq!(claimed.escalated.map(|it| it.why).as_ref(), Some(why));
    let reports = async || place.regular.roster.reports(secs(60)).await.unwrap();
    within(secs(60), "the reason in the status", async || {
        reports()
            .await
            .iter()
            .flat_map(|report| &report.in_flight)
            .any(|job| job.escalated.as_ref() == Some(why))
    })
    .await;
    emptied(&place.regular, secs(120)).await;
    assert_eq!(place.job.trace.steps(&id), [0]);
    regular.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_makes_progress_stays_however_often_it_is_interrupted() {
    let place = Place::new();
    let id = enqueue(&place.spot, &[Plan::new(30, 4_000)]).await.remove(0);
    for _ in 0..8 {
        let worker = place.start(&place.spot);
        tokio::time::sleep(secs(9)).await;
        worker.evict(secs(30)).await;
        worker.stop().await;
    }
    let (found, steps) = (record(&place.spot, &id).await.unwrap(), place.job.trace.steps(&id).len());
    assert!(steps > 8, "{steps} steps, {found:?}");
    assert_eq!((total(&place.spot).await, total(&place.regular).await), (1, 0), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_moved_once_stays_where_it_is() {
    let place = Place::new();
    let id = enqueue(&place.spot, &[Plan::new(1, LONG)]).await.remove(0);
    place.evict_until_moved(&id).await;
    let further = Arc::new(MemoryQueue::named("further"));
    let escalation = Escalation { queue: further.clone(), name: "further".to_owned(), after: 1 };
    for _ in 0..5 {
        let notices = ManualNotices::answered();
        let worker = start_escalating(&place.regular, &place.job, settings(), notices, escalation.clone());
        within(secs(120), "a delivery", async || leased(&place.regular).await > 0).await;
        tokio::time::sleep(ms(LONG / 4)).await;
        worker.evict(secs(30)).await;
        worker.stop().await;
    }
    assert_eq!(total(&Store { queue: further, ..place.spot.clone() }).await, 0);
    // The last one is in the message.
    assert_eq!(record(&place.spot, &id).await.unwrap().account.unmoved, 4);
    place.finish(&id).await;
}

/// On a Spot machine, a death of the worker looks like an eviction without notice.
#[tokio::test(start_paused = true)]
async fn a_job_that_dies_with_its_workers_moves_before_it_is_poisoned() {
    let place = Place::new();
    let id = enqueue(&place.spot, &[Plan::new(1, LONG)]).await.remove(0);
    for _ in 0..10 {
        let worker = place.start(&place.spot);
        if place.runs_or_moved(&id).await {
            break;
        }
        worker.kill().await;
        // Until its lease has ended.
        tokio::time::sleep(secs(61)).await;
    }
    assert_eq!((total(&place.spot).await, total(&place.regular).await), (0, 1));
    assert_eq!(poisoned(&place.spot).await, Vec::<String>::new());
    place.finish(&id).await;
    assert_eq!(place.job.trace.steps(&id), [0]);
}

/// The calls of a move are the record, the copy, the delete. Each may fail, or lose its answer, and
/// the worker may die at each.
#[tokio::test(start_paused = true)]
async fn a_move_that_is_disturbed_or_cut_off_at_any_call_loses_no_job_and_doubles_none() {
    let faults = [
        Fault::Fail(ErrorKind::Unavailable),
        Fault::LoseAnswer,
        Fault::LateAnswer(secs(200)),
        Fault::Delay(secs(45)),
        Fault::Hang,
    ];
    for fault in faults {
        for (op, calls, dies) in [Op::Save, Op::Send, Op::Complete]
            .into_iter()
            .flat_map(|op| [(op, 1, false), (op, 1, true), (op, 6, false)])
        {
            let what = format!("{fault:?} at {op:?}, {calls} times, dies: {dies}");
            let (spot, at_spot) = Faults::wrap(memory::store());
            let place = Place::over(spot);
            let id = enqueue(&place.spot, &[Plan::new(1, LONG)]).await.remove(0);
            for _ in 0..Escalation::AFTER {
                let worker = place.start(&place.spot);
                assert!(!place.runs_or_moved(&id).await, "{what}");
                tokio::time::sleep(ms(LONG / 4)).await;
                worker.evict(secs(30)).await;
                worker.stop().await;
            }
            let disturbed = if op == Op::Send { &place.faults } else { &at_spot };
            // The first save of the next delivery is its claim, the second the move.
            disturbed.next_calls(op, u64::from(op == Op::Save), Fault::Delay(ms(0)));
            disturbed.next_calls(op, calls, fault);
            let worker = place.start(&place.spot);
            tokio::time::sleep(secs(20)).await;
            if dies {
                worker.kill().await;
                disturbed.clear(op);
                let _second = place.start(&place.spot);
                place.finish(&id).await;
            } else {
                if fault == Fault::Hang {
                    tokio::time::sleep(secs(100)).await;
                    disturbed.clear(op);
                }
                place.finish(&id).await;
                worker.stop().await;
            }
            assert_eq!(place.job.trace.steps(&id), [0], "{what}");
        }
    }
}

/// Such as after a change of the settings.
#[tokio::test(start_paused = true)]
async fn a_worker_that_knows_no_such_queue_continues_a_job_of_which_the_move_was_cut_off() {
    let place = Place::new();
    let id = enqueue(&place.spot, &[Plan::new(1, LONG)]).await.remove(0);
    place.faults.every_call(Op::Send, Fault::Hang);
    for _ in 0..=Escalation::AFTER {
        let worker = place.start(&place.spot);
        if is_escalated(&place.spot, &id).await {
            break;
        }
        within(secs(120), "a delivery", async || leased(&place.spot).await > 0).await;
        tokio::time::sleep(ms(LONG / 4)).await;
        if is_escalated(&place.spot, &id).await {
            worker.kill().await;
            break;
        }
        worker.evict(secs(30)).await;
        worker.stop().await;
    }
    assert!(is_escalated(&place.spot, &id).await);
    let _plain = start_with(&place.spot, &place.job, Settings { ..settings() }, ManualNotices::answered());
    emptied(&place.spot, secs(600)).await;
    assert!(place.is_done(&id).await);
    assert_eq!((place.job.trace.steps(&id), total(&place.regular).await), (vec![0], 0));
}
