//! The job: `quote` prices the items of an order.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use reprieve::worker::{Depends, WorkerBuilder};
use reprieve::{Job, JobContext, JobError, Step, async_trait};
use serde::{Deserialize, Serialize};

use crate::cache;
use crate::store::{Store, Total, product_of};

/// How many items a step prices.
const BATCH: u32 = 25;

/// The items of an order are numbered from 0.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    database: PathBuf,
    items: u32,
    /// How long a step works besides, for tests.
    #[serde(default)]
    work_ms: u64,
}

pub(crate) struct Quote;

#[async_trait]
impl Job for Quote {
    const KIND: &'static str = "quote";
    type Args = Order;
    /// The first item that has no price yet.
    type Checkpoint = u32;
    type Output = Total;

    fn begin(&self, _: &Order) -> u32 {
        0
    }

    async fn step(&self, cx: &JobContext, order: &Order, from: u32) -> Result<Step<u32, Total>, JobError> {
        let mut store = Store::open(&order.database).map_err(JobError::retry)?;
        if from >= order.items {
            let total = store.total(cx.job().as_str()).map_err(JobError::retry)?;
            return Ok(Step::Done(total));
        }
        let items = from..order.items.min(from + BATCH);
        let to = items.end;
        // All at once, on one connection.
        let shop = store.shop().map_err(JobError::retry)?;
        let get = |item| cache::get(cx, &shop, product_of(item));
        let cached = join_all(items.clone().map(get)).await;
        let read = store.record(cx.job().as_str(), items, &cached).map_err(JobError::retry)?;
        tracing::debug!(cached = cached.len() - read.len(), read = read.len(), "priced a batch");
        join_all(read.into_iter().map(|product| cache::put(cx, &shop, product))).await;
        tokio::time::sleep(Duration::from_millis(order.work_ms)).await;
        cx.progress(to.into(), order.items.into());
        Ok(Step::Continue(to))
    }
}

/// Adds the job to a worker.
pub(crate) fn add(worker: WorkerBuilder) -> WorkerBuilder {
    depend(worker.job(Quote))
}

/// The job goes on without the cache, and fewer of them begin then.
fn depend(worker: WorkerBuilder) -> WorkerBuilder {
    worker.depends::<Quote>(Depends::uses(["cache"]))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use reprieve::redis::Redis;
    use reprieve::testing::Harness;
    use reprieve_testkit::RedisServer;
    use serde_json::json;

    use super::*;

    /// Every run has a new database and the copies of the runs before.
    fn check(cache: &str) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("shop.db");
        let items = 5 * BATCH;
        let report = Harness::new(Quote)
            .args(&json!({"database": path, "items": items}))
            .worker(|worker| depend(worker.dependency("cache", Arc::new(Redis::open(cache).expect("a URL")))))
            .before_each_run(|| {
                // There is none before the first run.
                let _removed = std::fs::remove_file(&path);
                Store::prepare(&path).expect("a database");
            })
            .observe(|_| {
                let store = Store::open(&path).expect("a database");
                let results = store.results().expect("results");
                assert!(results.iter().all(|&(item, version, price)| {
                    price == (i64::from(product_of(item)) * 7919 + version * 104_729) % 1000
                }));
                (results, store.versions().expect("versions"))
            })
            .points(10)
            .check();
        assert!(report.steps() >= 6, "{report}");
    }

    #[test]
    fn prices_are_the_same_however_often_machines_are_lost() {
        if let Some(server) = RedisServer::start() {
            check(&server.url());
        }
    }

    #[test]
    fn prices_are_the_same_without_the_cache() {
        let nobody = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
        check(&format!("redis://{nobody}"));
    }
}
