//! Steps that are called by hand.

use std::sync::Arc;
use std::time::Duration;

use reprieve_core::dependency::Dependency;
use reprieve_core::{ErrorKind, Job, JobContext, JobError, Step};
use tokio::time::sleep;

use crate::support::Stepped;

/// Copies the bytes of a blob one by one, in one long step.
struct Copy;

#[async_trait::async_trait]
impl Job for Copy {
    const KIND: &'static str = "copy";
    type Args = String;
    type Checkpoint = Vec<u8>;
    type Output = ();

    fn begin(&self, _: &String) -> Vec<u8> {
        Vec::new()
    }

    async fn step(&self, cx: &JobContext, name: &String, mut at: Vec<u8>) -> Stepped<Vec<u8>, ()> {
        let bytes = cx.input(name).await?;
        while let Some(byte) = bytes.get(at.len()) {
            tokio::select! {
                biased;
                () = cx.interrupted() => return Ok(Step::Continue(at)),
                () = sleep(Duration::from_secs(1)) => at.push(*byte),
            }
            cx.progress(at.len() as u64, bytes.len() as u64);
            if cx.is_checkpoint_due() {
                cx.save::<Self>(&at).await?;
            }
        }
        cx.put_output("copy", at).await?;
        Ok(Step::Done(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_reads_inputs_and_its_outputs_progress_and_states_are_seen() {
    let cx = JobContext::for_test::<Copy>();
    let name = "inputs/a".to_owned();
    let missing = Copy.step(&cx, &name, Vec::new()).await.unwrap_err();
    assert!(missing.to_string().contains("no blob named inputs/a"), "{missing}");
    cx.put_input("inputs/a", [1, 2, 3]).await.unwrap();
    cx.make_save_due();
    assert_eq!(Copy.step(&cx, &name, Vec::new()).await.unwrap(), Step::Done(()));
    assert_eq!(cx.output("copy").await.unwrap().unwrap(), [1, 2, 3]);
    assert_eq!(cx.output("other").await.unwrap(), None);
    assert_eq!(cx.reported(), (3, 3));
    assert_eq!(cx.saved::<Copy>().unwrap(), [vec![1], vec![1, 2], vec![1, 2, 3]]);
    assert_eq!((cx.delivery(), cx.steps()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_step_can_be_asked_to_yield() {
    let cx = JobContext::for_test::<Copy>();
    cx.put_input("a", [1, 2, 3]).await.unwrap();
    let interrupt = async {
        sleep(Duration::from_millis(1_500)).await;
        cx.interrupt(Duration::from_secs(10));
    };
    let name = "a".to_owned();
    let (step, ()) = tokio::join!(Copy.step(&cx, &name, Vec::new()), interrupt);
    assert_eq!(step.unwrap(), Step::Continue(vec![1]));
    assert_eq!(cx.time_left(), Some(Duration::from_secs(10)));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_lost_its_job_writes_nothing() {
    let cx = JobContext::for_test::<Copy>();
    cx.put_input("a", [1]).await.unwrap();
    cx.lose();
    let name = "a".to_owned();
    let refused: JobError = Copy.step(&cx, &name, Vec::new()).await.unwrap_err();
    assert!(refused.to_string().contains("lost job"), "{refused}");
    assert_eq!(cx.output("copy").await.unwrap(), None);
    let error = cx.put_output("copy", Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded);
}

/// A service that no call reaches.
#[derive(Debug)]
struct Gone;

#[async_trait::async_trait]
impl Dependency for Gone {
    async fn probe(&self) -> Result<(), String> {
        Err("nobody answers".to_owned())
    }
}

/// Asks the cache, or says that it was not asked.
struct Ask;

#[async_trait::async_trait]
impl Job for Ask {
    const KIND: &'static str = "ask";
    type Args = ();
    type Checkpoint = ();
    type Output = bool;

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Stepped<(), bool> {
        Ok(Step::Done(!cx.dependency("cache").is_open()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_sees_a_dependency_that_goes_away() {
    let mut cx = JobContext::for_test::<Ask>();
    cx.add_dependency("cache", Arc::new(Gone));
    assert_eq!(Ask.step(&cx, &(), ()).await.unwrap(), Step::Done(true), "not looked at yet");
    cx.dependency("cache").opened().await;
    assert_eq!(Ask.step(&cx, &(), ()).await.unwrap(), Step::Done(false));
}

#[tokio::test]
#[should_panic(expected = "the context has a dependency \"cache\" already")]
async fn a_second_dependency_of_a_name_is_a_fault_of_the_test() {
    let mut cx = JobContext::for_test::<Ask>();
    cx.add_dependency("cache", Arc::new(Gone));
    cx.add_dependency("cache", Arc::new(Gone));
}
