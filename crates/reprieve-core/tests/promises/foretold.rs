//! Events that Azure foretells: a job that would not end in time begins on a machine that lasts longer.

use reprieve_core::memory;
use reprieve_core::ports::Store;
use reprieve_core::{Initiator, Notice, NoticeKind};
use tokio::time::{Instant, sleep};

use crate::support::*;

fn event(vm: &str, kind: NoticeKind, in_s: u64) -> Notice {
    let notice = Notice::now("event", kind).at(Instant::now() + secs(in_s)).of([vm], vm);
    Notice { initiator: Initiator::Platform, ..notice }
}

/// A worker for which an event is announced, which knows that jobs take 100 s.
async fn noticed(store: &Store, job: &Steps, kind: NoticeKind, in_s: u64) -> Running {
    let worker = start(store, job);
    enqueue(store, &[Plan::new(100, 1_000)]).await;
    emptied(store, secs(150)).await;
    worker.notices.notice(event("vm_0", kind, in_s));
    worker
}

#[tokio::test(start_paused = true)]
async fn a_job_that_would_not_end_in_time_begins_on_a_machine_without_an_event() {
    for (kind, in_s) in [
        (NoticeKind::Reboot, 90),
        (NoticeKind::Redeploy, 90),
        (NoticeKind::Other("OsUpgrade".into()), 90),
        (NoticeKind::Rebalance, 60),
    ] {
        let (store, job) = (memory::store(), Steps::default());
        let worker = noticed(&store, &job, kind.clone(), in_s).await;
        let _other = start(&store, &job);
        sleep(secs(15)).await;
        let before = worker.ended("completed");
        let jobs = enqueue(&store, &[Plan::new(100, 1_000); 4]).await;
        emptied(&store, secs(400)).await;
        assert_eq!((worker.ended("completed"), job.trace.redone()), (before, 0), "{kind:?}");
        assert!(jobs.iter().all(|it| job.trace.steps(it).len() == 100), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_another_machine_it_begins_here_and_goes_on_elsewhere_later() {
    for (kind, in_s) in [(NoticeKind::Reboot, 120), (NoticeKind::Rebalance, 60)] {
        let (store, job) = (memory::store(), Steps::default());
        let worker = noticed(&store, &job, kind.clone(), in_s).await;
        sleep(secs(15)).await;
        let jobs = enqueue(&store, &[Plan::new(100, 1_000); 4]).await;
        sleep(secs(30)).await;
        assert!(jobs.iter().all(|it| job.trace.steps(it).len() > 20), "{kind:?}: it does not wait");
        assert_eq!(worker.ended("deferred"), 0);
        if kind == NoticeKind::Reboot {
            sleep(secs(60)).await;
            let _other = start(&store, &job);
        }
        emptied(&store, secs(200)).await;
        assert_eq!(job.trace.redone(), 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_end_in_time_begin_here_and_an_event_for_all_machines_starves_none() {
    let (store, job) = (memory::store(), Steps::default());
    // Seven days ahead, as for a host that is predicted to fail.
    let worker = noticed(&store, &job, NoticeKind::Redeploy, 7 * 86_400).await;
    let other = start(&store, &job);
    sleep(secs(15)).await;
    enqueue(&store, &[Plan::new(100, 1_000); 16]).await;
    sleep(secs(5)).await;
    assert_eq!(leased(&store).await, 8, "both work");
    emptied(&store, secs(400)).await;
    for (worker, vm) in [(&worker, "vm_0"), (&other, "vm_1")] {
        worker.notices.notice(event(vm, NoticeKind::Reboot, 90));
    }
    sleep(secs(15)).await;
    enqueue(&store, &[Plan::new(100, 1_000); 2]).await;
    sleep(secs(10)).await;
    assert_eq!((leased(&store).await, worker.ended("deferred") + other.ended("deferred")), (2, 0));
}
