//! A save that was applied, but whose answer was lost, keeps what it saved.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::worker::Settings;
use reprieve_core::{ErrorKind, Job, JobContext, JobError, NewJob, Producer, Step};

use crate::support::*;

/// Saves in its fourth step without an answer, and fails then, once.
#[derive(Debug, Clone)]
struct Unanswered {
    faults: Faults,
    failed: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<u32>>>,
}

/// A state that is stored as a payload.
fn large(step: u32) -> (u32, String) {
    (step, step.to_string().repeat(30_000))
}

#[async_trait]
impl Job for Unanswered {
    const KIND: &'static str = "unanswered";
    type Args = ();
    type Checkpoint = (u32, String);
    type Output = ();

    fn begin(&self, (): &()) -> (u32, String) {
        large(0)
    }

    async fn step(
        &self,
        cx: &JobContext,
        (): &(),
        (at, _): (u32, String),
    ) -> Result<Step<(u32, String), ()>, JobError> {
        self.seen.lock().unwrap().push(at);
        if at == 3 && !self.failed.swap(true, Relaxed) {
            self.faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
            assert!(!cx.save::<Self>(&large(4)).await?);
            return Err(JobError::retry("503"));
        }
        tokio::time::sleep(secs(1)).await;
        Ok(if at >= 8 { Step::Done(()) } else { Step::Continue(large(at + 1)) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_after_it_keeps_the_state() {
    let (store, faults) = Faults::wrap(memory::store());
    let job = Unanswered { faults, failed: Arc::default(), seen: Arc::default() };
    on_one_clock();
    let jobs = vec![NewJob::of::<Unanswered>(&()).unwrap()];
    Producer::new(store.clone()).enqueue(jobs).await.unwrap();
    let _worker = start_saving(&store, job.clone());
    emptied(&store, secs(120)).await;
    assert_eq!(*job.seen.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

/// The manifest of its first save, which fails, does not fit beside the state and is a payload. Its second
/// save is applied without an answer and needs no such manifest; its third one needs it again.
#[derive(Clone)]
struct Placed {
    faults: Faults,
    began: Arc<Mutex<Vec<u32>>>,
}

#[async_trait]
impl Job for Placed {
    const KIND: &'static str = "placed";
    type Args = ();
    type Checkpoint = (u32, String);
    type Output = u32;

    fn begin(&self, (): &()) -> (u32, String) {
        (0, String::new())
    }

    async fn step(
        &self,
        cx: &JobContext,
        (): &(),
        (at, _): (u32, String),
    ) -> Result<Step<(u32, String), u32>, JobError> {
        self.began.lock().unwrap().push(at);
        if at > 0 {
            let mut found = Vec::new();
            cx.attach("b").read(&mut found).await?;
            return Ok(Step::Done(at));
        }
        let long = |number| (number, "x".repeat(20_400));
        cx.attach("a").write(&b"content"[..]).await?;
        cx.attach("b").write(&b"content"[..]).await?;
        self.faults.next_calls(Op::Save, 1, Fault::Fail(ErrorKind::Unavailable));
        assert!(!cx.save::<Self>(&long(1)).await?);
        cx.attach("b").remove().await;
        self.faults.next_calls(Op::Save, 1, Fault::LoseAnswer);
        assert!(!cx.save::<Self>(&(2, String::new())).await?);
        cx.attach("b").write(&b"content"[..]).await?;
        assert!(cx.save::<Self>(&long(3)).await?);
        Err(JobError::retry("503"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_it_removed_is_stored_again_for_the_next_save() {
    let (store, faults) = Faults::wrap(memory::store());
    enqueue_j(&store, Placed::KIND).await;
    let job = Placed { faults, began: Arc::default() };
    let settings = Settings { checkpoint_every: CheckpointEvery::Every(secs(36_000)), ..settings() };
    let _worker = start_any(&store, job.clone(), settings);
    emptied(&store, secs(600)).await;
    assert_eq!(*job.began.lock().unwrap(), [0, 3]);
}
