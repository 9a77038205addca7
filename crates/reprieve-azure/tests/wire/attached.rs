//! A whole worker, whose job attaches something in each of its steps.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::ManualNotices;
use reprieve_core::worker::{Settings, Worker, stopping};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use reprieve_sim::storage::{Action, Operation, Rule};
use tokio::time::{sleep, timeout};

use crate::support::{CONTAINER, Shop};

const PAYLOADS: &str = ".reprieve/payloads/";

/// The time limit of any wait, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Replaces;

#[async_trait]
impl Job for Replaces {
    const KIND: &'static str = "replaces";
    type Args = ();
    type Checkpoint = u32;
    type Output = ();

    fn begin(&self, (): &()) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, (): &(), at: u32) -> Result<Step<u32, ()>, JobError> {
        cx.attach("content").write(format!("content {at}").as_bytes()).await?;
        Ok(if at == 12 { Step::Done(()) } else { Step::Continue(at + 1) })
    }
}

#[tokio::test]
async fn nothing_remains_of_a_job_whose_record_was_written_without_an_answer() {
    let shop = Shop::open().await;
    let lost = Rule::new(Action::LoseAnswer).on(Operation::BlobPut).times(1);
    let records = format!("{CONTAINER}/.reprieve/records/");
    shop.double.add_fault(Rule { prefix: records, skip: 5, ..lost }).unwrap();
    Producer::new(shop.store.clone()).enqueue(vec![NewJob::of::<Replaces>(&()).unwrap()]).await.unwrap();
    let settings =
        Settings { checkpoint_every: CheckpointEvery::Every(Duration::ZERO), ..Settings::default() };
    let worker = Worker::builder(shop.store.clone())
        .settings(settings)
        .job(Replaces)
        .interruptions(Arc::new(ManualNotices::answered()))
        .build()
        .unwrap();
    let (stopper, stopping) = stopping();
    let running = tokio::spawn(worker.run(stopping));
    let emptied = async {
        while shop.store.queue.depth().await.unwrap().total > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, emptied).await.expect("the job ends");
    stopper.stop();
    timeout(PATIENCE, running).await.expect("the worker stops").unwrap();
    assert_eq!(shop.blobs(PAYLOADS).await, 0);
}
