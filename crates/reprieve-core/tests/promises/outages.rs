//! A store that does not answer for an hour: the worker waits, and nothing ends because of it.

use reprieve_core::ErrorKind;
use reprieve_core::memory::{self, Fault, Faults};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_worker_outlives_an_outage_of_its_store_for_an_hour_and_charges_it_to_no_job() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Hang] {
        let healthy = memory::store();
        let (store, faults) = Faults::wrap(healthy.clone());
        let job = Steps::default();
        let worker = start(&store, &job);
        let jobs = enqueue(&healthy, &[Plan::new(400, 1_000), Plan::new(2, 1_000)]).await;
        within(secs(30), "some steps", async || job.trace.steps(&jobs[0]).len() > 10).await;
        faults.everything(fault);
        for _ in 0..60 {
            tokio::time::sleep(secs(60)).await;
            assert!(!worker.handle.is_finished(), "{fault:?}");
            assert!(worker.monitor.last_beat().elapsed() < secs(2), "{fault:?}: the loop goes on");
        }
        faults.clear_all();
        emptied(&healthy, secs(900)).await;
        assert_eq!(worker.ended("completed"), 2, "{fault:?}");
        assert_eq!((worker.ended("retried"), worker.ended("dead_lettered")), (0, 0), "{fault:?}");
        // It works until its lease ends, and that is not saved.
        assert!(job.trace.redone() <= 65, "{fault:?}: {} steps", job.trace.redone());
        worker.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_while_its_store_does_not_answer_waits_for_it() {
    let healthy = memory::store();
    let (store, faults) = Faults::wrap(healthy.clone());
    faults.everything(Fault::Fail(ErrorKind::Unavailable));
    let job = Steps::default();
    let worker = start(&store, &job);
    enqueue(&healthy, &[Plan::new(2, 1_000)]).await;
    tokio::time::sleep(secs(3_600)).await;
    assert!(!worker.handle.is_finished());
    faults.clear_all();
    emptied(&healthy, secs(60)).await;
    assert_eq!(worker.ended("completed"), 1);
}
