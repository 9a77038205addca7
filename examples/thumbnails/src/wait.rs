//! Waits for jobs and prints their results.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context;
use reprieve::ports::Store;
use reprieve::{BlobName, JobId};
use serde::Deserialize;

use crate::job::BatchResult;
use crate::terminal::{Bar, counted, note, result};

/// How often the store is polled. A person watches the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The number of jobs, and of dead letters, to check in each poll. In a cloud store each takes a
/// request.
const CHECKS_PER_POLL: usize = 32;

/// The maximum age of a worker's report. Workers publish one every ten seconds or more often.
const REPORT_AGE_MAX: Duration = Duration::from_secs(30);

/// The results of all jobs.
#[derive(Debug, Default)]
struct Summary {
    /// The number of thumbnails made.
    made: usize,
    /// The failed pictures and jobs, each with a reason.
    failed: Vec<(String, String)>,
}

/// Waits until all `jobs` have ended, and prints a summary. `pictures` is the number of their
/// pictures. Returns whether every picture has a thumbnail.
pub(crate) async fn wait(store: &Store, jobs: Vec<JobId>, pictures: usize) -> anyhow::Result<bool> {
    let summary = watch(store, jobs, pictures).await?;
    for line in summary.lines() {
        result(&line);
    }
    note("the thumbnails are in the store, under thumbnails/");
    Ok(summary.failed.is_empty())
}

async fn watch(store: &Store, jobs: Vec<JobId>, pictures: usize) -> anyhow::Result<Summary> {
    let mut open = VecDeque::from(jobs);
    let mut summary = Summary::default();
    let mut bar = Bar::new("making", pictures);
    loop {
        // The queue is counted first: when it is empty, a job without a result will never have one.
        let queued = store.queue.depth().await?.total;
        let checks = if queued == 0 { open.len() } else { CHECKS_PER_POLL.min(open.len()) };
        collect_results(store, &mut open, checks, &mut summary).await?;
        collect_dead_letters(store, &mut open, &mut summary).await?;
        if queued == 0 {
            summary.add_missing(open.drain(..));
        }
        let (running, remark) = running(store, &open).await?;
        bar.set(summary.made + summary.failed.len() + running, &remark);
        if open.is_empty() {
            bar.clear();
            return Ok(summary);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Moves finished jobs from `open` to the summary. Checks the first `checks` jobs, and moves those
/// without a result to the back.
async fn collect_results(
    store: &Store,
    open: &mut VecDeque<JobId>,
    checks: usize,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    for _ in 0..checks {
        let Some(job) = open.pop_front() else { break };
        let name = BlobName::parse(format!("results/{job}.json"))?;
        match store.blobs.get(&name).await? {
            Some(json) => {
                let batch: BatchResult =
                    serde_json::from_slice(&json).with_context(|| format!("failed to read {name}"))?;
                summary.made += batch.done;
                summary.failed.extend(batch.failed.into_iter().map(|one| (one.name, one.reason)));
            }
            None => open.push_back(job),
        }
    }
    Ok(())
}

/// Moves dead-lettered jobs from `open` to the summary. Reads only the first dead letters; other
/// dead-lettered jobs count as failed when the queue is empty.
async fn collect_dead_letters(
    store: &Store,
    open: &mut VecDeque<JobId>,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Body {
        id: String,
    }
    for letter in store.queue.dead_letters(CHECKS_PER_POLL).await? {
        let Ok(Body { id }) = serde_json::from_slice(&letter.body) else { continue };
        if let Some(index) = open.iter().position(|job| job.as_str() == id) {
            open.remove(index);
            let reason = letter.reason.unwrap_or_else(|| "unknown reason".to_owned());
            summary.failed.push((format!("job {id}"), format!("dead-lettered: {reason}")));
        }
    }
    Ok(())
}

/// Returns the number of pictures that running jobs have processed, and a remark on the workers.
async fn running(store: &Store, open: &VecDeque<JobId>) -> anyhow::Result<(usize, String)> {
    let reports = store.roster.reports(REPORT_AGE_MAX).await?;
    let in_flight = reports.iter().flat_map(|report| &report.in_flight);
    let done: u64 =
        in_flight.filter(|running| open.contains(&running.job)).map(|running| running.progress.done).sum();
    let remark = match reports.len() {
        0 => "no worker is running; start one with `thumbnails work`".to_owned(),
        workers => counted(workers, "worker"),
    };
    Ok((usize::try_from(done)?, remark))
}

impl Summary {
    /// Adds jobs that are in no queue and have no result.
    fn add_missing(&mut self, jobs: impl Iterator<Item = JobId>) {
        let reason = "no message and no result in the store";
        self.failed.extend(jobs.map(|job| (format!("job {job}"), reason.to_owned())));
    }

    fn lines(&self) -> Vec<String> {
        let first = format!("{} made, {} failed", self.made, self.failed.len());
        let failed = self.failed.iter().map(|(name, reason)| format!("{name}: {reason}"));
        std::iter::once(first).chain(failed).collect()
    }
}

#[cfg(test)]
mod tests {
    use reprieve::ports::DeadLetter;
    use reprieve::{NewJob, Producer, memory};

    use super::*;
    use crate::job::{Batch, Failure, Thumbnails};

    async fn put_result(store: &Store, job: &JobId, result: &BatchResult) {
        let name = BlobName::parse(format!("results/{job}.json")).unwrap();
        store.blobs.put(&name, serde_json::to_vec(result).unwrap(), None).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_summary_has_every_job_however_it_ended() {
        let store = memory::store();
        let batch = || NewJob::of::<Thumbnails>(&Batch { size: 9, pictures: vec!["a".into()] }).unwrap();
        let producer = Producer::new(store.clone());
        let jobs = producer.enqueue(vec![batch(), batch(), batch()]).await.unwrap();
        let failed = vec![Failure { name: "b.png".into(), reason: "half of it is missing".into() }];
        put_result(&store, &jobs[0], &BatchResult { done: 4, failed }).await;
        let worker = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            let received = store.queue.receive(3, Duration::from_secs(60)).await.unwrap();
            let letter = DeadLetter { reason: "no good".into() };
            store.queue.complete(&received[0].receipt).await.unwrap();
            store.queue.dead_letter(&received[1].receipt, &received[1].body, &letter).await.unwrap();
            store.queue.complete(&received[2].receipt).await.unwrap();
        };
        let (summary, ()) = tokio::join!(watch(&store, jobs.clone(), 6), worker);
        let lines = [
            "4 made, 3 failed".to_owned(),
            "b.png: half of it is missing".to_owned(),
            format!("job {}: dead-lettered: no good", jobs[1]),
            format!("job {}: no message and no result in the store", jobs[2]),
        ];
        assert_eq!(summary.unwrap().lines(), lines);
    }
}
