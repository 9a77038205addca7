//! Workers on several queues: nothing is lost, a drain releases all messages, and one queue's
//! faults do not affect the others.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, MemoryQueue, Op};
use reprieve_core::ports::{Queue, Store};
use reprieve_core::worker::Settings;
use reprieve_core::{BlobName, ErrorKind, QueueName, Shards};
use tokio::time::Instant;

use crate::support::*;

/// A store with a queue of `shards`, each with its own faults. All workers share the backends.
fn sharded(shards: usize) -> (Vec<Arc<dyn Queue>>, Vec<Faults>) {
    let wrap = |at: usize| {
        let queue = Arc::new(MemoryQueue::named(&format!("work-{at}")));
        Faults::wrap(Store { queue, ..memory::store() })
    };
    let (stores, faults): (Vec<Store>, Vec<Faults>) = (0..shards).map(wrap).unzip();
    (stores.into_iter().map(|store| store.queue).collect(), faults)
}

/// Opens the store for one more process.
fn joined(store: &Store, queues: &[Arc<dyn Queue>]) -> Store {
    let name = |at| QueueName::parse(format!("work-{at}")).unwrap();
    let named = queues.iter().enumerate().map(|(at, queue)| (name(at), Arc::clone(queue))).collect();
    Store { queue: Arc::new(Shards::new(named).unwrap()), ..store.clone() }
}

#[tokio::test(start_paused = true)]
async fn workers_killed_and_evicted_at_any_instant_lose_nothing_of_eight_shards() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (store, job) = (memory::store(), Steps::default());
        let (queues, _) = sharded(8);
        let plans: Vec<_> =
            (0..100).map(|_| Plan::new(rng.random_range(1..20), rng.random_range(1..900))).collect();
        let ids = enqueue(&joined(&store, &queues), &plans).await;
        for round in 0..9 {
            let worker = start(&joined(&store, &queues), &job);
            tokio::time::sleep(ms(rng.random_range(0..20_000))).await;
            if round % 3 != 0 {
                worker.evict(ms(rng.random_range(0..12_000))).await;
            }
            worker.kill().await;
        }
        let all = joined(&store, &queues);
        let last = start(&all, &job);
        emptied(&all, secs(3600)).await;
        last.stop().await;
        assert_eq!(poisoned(&all).await, Vec::<String>::new());
        for (id, plan) in ids.iter().zip(&plans) {
            let result = BlobName::parse(format!("results/{id}.json")).unwrap();
            assert_eq!(store.blobs.get(&result).await.unwrap(), Some(plan.steps.to_string().into_bytes()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_releases_the_messages_of_every_shard() {
    let (store, job) = (memory::store(), Steps::default());
    let (queues, _) = sharded(4);
    let all = joined(&store, &queues);
    for _ in 0..4 {
        enqueue(&all, &[Plan::new(1000, 500); 32]).await;
    }
    let worker = start(&all, &job);
    tokio::time::sleep(secs(5)).await;
    assert!(leased(&all).await >= 4);
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.abandoned, leased(&all).await, ready(&all).await), (0, 0, 128));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_does_not_answer_does_not_keep_the_others_messages_waiting() {
    for fault in [Fault::Hang, Fault::Fail(ErrorKind::Unavailable), Fault::Fail(ErrorKind::NotFound)] {
        let (store, job) = (memory::store(), Steps::default());
        let (queues, faults) = sharded(4);
        faults[2].every_call(Op::Receive, fault);
        faults[2].every_call(Op::Recover, Fault::Fail(ErrorKind::Unavailable));
        let all = joined(&store, &queues);
        enqueue(&all, &[Plan::new(2, 50); 128]).await;
        let worker = start(&all, &job);
        within(secs(60), "all but one shard's jobs", async || total(&all).await == 32).await;
        faults[2].clear_all();
        emptied(&all, secs(120)).await;
        assert_eq!(worker.stop().await.completed, 128);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_on_many_shards_pays_for_a_third_of_them() {
    let (store, job) = (memory::store(), Steps::default());
    let (queues, faults) = sharded(12);
    let _worker = start(&joined(&store, &queues), &job);
    tokio::time::sleep(secs(60)).await;
    let calls = || faults.iter().map(|faults| faults.calls(Op::Receive)).sum::<u64>();
    let before = calls();
    tokio::time::sleep(secs(600)).await;
    let looks = calls() - before;
    assert!((48 * 4..=80 * 4).contains(&looks), "{looks} looks in ten minutes");
}

/// A shard that does not answer blocks no receive from the others.
#[tokio::test(start_paused = true)]
async fn in_a_drain_a_dead_shard_does_not_keep_the_healthy_ones_messages() {
    for fault in [Fault::Hang, Fault::Fail(ErrorKind::Unavailable)] {
        let (store, job) = (memory::store(), Steps::default());
        let (queues, faults) = sharded(2);
        let all = joined(&store, &queues);
        enqueue(&all, &[Plan::new(1_000, 100); 128]).await;
        let wide = Settings { concurrency: 128, ..settings() };
        let worker = start_with(&all, &job, wide, ManualNotices::answered());
        within(secs(30), "all in flight", async || leased(&all).await == 128).await;
        faults[0].everything(fault);
        worker.notices.notice(preempt("evicted").at(Instant::now() + secs(30)));
        tokio::time::sleep(secs(1)).await;
        assert_eq!(
            queues[1].depth().await.unwrap().leased,
            Some(0),
            "{fault:?}: the healthy one within a second"
        );
        faults[0].clear_all();
        let report = worker.drained().await;
        assert_eq!((report.abandoned, leased(&all).await), (0, 0), "{fault:?}: {report:?}");
    }
}
