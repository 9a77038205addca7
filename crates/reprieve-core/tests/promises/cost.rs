//! The number of calls of a short job without failures.

use reprieve_core::memory::{self, Faults, ManualNotices, Op};
use reprieve_core::worker::Settings;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_short_job_costs_a_share_of_a_receive_and_one_delete() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &vec![Plan::new(1, 5); 640]).await;
    let wide = Settings { concurrency: 64, ..settings() };
    let worker = start_with(&store, &job, wide, ManualNotices::answered());
    emptied(&inner, secs(60)).await;
    assert_eq!(worker.stop().await.completed, 640);
    assert_eq!(faults.calls(Op::Complete), 640);
    for op in [Op::Load, Op::Save, Op::Remove, Op::Payload, Op::Exists, Op::Delete, Op::Renew, Op::Release] {
        assert_eq!(faults.calls(op), 0, "{op:?}");
    }
    // Which jobs were cancelled.
    assert!(faults.calls(Op::Get) <= 2, "{} reads", faults.calls(Op::Get));
    // `Steps` puts one result per job; a job without a result puts none.
    assert_eq!(faults.calls(Op::Put), 640);
    let receives = faults.calls(Op::Receive);
    assert!(receives <= 64, "{receives} receives for 640 messages");
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_asks_six_times_a_minute_or_less() {
    let (store, faults) = Faults::wrap(memory::store());
    let _worker = start(&store, &Steps::default());
    tokio::time::sleep(secs(60)).await;
    let before = faults.calls(Op::Receive);
    tokio::time::sleep(secs(600)).await;
    let calls = faults.calls(Op::Receive) - before;
    assert!((48..=80).contains(&calls), "{calls} receives in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_takes_a_new_job_at_once_where_the_store_announces_it() {
    let (store, job) = (memory::store(), Steps::default());
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(300)).await;
    enqueue(&store, &[Plan::new(1, 1)]).await;
    emptied(&store, ms(100)).await;
}
