//! Promise 7: bad input gets a clear reason and is kept, byte for byte.

use reprieve_core::memory;
use reprieve_core::ports::NewMessage;
use reprieve_core::record::Status;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_used_is_kept_with_its_body_and_the_reason() {
    let cases: [(Vec<u8>, &str); 4] = [
        (b"\xff\xfe not text \0".to_vec(), "neither JSON nor base64"),
        (b"{\"half\":".to_vec(), "neither JSON nor base64"),
        (b"{\"a\":1}".to_vec(), "no default kind"),
        (vec![b' '; reprieve_core::envelope::BODY_BYTES_MAX + 1], "bytes, and at most"),
    ];
    for (body, reason) in cases {
        let store = memory::store();
        store.queue.send(vec![NewMessage { body: body.clone(), delay: secs(0) }]).await.unwrap();
        let worker = start(&store, &Steps::default());
        emptied(&store, secs(15)).await;
        let letters = store.queue.dead_letters(2).await.unwrap();
        assert_eq!(letters.len(), 1);
        let reason_given = letters[0].reason.clone().unwrap();
        assert!(reason_given.contains(reason), "{reason_given:?} does not contain {reason:?}");
        assert!(letters[0].body == body, "the body is kept");
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn long_arguments_travel_by_a_blob_that_is_removed_with_the_job() {
    use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};

    struct Length;

    #[async_trait::async_trait]
    impl Job for Length {
        const KIND: &'static str = "length";
        type Args = String;
        type Checkpoint = ();
        type Output = usize;
        fn begin(&self, _: &String) {}
        async fn step(&self, _: &JobContext, text: &String, (): ()) -> Result<Step<(), usize>, JobError> {
            Ok(Step::Done(text.len()))
        }
    }

    let store = memory::store();
    let long = "x".repeat(1_000_000);
    let ids = Producer::new(store.clone()).enqueue(vec![NewJob::of::<Length>(&long).unwrap()]).await.unwrap();
    assert_eq!(store.blobs.list("args/").await.unwrap().len(), 1);
    let worker = reprieve_core::worker::Worker::builder(store.clone()).job(Length).build().unwrap();
    let (stopper, stopping) = reprieve_core::worker::stopping();
    let running = tokio::spawn(worker.run(stopping));
    emptied(&store, secs(15)).await;
    stopper.stop();
    assert_eq!(running.await.unwrap().completed, 1);
    let result = reprieve_core::BlobName::parse(format!("results/{}.json", ids[0])).unwrap();
    assert_eq!(store.blobs.get(&result).await.unwrap(), Some(b"1000000".to_vec()));
    assert_eq!(store.blobs.list("args/").await.unwrap(), []);
    let mark = record(&store, &ids[0]).await.expect("a second message must find that the job is done");
    assert!(mark.status == Status::Done && mark.expires_unix_ms.is_some(), "{mark:?}");
}

#[test]
fn a_worker_that_cannot_keep_its_promises_is_refused_with_every_fault_at_once() {
    use reprieve_core::worker::{Settings, Worker};

    let short = Settings { lease: ms(10), concurrency: 0, ..settings() };
    let refused = Worker::builder(memory::store()).settings(short).build().unwrap_err().to_string();
    for fault in ["lease is 10ms", "concurrency is 0", "knows no job", "no Tokio runtime"] {
        assert!(refused.contains(fault), "{fault:?} is not in {refused:?}");
    }
}
