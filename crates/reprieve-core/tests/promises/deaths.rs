//! A process's death is charged to the job that is proved to cause it, and an outage to no job.

use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::Store;
use reprieve_core::record::Company;
use reprieve_core::worker::Settings;
use reprieve_core::{ErrorKind, JobId};
use tokio::time::{Instant, timeout};

use crate::support::*;

fn eight_slots() -> Settings {
    Settings { concurrency: 8, lease: secs(16), ..settings() }
}

/// Runs one worker after another until the queue is empty. A job kills each of them. Returns the
/// number of deaths.
async fn restarted_until_empty(store: &Store, job: &Steps, deaths_max: u32) -> u32 {
    for deaths in 0..=deaths_max {
        let worker = start_with(store, job, eight_slots(), ManualNotices::answered());
        let died = tokio::select! {
            () = job.has_killed() => true,
            () = emptied(store, secs(3600)) => false,
        };
        if !died {
            return deaths;
        }
        worker.kill().await;
    }
    panic!("{deaths_max} deaths were not enough to find the killer");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_worker_is_poisoned_alone_and_the_sound_ones_beside_it_finish() {
    // The job kills its worker two seconds into its first step, or at its hundredth step of 20 ms,
    // after it has moved.
    let killers =
        [Plan::new(9, 2_000).habit(Habit::KillsAt(0)), Plan::new(200, 20).habit(Habit::KillsAt(99))];
    for (killer, step_ms) in killers.into_iter().flat_map(|killer| [(killer, 500), (killer, 5_000)]) {
        let (store, job) = (memory::store(), Steps::default());
        let sound = Plan::new(u32::try_from(20_000 / step_ms).unwrap(), step_ms);
        let mut plans = vec![sound; 7];
        plans.insert(3, killer);
        let ids = enqueue(&store, &plans).await;
        let deaths = restarted_until_empty(&store, &job, 5).await;
        let reasons = poisoned(&store).await;
        assert_eq!(reasons.len(), 1, "after {deaths} deaths, with steps of {step_ms} ms: {reasons:?}");
        assert!(reasons[0].contains("while this job ran alone"), "{reasons:?}");
        for (at, id) in ids.iter().enumerate().filter(|(at, _)| *at != 3) {
            let done = job.trace.steps(id).contains(&(sound.steps - 1));
            assert!(done, "sound job {at} is done, after {deaths} deaths, with steps of {step_ms} ms");
        }
    }
}

/// A sound job with steps longer than the time until its neighbour kills the worker.
#[tokio::test(start_paused = true)]
async fn a_sound_job_with_long_steps_outlives_a_killer_beside_it() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(3, 60_000), Plan::new(9, 1_000).habit(Habit::KillsAt(0))]).await;
    let deaths = restarted_until_empty(&store, &job, 12).await;
    let reasons = poisoned(&store).await;
    assert_eq!(reasons.len(), 1, "after {deaths} deaths: {reasons:?}");
    assert!(job.trace.steps(&ids[0]).contains(&2));
}

/// Steps too long for the others to pause while a suspect waits. A death in company proves nothing.
#[tokio::test(start_paused = true)]
async fn sound_jobs_with_steps_of_minutes_outlive_a_killer_beside_them() {
    for (at, slots, step_secs) in
        [(0, 3, 420), (1, 3, 600), (2, 8, 180), (7, 8, 300), (4, 8, 600), (15, 16, 600), (31, 32, 1_200)]
    {
        let (store, job) = (memory::store(), Steps::default());
        let mut plans = vec![Plan::new(1, step_secs * 1_000); slots - 1];
        plans.insert(at, Plan::new(1, 2_000).habit(Habit::KillsAt(0)));
        let ids = enqueue(&store, &plans).await;
        let settings = Settings { concurrency: slots, ..Settings::default() };
        let mut deaths = 0;
        loop {
            let worker = start_with(&store, &job, settings.clone(), ManualNotices::answered());
            tokio::select! {
                () = job.has_killed() => deaths += 1,
                () = emptied(&store, secs(24 * 3600)) => break,
            }
            worker.kill().await;
        }
        let reasons = poisoned(&store).await;
        let what = format!("{slots} slots, steps of {step_secs} s, after {deaths} deaths: {reasons:?}");
        assert_eq!(reasons.len(), 1, "{what}");
        for id in ids.iter().enumerate().filter(|(place, _)| *place != at).map(|(_, id)| id) {
            assert_eq!(job.trace.steps(id), [0], "{what}");
        }
    }
}

