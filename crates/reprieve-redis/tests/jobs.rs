//! Jobs of a worker that need a cache, on a real Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use reprieve_core::dependency::Dependency;
use reprieve_core::memory::{self, ManualNotices};
use reprieve_core::worker::{Depends, Limits, Worker, stopping};
use reprieve_core::{Job, JobContext, JobError, NewJob, Producer, Step};
use reprieve_redis::{Redis, cmd};
use reprieve_testkit::{RedisServer, until};

const LIMIT: Duration = Duration::from_secs(60);

/// Writes a value.
struct Writing(Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Job for Writing {
    const KIND: &'static str = "writing";
    type Args = ();
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, (): &()) {}

    async fn step(&self, cx: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
        let set = cmd("SET").arg(cx.job().as_str()).arg(1).take();
        let written = Redis::of(cx.dependency("cache")).query::<()>(&set).await;
        self.0.fetch_add(usize::from(written.is_err()), Relaxed);
        written.map_err(JobError::retry)?;
        Ok(Step::Done(()))
    }
}

/// As of a cache with little room, which takes the probe's byte, only the jobs' own calls show it.
#[tokio::test]
async fn jobs_that_need_a_cache_spend_no_attempt_on_calls_that_it_refuses_while_it_takes_the_probe() {
    let Some(server) = RedisServer::start() else { return };
    let allow = |keys: &str| {
        server.command(&["ACL", "SETUSER", "jobs", "reset", "on", ">pw", "&*", "+@all", keys]);
    };
    allow("~reprieve:probe");
    let url = format!("redis://jobs:pw@127.0.0.1:{}", server.port());
    let cache = Arc::new(Redis::open(&url).unwrap());

    let (store, refused) = (memory::store(), Arc::new(AtomicUsize::new(0)));
    let (backoff, backoff_max) = (Duration::from_millis(100), Duration::from_millis(500));
    let limits = Limits { attempts: 1, backoff, backoff_max, ..Limits::default() };
    let worker = Worker::builder(store.clone())
        .interruptions(Arc::new(ManualNotices::answered()))
        .dependency("cache", Arc::clone(&cache) as _)
        .job(Writing(Arc::clone(&refused)))
        .limits::<Writing>(limits)
        .depends::<Writing>(Depends::needs(["cache"]))
        .build()
        .unwrap();
    let (_stopper, stopping) = stopping();
    let worker = tokio::spawn(worker.run(stopping));
    Producer::new(store.clone()).enqueue(vec![NewJob::of::<Writing>(&()).unwrap(); 4]).await.unwrap();
    until("values were refused", LIMIT, async || (refused.load(Relaxed) >= 8).then_some(())).await;
    assert_eq!(cache.refuses().await, None, "a look shows nothing");
    allow("~*");
    until("all are done", LIMIT, async || (store.queue.depth().await.unwrap().total == 0).then_some(()))
        .await;
    let letters = store.queue.dead_letters(32).await.unwrap();
    assert!(letters.is_empty(), "{letters:?}");
    worker.abort();
}
