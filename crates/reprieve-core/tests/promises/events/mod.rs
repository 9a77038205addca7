//! A worker's reaction to each kind of event, from the notice to the approval.

mod advice;
mod freezes;
mod life;
mod oddities;
mod random;
mod restarts;
mod terminations;
mod together;

use std::sync::Arc;

use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::interruption::Stage;
use reprieve_core::interruption::{Approve, Policy, PredictedFailure};
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::{Ending, Store, WorkerReport};
use reprieve_core::worker::{Settings, Worker, stopping};
use reprieve_core::{
    Initiator, Job, JobContext, JobError, NewJob, Notice, NoticeId, NoticeKind, Phase, Producer, Step,
    WorkerId,
};
use tokio::time::{Instant, sleep};

use crate::support::*;

fn event(kind: NoticeKind, notice_s: u64) -> Notice {
    let notice = Notice::now("event", kind).at(Instant::now() + secs(notice_s)).of(["vm_0"], "vm_0");
    Notice { initiator: Initiator::Platform, ..notice }
}

fn started(notice: Notice) -> Notice {
    Notice { phase: Phase::Started, not_before: None, received: Instant::now(), ..notice }
}

/// Only a notice makes a job save.
fn saving_never() -> Settings {
    Settings { checkpoint_every: CheckpointEvery::Every(secs(86_400)), ..settings() }
}

fn with(policy: Policy) -> Settings {
    Settings { policy, ..saving_never() }
}

async fn approved(worker: &Running) {
    within(secs(5), "an approval", async || worker.notices.approved() == [NoticeId::new("event")]).await;
}

/// Kills `worker` and lets another one finish the only job. Returns the number of repeated steps.
async fn redone_after_a_kill(worker: Running, store: &Store, job: &Steps) -> usize {
    worker.kill().await;
    let _another = start(store, job);
    emptied(store, secs(300)).await;
    job.trace.redone()
}

/// Shows a worker of another machine in the roster, which has no event and receives nothing.
fn show_calm_worker(store: &Store) {
    let roster = Arc::clone(&store.roster);
    tokio::spawn(async move {
        loop {
            let report = WorkerReport {
                kinds: vec![Steps::KIND.to_owned()],
                vm: "calm".to_owned(),
                stage: "start".to_owned(),
                at_unix_ms: reprieve_core::clock::unix_millis(),
                ..WorkerReport::new(WorkerId::new("calm".to_owned()))
            };
            roster.publish(&report).await.unwrap();
            sleep(secs(10)).await;
        }
    });
}

async fn is_saved(store: &Store, job: &reprieve_core::JobId) -> bool {
    record(store, job).await.is_some_and(|record| !record.checkpoints.is_empty())
}

async fn worker_drained(worker: &Running, limit: std::time::Duration) -> reprieve_core::worker::DrainReport {
    within(limit, "a drain", async || worker.monitor.last_drain().is_some()).await;
    worker.monitor.last_drain().unwrap()
}

fn freeze(seconds: Option<u64>, notice_s: u64) -> Notice {
    Notice { duration: seconds.map(secs), ..event(NoticeKind::Freeze, notice_s) }
}