/// All running jobs are suspects then, and none of them is to blame.
#[tokio::test(start_paused = true)]
async fn two_deaths_from_outside_cost_a_full_worker_minutes_and_not_hours() {
    for slots in [4, 8, 16] {
        let (store, job) = (memory::store(), Steps::default());
        let mut plans = vec![Plan::new(2, 600_000); slots - 1];
        plans.push(Plan::new(600, 1_000));
        let ids = enqueue(&store, &plans).await;
        let settings = Settings { concurrency: slots, ..Settings::default() };
        for _ in 0..2 {
            let worker = start_with(&store, &job, settings.clone(), ManualNotices::answered());
            tokio::time::sleep(secs(90)).await;
            worker.kill().await;
        }
        let began = Instant::now();
        let _worker = start_with(&store, &job, settings, ManualNotices::answered());
        let short = ids.last().unwrap();
        within(secs(3600), "the short steps", async || job.trace.steps(short).contains(&599)).await;
        let short_took = began.elapsed();
        emptied(&store, secs(3 * 3600)).await;
        let took = began.elapsed();
        assert!(short_took < secs(1_300), "{slots} slots: 600 s of short steps took {short_took:?}");
        assert!(took < secs(1_900), "{slots} slots: 1,200 s of work took {took:?}");
    }
}

/// A claim with a lost response was applied, and its delivery is valid.
#[tokio::test(start_paused = true)]
async fn a_killer_with_unanswered_claims_runs_alone_and_is_poisoned() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let killer = Plan::new(9, 2_000).habit(Habit::KillsAt(0));
    let ids = enqueue(&inner, &[killer, Plan::new(300, 100)]).await;
    for death in 1..=4 {
        // The claims of the two delivered jobs.
        faults.next_calls(Op::Save, 2, Fault::LoseAnswer);
        let worker = start_with(&store, &job, eight_slots(), ManualNotices::answered());
        tokio::select! {
            () = job.has_killed() => {}
            () = emptied(&inner, secs(3600)) => break,
        }
        if death == 3 {
            let beside = record(&inner, &ids[1]).await.unwrap();
            let died = beside.owner.count == 3 && beside.owner.company == Company::Shared;
            assert!(!died, "nothing runs beside the suspect: {beside:?}");
        }
        worker.kill().await;
    }
    let reasons = poisoned(&inner).await;
    assert!(reasons.len() == 1 && reasons[0].contains("while this job ran alone"), "{reasons:?}");
    assert!(job.trace.steps(&ids[1]).contains(&299));
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_storage_poisons_no_job_however_often_it_comes() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Hang] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        let ids = enqueue(&inner, &[Plan::new(300, 1_000); 8]).await;
        let two = [(); 2].map(|()| start_with(&store, &job, eight_slots(), ManualNotices::answered()));
        for _ in 0..5 {
            faults.everything(fault);
            tokio::time::sleep(secs(90)).await;
            faults.clear_all();
            tokio::time::sleep(secs(30)).await;
        }
        assert_eq!(poisoned(&inner).await, Vec::<String>::new(), "{fault:?}");
        timeout(secs(3600), emptied(&inner, secs(3600))).await.unwrap();
        assert_eq!(poisoned(&inner).await, Vec::<String>::new(), "{fault:?}");
        for id in &ids {
            assert!(job.trace.steps(id).contains(&299), "{fault:?}");
        }
        drop(two);
    }
}

/// Another worker may claim the job before its live owner can record the lost lease.
#[tokio::test(start_paused = true)]
async fn an_outage_that_ends_every_lease_of_a_fleet_poisons_no_job() {
    for (workers, steps_secs) in [(8, 40), (8, 100), (4, 70)] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &[Plan::new(1, steps_secs * 1_000); 8]).await;
        let settings = Settings { concurrency: 8 / workers, ..Settings::default() };
        let fleet: Vec<_> = (0..workers)
            .map(|_| start_with(&store, &job, settings.clone(), ManualNotices::answered()))
            .collect();
        for _ in 0..10 {
            tokio::time::sleep(secs(30)).await;
            faults.everything(Fault::Fail(ErrorKind::Unavailable));
            tokio::time::sleep(secs(90)).await;
            faults.clear_all();
        }
        emptied(&inner, secs(3600)).await;
        assert_eq!(poisoned(&inner).await, Vec::<String>::new(), "{workers} workers, {steps_secs} s");
        drop(fleet);
    }
}

