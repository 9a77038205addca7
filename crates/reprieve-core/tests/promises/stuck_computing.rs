//! Work on threads for computing that never comes back: it holds its job's slot, as a step does that blocks its thread.

use std::sync::{Arc, Mutex, mpsc};

use reprieve_core::memory;
use reprieve_core::worker::{Limits, Settings, StopReason, Worker};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step, StopFlag};
use serde::{Deserialize, Serialize};
use tokio::task::yield_now;
use tokio::time::advance;

use crate::stuck::{Blocking, start};
use crate::support::*;

/// What a job does with work that does not return by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Waits {
    /// Waits for it. It ends when the other end is dropped.
    ForEver,
    /// The same, for work that ends when the job should yield, too.
    Politely,
    /// Is done without it.
    NotAtAll,
}

/// The work of a job, while it goes on: how it can see that it should end.
type Working = Arc<Mutex<Option<StopFlag>>>;

#[derive(Clone)]
struct Computes {
    until: Arc<Mutex<mpsc::Receiver<()>>>,
    working: Working,
}

/// Says when its work has ended, and given its job's slot back.
struct Ends(Working);

impl Drop for Ends {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = None;
    }
}

#[async_trait::async_trait]
impl Job for Computes {
    const KIND: &'static str = "computes";
    type Args = Waits;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &Waits) {}

    async fn step(&self, cx: &JobContext, waits: &Waits, (): ()) -> Result<Step<(), ()>, JobError> {
        let (until, flag, is_polite) = (Arc::clone(&self.until), cx.stop_flag(), *waits == Waits::Politely);
        *self.working.lock().unwrap() = Some(flag.clone());
        let ends = Ends(Arc::clone(&self.working));
        let work = cx.compute(move || {
            if is_polite {
                while !flag.is_set() {
                    std::thread::yield_now();
                }
            } else {
                let _is_gone = until.lock().unwrap().recv();
            }
            ends
        });
        if *waits == Waits::NotAtAll {
            tokio::select! {
                biased;
                _ends = work => {}
                () = yield_now() => {}
            }
        } else {
            drop(work.await);
        }
        Ok(Step::Done(()))
    }
}

fn computes() -> (Computes, mpsc::Sender<()>) {
    let (goes_on, until) = mpsc::channel();
    (Computes { until: Arc::new(Mutex::new(until)), working: Arc::default() }, goes_on)
}

fn step_timeout() -> Limits {
    Limits { step_timeout: Some(secs(5)), ..Limits::default() }
}

/// A worker with one such job.
async fn computing(slots: usize, limits: Limits, waits: Waits) -> (Blocking, mpsc::Sender<()>) {
    let (job, goes_on) = computes();
    let blocking = start(slots, Limits::default(), |worker| worker.job(job).limits::<Computes>(limits));
    let jobs = vec![NewJob::of::<Computes>(&waits).unwrap()];
    Producer::new(blocking.store.clone()).enqueue(jobs).await.unwrap();
    (blocking, goes_on)
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_work_that_does_not_return_is_replaced_and_its_job_is_poisoned_after_three() {
    let stall_after = Limits { stall_after: Some(secs(60)), ..Limits::default() };
    for limits in [step_timeout(), stall_after] {
        let (blocking, goes_on) = computing(8, limits, Waits::ForEver).await;
        within(secs(900), "the dead letter", async || poisoned(&blocking.store).await.len() == 1).await;
        let reason = poisoned(&blocking.store).await.remove(0);
        assert!(reason.ends_with(", and its thread did not return, 3 times"), "{reason}");
        within(secs(600), "replacements", async || blocking.done("slot", "replace_slot") == 3).await;
        assert_eq!((blocking.done("slot", "mark_stuck"), blocking.done("worker", "restart")), (3, 0));
        assert!(!blocking.ends.is_finished());
        blocking.ends.abort();
        drop(goes_on);
        blocking.jobs.shutdown_background();
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_ends_when_half_of_its_slots_are_held_by_work_that_does_not_return() {
    for (slots, waits) in [(4, Waits::ForEver), (2, Waits::NotAtAll)] {
        let (blocking, goes_on) = computing(slots, step_timeout(), waits).await;
        within(secs(1_800), "the end of the worker", async || blocking.ends.is_finished()).await;
        assert_eq!(blocking.ends.await.unwrap().reason, StopReason::Stuck);
        drop(goes_on);
        blocking.jobs.shutdown_background();
    }
}

/// The jobs' threads are those of the test, so that their timers go by its clock. It moves by hand, because it stands
/// still while anything computes.
#[tokio::test(start_paused = true)]
async fn work_that_returns_when_its_job_is_stopped_at_a_limit_is_not_charged_as_a_blocked_thread() {
    for waits in [Waits::Politely, Waits::ForEver] {
        on_one_clock();
        let ((job, goes_on), store) = (computes(), memory::store());
        let working = Arc::clone(&job.working);
        let limits = Limits { attempts: 4, ..step_timeout() };
        let worker = Worker::builder(store.clone()).settings(Settings { concurrency: 16, ..settings() });
        let worker = start_built(worker.job(job).limits::<Computes>(limits));
        send_args::<Computes>(&store, &waits).await;
        for _ in 0..6_000 {
            advance(ms(100)).await;
            for _ in 0..50 {
                yield_now().await;
            }
            // Work that sees its flag returns at once, but on a thread of its own.
            let is_to_end = || working.lock().unwrap().as_ref().is_some_and(StopFlag::is_set);
            while waits == Waits::Politely && is_to_end() {
                yield_now().await;
            }
            if !poisoned(&store).await.is_empty() {
                break;
            }
        }
        let expected = match waits {
            Waits::Politely => "failed too often, at last with: a step took longer than its timeout of 5s",
            _ => "a step took longer than its timeout of 5s, and its thread did not return, 3 times",
        };
        assert_eq!(poisoned(&store).await, [expected]);
        drop(goes_on);
        worker.kill().await;
    }
}
