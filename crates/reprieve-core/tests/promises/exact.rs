//! A job that was evicted computes bit for bit what an undisturbed one does, and a state that can't
//! be resumed fails its job at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use async_trait::async_trait;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::{BlobName, Job, JobContext, JobError, Step};
use serde::{Deserialize, Serialize};

use crate::support::*;

async fn result(store: &Store) -> Option<String> {
    let result = store.blobs.get(&BlobName::parse("results/j.json").unwrap()).await.unwrap();
    result.map(|json| String::from_utf8(json).unwrap())
}

/// A chaotic sequence: one changed bit changes every later number.
#[derive(Debug)]
struct Chaos;

#[derive(Debug, Serialize, Deserialize)]
struct Orbit {
    x: f64,
    steps: u32,
    best_loss: f64,
    worst: Option<f32>,
}

#[async_trait]
impl Job for Chaos {
    const KIND: &'static str = "chaos";
    type Args = ();
    type Checkpoint = Orbit;
    type Output = (f64, u32);

    fn begin(&self, (): &()) -> Orbit {
        Orbit { x: 0.1, steps: 0, best_loss: f64::INFINITY, worst: Some(f32::NAN) }
    }

    async fn step(
        &self,
        _: &JobContext,
        (): &(),
        mut at: Orbit,
    ) -> Result<Step<Orbit, (f64, u32)>, JobError> {
        tokio::time::sleep(ms(200)).await;
        for _ in 0..1_000 {
            at.x = 3.99 * at.x * (1.0 - at.x);
        }
        at.steps += 1;
        if !at.best_loss.is_infinite() || !at.worst.is_some_and(f32::is_nan) {
            return Err(JobError::fatal("the state came back as another one"));
        }
        Ok(if at.steps < 200 { Step::Continue(at) } else { Step::Done((at.x, at.steps)) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_evicted_job_computes_bit_for_bit_what_an_undisturbed_one_does() {
    let mut results = Vec::new();
    for evictions in [0, 7] {
        let store = memory::store();
        enqueue_j(&store, Chaos::KIND).await;
        for _ in 0..evictions {
            let worker = start_job(&store, Chaos);
            tokio::time::sleep(ms(4_300)).await;
            worker.evict(secs(30)).await;
        }
        let _worker = start_job(&store, Chaos);
        emptied(&store, secs(120)).await;
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
        results.push(result(&store).await.unwrap());
    }
    assert_eq!(results[0], results[1]);
}

/// A job with a state that its types do not bring back.
#[derive(Debug, Default)]
struct Forgetful {
    second_step: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rounds {
    rounds: Vec<Round>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Round {
    #[serde(serialize_with = "as_text")]
    loss: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn as_text<S: serde::Serializer>(loss: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(loss)
}

#[async_trait]
impl Job for Forgetful {
    const KIND: &'static str = "forgetful";
    type Args = ();
    type Checkpoint = Rounds;
    type Output = ();

    fn begin(&self, (): &()) -> Rounds {
        Rounds { rounds: Vec::new() }
    }

    async fn step(&self, _: &JobContext, (): &(), mut at: Rounds) -> Result<Step<Rounds, ()>, JobError> {
        tokio::time::sleep(secs(1)).await;
        self.second_step.fetch_or(!at.rounds.is_empty(), Relaxed);
        at.rounds.push(Round { loss: 0.5 });
        Ok(if at.rounds.len() < 90 { Step::Continue(at) } else { Step::Done(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_that_cannot_be_resumed_fails_its_job_after_the_first_step() {
    let (store, job) = (memory::store(), Forgetful::default());
    let second_step = Arc::clone(&job.second_step);
    enqueue_j(&store, Forgetful::KIND).await;
    let _worker = start_job(&store, job);
    emptied(&store, secs(10)).await;
    let reasons = poisoned(&store).await;
    assert!(reasons[0].contains("rounds[0].loss: a text is stored"), "{reasons:?}");
    assert!(!second_step.load(Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_try_whether_a_state_can_be_resumed() {
    let (store, job) = (memory::store(), Forgetful::default());
    enqueue_j(&store, Forgetful::KIND).await;
    let worker = start_job(&store, job);
    tokio::time::sleep(ms(500)).await;
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.released_saved, report.finished), (1, 0), "{report:?}");
}

#[derive(Debug)]
struct Diverges;

#[async_trait]
impl Job for Diverges {
    const KIND: &'static str = "diverges";
    type Args = ();
    type Checkpoint = ();
    type Output = Vec<Orbit>;

    fn begin(&self, (): &()) {}

    async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), Vec<Orbit>>, JobError> {
        Ok(Step::Done(vec![Orbit { x: 1.0, steps: 1, best_loss: f64::INFINITY, worst: None }]))
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_without_a_json_form_fails_its_job_with_the_path() {
    let store = memory::store();
    enqueue_j(&store, Diverges::KIND).await;
    let _worker = start_job(&store, Diverges);
    emptied(&store, secs(10)).await;
    let reasons = poisoned(&store).await;
    assert!(
        reasons[0].contains("the result can't be stored: [0].best_loss: NaN and infinite"),
        "{reasons:?}"
    );
    assert_eq!(result(&store).await, None);
}

/// A job with a large state that consists of few different numbers.
#[derive(Debug)]
struct Sparse;

#[async_trait]
impl Job for Sparse {
    const KIND: &'static str = "sparse";
    type Args = ();
    type Checkpoint = Vec<f64>;
    type Output = f64;

    fn begin(&self, (): &()) -> Vec<f64> {
        vec![0.1; 30_000]
    }

    async fn step(&self, _: &JobContext, (): &(), mut at: Vec<f64>) -> Result<Step<Vec<f64>, f64>, JobError> {
        tokio::time::sleep(secs(1)).await;
        let number = at.iter().position(|number| number.to_bits() == 0.1_f64.to_bits()).unwrap();
        at[number] = f64::sqrt(f64::from(u32::try_from(number).unwrap()));
        Ok(if number < 90 { Step::Continue(at) } else { Step::Done(at[..90].iter().sum()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_state_is_compressed_where_storing_takes_long_and_comes_back_bit_for_bit() {
    let mut results = Vec::new();
    for slow_ms in [0, 300] {
        let (store, faults) = Faults::wrap(memory::store());
        if slow_ms > 0 {
            faults.every_call(Op::Save, Fault::Delay(ms(slow_ms)));
        }
        let id = enqueue_j(&store, Sparse::KIND).await;
        for _ in 0..2 {
            let worker = start_job(&store, Sparse);
            tokio::time::sleep(secs(25)).await;
            worker.evict(secs(30)).await;
            worker.kill().await;
            let newest = record(&store, &id).await.unwrap().checkpoints.remove(0);
            assert_eq!(newest.plain_bytes.is_some(), slow_ms > 0, "{newest:?}");
            assert_eq!(newest.bytes < 20_000, slow_ms > 0, "{} bytes", newest.bytes);
        }
        let _last = start_job(&store, Sparse);
        emptied(&store, secs(300)).await;
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
        results.push(result(&store).await.unwrap());
    }
    assert_eq!(results[0], results[1]);
}