/// Its own process lives, so the next delivery knows that the lease was lost and no process died.
#[tokio::test(start_paused = true)]
async fn a_worker_that_lost_a_lease_and_lives_is_not_taken_for_dead() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let ids = enqueue(&inner, &[Plan::new(300, 1_000)]).await;
    let _worker = start(&store, &job);
    tokio::time::sleep(secs(12)).await;
    faults.everything(Fault::Fail(ErrorKind::Unavailable));
    tokio::time::sleep(secs(90)).await;
    faults.clear_all();
    within(secs(30), "a second delivery", async || record(&inner, &ids[0]).await.unwrap().owner.count == 2)
        .await;
    let ends = record(&inner, &ids[0]).await.unwrap();
    assert_eq!((ends.account.vanished, ends.account.lost), (0, 1), "{ends:?}");
}

/// However long the checkpoint interval is.
#[tokio::test(start_paused = true)]
async fn two_deaths_from_outside_cost_minutes_also_where_saves_are_rare() {
    for every in [600, 7_200, 43_200] {
        let (store, job) = (memory::store(), Steps::default());
        let mut plans = vec![Plan::new(2, every * 1_000); 7];
        plans.push(Plan::new(600, 1_000));
        let ids = enqueue(&store, &plans).await;
        let checkpoint_every = CheckpointEvery::Every(secs(every));
        let settings = Settings { concurrency: 8, checkpoint_every, ..Settings::default() };
        for _ in 0..2 {
            let worker = start_with(&store, &job, settings.clone(), ManualNotices::answered());
            tokio::time::sleep(secs(90)).await;
            worker.kill().await;
        }
        let _worker = start_with(&store, &job, settings, ManualNotices::answered());
        let short = ids.last().unwrap();
        within(secs(1_800), "the short steps", async || job.trace.steps(short).contains(&599)).await;
    }
}

fn count_done(job: &Steps, ids: &[JobId]) -> usize {
    ids.iter().filter(|id| job.trace.steps(id).contains(&9)).count()
}

/// The job polls every minute and never moves, and its machine is killed again and again.
#[tokio::test(start_paused = true)]
async fn a_sound_job_that_never_moves_leaves_its_neighbours_half_of_the_time() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(10_000, 60_000).habit(Habit::Polls)]).await;
    let settings = Settings { concurrency: 4, ..Settings::default() };
    let (mut ids, mut done) = (Vec::new(), 0);
    for kill in 1..=15 {
        let worker = start_with(&store, &job, settings.clone(), ManualNotices::answered());
        ids.extend(enqueue(&store, &[Plan::new(10, 60_000); 108]).await);
        tokio::time::sleep(secs(6 * 3600)).await;
        worker.kill().await;
        let before = std::mem::replace(&mut done, count_done(&job, &ids));
        assert!(done - before >= 50, "{} jobs were done in the life before kill {kill}", done - before);
    }
}

/// Its message has no room for the ends of its deliveries.
#[tokio::test(start_paused = true)]
async fn a_suspect_with_a_full_message_is_not_deferred_without_limit() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let suspect = enqueue(&inner, &[Plan::new(600, 1_000)]).await.remove(0);
    let worker = start(&store, &job);
    within(secs(20), "a record", async || record(&inner, &suspect).await.is_some()).await;
    worker.kill().await;
    rewrite(&inner, &suspect, |record| record.account.vanished = 2).await;
    for _ in 0..400 {
        faults.next_calls(Op::Release, 1, Fault::Fail(ErrorKind::TooLarge));
        faults.next_calls(Op::Release, 1, Fault::Delay(ms(1)));
    }
    enqueue(&inner, &[Plan::new(1, 10 * 3_600_000)]).await;
    let _worker = start(&store, &job);
    within(secs(3_600), "its steps", async || job.trace.steps(&suspect).len() > 590).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_has_only_suspects_is_not_idle_between_them() {
    let (store, job) = (memory::store(), Steps::default());
    let ids = enqueue(&store, &[Plan::new(1, 1_000_000); 4]).await;
    let settings = Settings { concurrency: 4, ..Settings::default() };
    for _ in 0..2 {
        let worker = start_with(&store, &job, settings.clone(), ManualNotices::answered());
        tokio::time::sleep(secs(5)).await;
        worker.kill().await;
        tokio::time::sleep(secs(61)).await;
    }
    // As if each had been alone five times already: it may now be alone for its whole step.
    for id in &ids {
        rewrite(&store, id, |record| (record.account.vanished, record.account.vanished_unproved) = (2, 5))
            .await;
    }
    let _worker = start_with(&store, &job, settings, ManualNotices::answered());
    emptied(&store, secs(4 * 1_000 + 100)).await;
}
