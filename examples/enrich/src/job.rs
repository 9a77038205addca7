//! The jobs: `enrich` has a catalogue priced, `price` asks for the price of one item, and `publish` tells
//! the service the sum.

use std::time::Duration;

use reprieve::worker::{Limits, WorkerBuilder};
use reprieve::{Error, Job, JobContext, JobEnd, JobError, JobId, NewJob, Step, async_trait};
use serde::{Deserialize, Serialize};

use crate::prices::Prices;

/// How many jobs a step enqueues. A step that is cut off enqueues the same ones again.
const BATCH: u32 = 500;

/// How long `enrich` waits before it looks again. Meanwhile it has no slot.
const AGAIN: Duration = Duration::from_secs(5);

/// The items of a catalogue are numbered from 0.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Catalogue {
    name: String,
    items: u32,
}

/// The sum of a catalogue's prices.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Total {
    pub(crate) catalogue: String,
    pub(crate) sum: u64,
    /// The items without a price. Their jobs are in the poison queue.
    pub(crate) failed: Vec<u32>,
}

/// What an `enrich` job does next.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Next {
    /// Enqueue a job for each item from this one on.
    Price(u32),
    AddUp,
    Publish(Total),
}

pub(crate) struct Enrich;

#[async_trait]
impl Job for Enrich {
    const KIND: &'static str = "enrich";
    type Args = Catalogue;
    type Checkpoint = Next;
    type Output = Total;

    fn begin(&self, _: &Catalogue) -> Next {
        Next::Price(0)
    }

    async fn step(
        &self,
        cx: &JobContext,
        catalogue: &Catalogue,
        next: Next,
    ) -> Result<Step<Next, Total>, JobError> {
        // Ids that can be computed again need no place in the checkpoint.
        let id = |item: u32| JobId::parse(format!("{}-{item}", cx.job()));
        match next {
            Next::Price(from) => {
                let to = catalogue.items.min(from + BATCH);
                let jobs = (from..to).map(|item| Ok(NewJob::of::<Price>(&item)?.with_id(id(item)?)));
                cx.enqueue(jobs.collect::<Result<_, Error>>()?).await?;
                Ok(if to < catalogue.items {
                    Step::Continue(Next::Price(to))
                } else {
                    Step::Wait(Next::AddUp, AGAIN)
                })
            }
            Next::AddUp => {
                let ids = (0..catalogue.items).map(id).collect::<Result<Vec<_>, _>>()?;
                let ends = cx.results::<u64>(&ids).await?;
                let done = ends.iter().flatten().count();
                cx.progress(done as u64, ends.len() as u64);
                if done < ends.len() {
                    return Ok(Step::Wait(Next::AddUp, AGAIN));
                }
                let mut total = Total { catalogue: catalogue.name.clone(), sum: 0, failed: Vec::new() };
                for (item, end) in (0..).zip(ends) {
                    match end {
                        Some(JobEnd::Done(price)) => total.sum += price,
                        _ => total.failed.push(item),
                    }
                }
                Ok(Step::Continue(Next::Publish(total)))
            }
            Next::Publish(total) => {
                let job =
                    NewJob::of::<Publish>(&total)?.with_id(JobId::parse(format!("{}-publish", cx.job()))?);
                let ids = cx.enqueue(vec![job]).await?;
                match cx.results::<()>(&ids).await?.pop().flatten() {
                    None => Ok(Step::Wait(Next::Publish(total), AGAIN)),
                    Some(JobEnd::Done(())) => Ok(Step::Done(total)),
                    Some(end) => Err(JobError::fatal(format!("the sum is not published: {end:?}"))),
                }
            }
        }
    }
}

pub(crate) struct Price;

#[async_trait]
impl Job for Price {
    const KIND: &'static str = "price";
    type Args = u32;
    type Checkpoint = ();
    type Output = u64;

    fn begin(&self, _: &u32) {}

    async fn step(&self, cx: &JobContext, item: &u32, (): ()) -> Result<Step<(), u64>, JobError> {
        Ok(Step::Done(cx.shared::<Prices>().price(*item).await?))
    }
}

pub(crate) struct Publish;

#[async_trait]
impl Job for Publish {
    const KIND: &'static str = "publish";
    type Args = Total;
    type Checkpoint = ();
    type Output = ();

    fn begin(&self, _: &Total) {}

    async fn step(&self, cx: &JobContext, total: &Total, (): ()) -> Result<Step<(), ()>, JobError> {
        Ok(Step::Done(cx.shared::<Prices>().publish(&total.catalogue, total.sum).await?))
    }
}

/// Adds the jobs to a worker.
pub(crate) fn add(worker: WorkerBuilder) -> WorkerBuilder {
    limit(worker.job(Enrich).job(Price).job(Publish))
}

fn limit(worker: WorkerBuilder) -> WorkerBuilder {
    // Of ten tries at a service that fails one time in five, all fail for one item in ten million.
    let patient = Limits { attempts: 10, backoff_max: Duration::from_secs(10), ..Limits::default() };
    // The service takes one sum at a time.
    let alone = Limits { in_fleet: Some(1), ..Limits::default() };
    worker.limits::<Price>(patient).limits::<Publish>(alone)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::{Arc, mpsc};
    use std::thread;

    use reprieve::testing::Harness;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;
    use crate::service::{Service, price_of};

    /// Starts the service on a thread of its own.
    fn serve(service: Arc<Service>) -> SocketAddr {
        let (send, address) = mpsc::channel();
        thread::spawn(move || {
            let served = reprieve::block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                send.send(listener.local_addr()?)?;
                service.serve(listener).await?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            });
            served.expect("a service");
        });
        address.recv().expect("a service that listens")
    }

    #[test]
    fn the_sum_is_the_same_however_often_machines_are_lost() {
        let service = Arc::new(Service::new(u32::MAX));
        let url = format!("http://{}", serve(Arc::clone(&service)));
        let items = 3;
        let report = Harness::new(Enrich)
            .args(&json!({"name": "spring", "items": items}))
            .also(Price)
            .also(Publish)
            .worker(|worker| {
                let url = url.clone();
                limit(worker.share(move |_| {
                    let prices = Prices::connect(&url, 1_000);
                    async { prices }
                }))
            })
            .observe(|world| {
                let total = Total::deserialize(world.result().expect("a result")).expect("a total");
                assert_eq!(total.sum, (0..items).filter_map(price_of).sum::<u64>());
                service.take_totals()
            })
            .points(2)
            .check();
        assert!(report.steps() >= 4, "{report}");
    }
}
