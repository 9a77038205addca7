//! Waits for jobs and says what became of their pictures.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context;
use reprieve::ports::Store;
use reprieve::{BlobName, JobId};
use serde::Deserialize;

use crate::job::Made;
use crate::say::{Bar, counted, note, result};

/// How often the store is asked: a person watches.
const EVERY: Duration = Duration::from_millis(500);

/// How many results are looked for at a time, the longest unseen first; more would be a burden for a cloud store.
const LOOKS: usize = 32;

/// How old the last word of a worker may be. It speaks every ten seconds at least.
const REPORT_AGE_MAX: Duration = Duration::from_secs(30);

/// What became of all the jobs.
#[derive(Debug, Default)]
struct Summary {
    made: usize,
    /// Pictures, and jobs, that came to nothing: which, and why.
    failed: Vec<(String, String)>,
}

/// Waits until each of `jobs`, with `pictures` in all, has a result or never will, and prints what became of them. True
/// when every picture has its thumbnail.
pub(crate) async fn until_made(store: &Store, jobs: Vec<JobId>, pictures: usize) -> anyhow::Result<bool> {
    let summary = watch(store, jobs, pictures).await?;
    for line in summary.lines() {
        result(&line);
    }
    note("thumbnails are the store's blobs under thumbnails/");
    Ok(summary.failed.is_empty())
}

async fn watch(store: &Store, jobs: Vec<JobId>, pictures: usize) -> anyhow::Result<Summary> {
    let mut open = VecDeque::from(jobs);
    let mut summary = Summary::default();
    let mut bar = Bar::new("making", pictures);
    loop {
        // Counted before results are looked for: a job that was in neither place has ended without one.
        let queued = store.queue.depth().await?.total;
        let looks = if queued == 0 { open.len() } else { LOOKS.min(open.len()) };
        collect(store, &mut open, looks, &mut summary).await?;
        bury(store, &mut open, &mut summary).await?;
        if queued == 0 {
            summary.give_up(open.drain(..));
        }
        let (running, remark) = running(store, &open).await?;
        bar.set(summary.made + summary.failed.len() + running, &remark);
        if open.is_empty() {
            bar.clear();
            return Ok(summary);
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Takes the results of up to `looks` jobs that have one.
async fn collect(
    store: &Store,
    open: &mut VecDeque<JobId>,
    looks: usize,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    for _ in 0..looks {
        let Some(job) = open.pop_front() else { break };
        let name = BlobName::parse(format!("results/{job}.json"))?;
        match store.blobs.get(&name).await? {
            Some(json) => {
                let made: Made =
                    serde_json::from_slice(&json).with_context(|| format!("can't read {name}"))?;
                summary.made += made.done;
                summary.failed.extend(made.failed.into_iter().map(|one| (one.name, one.reason)));
            }
            None => open.push_back(job),
        }
    }
    Ok(())
}

/// Takes the jobs that are in the poison queue, as far as one can look into that.
async fn bury(store: &Store, open: &mut VecDeque<JobId>, summary: &mut Summary) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Buried {
        id: String,
    }
    for letter in store.queue.dead_letters(LOOKS).await? {
        let Ok(Buried { id }) = serde_json::from_slice(&letter.body) else { continue };
        if let Some(at) = open.iter().position(|job| job.as_str() == id) {
            open.remove(at);
            let reason = letter.reason.unwrap_or_else(|| "no reason was given".to_owned());
            summary.failed.push((format!("job {id}"), format!("it is in the poison queue: {reason}")));
        }
    }
    Ok(())
}

/// How many pictures the jobs that run now have done, and who runs them.
async fn running(store: &Store, open: &VecDeque<JobId>) -> anyhow::Result<(usize, String)> {
    let reports = store.roster.reports(REPORT_AGE_MAX).await?;
    let ours = reports.iter().flat_map(|report| &report.in_flight).filter(|card| open.contains(&card.job));
    let done: u64 = ours.map(|card| card.progress.done).sum();
    let remark = match reports.len() {
        0 => "no worker is running; start one with `thumbnails work`".to_owned(),
        workers => counted(workers, "worker"),
    };
    Ok((usize::try_from(done)?, remark))
}

impl Summary {
    /// Counts jobs that are in no queue any more and left no result.
    fn give_up(&mut self, jobs: impl Iterator<Item = JobId>) {
        let why = "it is no longer in the queue and left no result";
        self.failed.extend(jobs.map(|job| (format!("job {job}"), why.to_owned())));
    }

    fn lines(&self) -> Vec<String> {
        let first = format!("{} made, {} failed", self.made, self.failed.len());
        let failed = self.failed.iter().map(|(what, why)| format!("{what}: {why}"));
        std::iter::once(first).chain(failed).collect()
    }
}

#[cfg(test)]
mod tests {
    use reprieve::ports::DeadLetter;
    use reprieve::{NewJob, Producer, memory};

    use super::*;
    use crate::job::{Batch, Failure, Thumbnails};

    async fn put_result(store: &Store, job: &JobId, made: &Made) {
        let name = BlobName::parse(format!("results/{job}.json")).unwrap();
        store.blobs.put(&name, serde_json::to_vec(made).unwrap(), None).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn every_job_is_accounted_for_however_it_ends() {
        let store = memory::store();
        let batch = || NewJob::of::<Thumbnails>(&Batch { size: 9, pictures: vec!["a".into()] }).unwrap();
        let producer = Producer::new(store.clone());
        let jobs = producer.enqueue(vec![batch(), batch(), batch()]).await.unwrap();
        let failed = vec![Failure { name: "b.png".into(), reason: "half of it is missing".into() }];
        put_result(&store, &jobs[0], &Made { done: 4, failed }).await;
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
            format!("job {}: it is in the poison queue: no good", jobs[1]),
            format!("job {}: it is no longer in the queue and left no result", jobs[2]),
        ];
        assert_eq!(summary.unwrap().lines(), lines);
    }
}
