//! An outage of the store hides no death, and makes none of a worker that lives.

use reprieve_core::ErrorKind;
use reprieve_core::ledger::How;
use reprieve_core::memory::{self, Fault, Faults, Op};
use reprieve_core::ports::Store;
use reprieve_core::worker::Settings;
use tokio::time::sleep;

use crate::ledger::{interruptions, on_boot, wide};
use crate::support::*;

const DOWN: Fault = Fault::Fail(ErrorKind::Unavailable);

fn long_lease() -> Settings {
    Settings { lease: secs(60), ..wide() }
}

/// The workers whose deaths are entered.
async fn deaths(store: &Store) -> Vec<String> {
    let found = interruptions(store).await.into_iter();
    found.filter(|it| matches!(it.how, How::Died(_))).map(|it| it.worker.to_string()).collect()
}

/// A worker has died, and another one, with faults of its own, has just resumed its job.
async fn finder_of_a_death(inner: &Store) -> (Running, Faults, String) {
    let job = Steps::default();
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(inner, &[Plan::new(20_000, 1_000)]).await;
    let killed = start_built(on_boot(inner, &job, long_lease(), "killed"));
    sleep(secs(40)).await;
    let died = killed.monitor.worker().to_string();
    killed.kill().await;
    let finder = start_built(on_boot(&store, &job, long_lease(), "finder"));
    let is_resumed = async || holds(inner, &finder, 1).await;
    within(secs(120), "the job's resumption", is_resumed).await;
    (finder, faults, died)
}

async fn holds(store: &Store, worker: &Running, jobs: usize) -> bool {
    let reports = store.roster.reports(secs(15)).await.unwrap();
    reports.iter().any(|it| it.worker == *worker.monitor.worker() && it.in_flight.len() == jobs)
}

#[tokio::test(start_paused = true)]
async fn a_death_that_was_found_just_before_an_outage_is_entered_after_it_however_long_it_was() {
    for fault in [DOWN, Fault::Hang] {
        for (after, outage) in [(5, 60), (5, 320), (28, 900), (31, 3_600)] {
            let inner = memory::store();
            let (finder, faults, died) = finder_of_a_death(&inner).await;
            sleep(secs(after)).await;
            faults.everything(fault);
            sleep(secs(outage)).await;
            faults.clear_all();
            sleep(secs(180)).await;
            assert_eq!(deaths(&inner).await, [died], "{fault:?} after {after} s, for {outage} s");
            assert_eq!(finder.stop().await.missing_entries, 0, "{fault:?} after {after} s, for {outage} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_death_that_could_not_be_looked_at_is_missing_when_its_finder_ends() {
    // The store is away at the end, so that the drain is missing, too; or it has just come back.
    for (back_before, missing) in [(None, 2), (Some(secs(5)), 1), (Some(secs(90)), 0)] {
        let inner = memory::store();
        let (finder, faults, died) = finder_of_a_death(&inner).await;
        faults.everything(DOWN);
        sleep(secs(600)).await;
        if let Some(before) = back_before {
            faults.clear_all();
            sleep(before).await;
        }
        assert_eq!(finder.stop().await.missing_entries, missing, "back {back_before:?} before");
        assert_eq!(deaths(&inner).await.contains(&died), missing == 0, "back {back_before:?} before");
    }
}

#[tokio::test(start_paused = true)]
async fn a_death_is_tried_for_as_long_as_its_finder_lives() {
    let inner = memory::store();
    let (finder, faults, died) = finder_of_a_death(&inner).await;
    faults.every_call(Op::Ledger, DOWN);
    sleep(secs(900)).await;
    assert_eq!(deaths(&inner).await, Vec::<String>::new());
    faults.clear(Op::Ledger);
    sleep(secs(90)).await;
    assert_eq!(deaths(&inner).await, [died]);
    assert_eq!(finder.stop().await.missing_entries, 0);
}

#[tokio::test(start_paused = true)]
async fn a_death_that_another_worker_has_entered_is_not_missing() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let one_slot = || Settings { concurrency: 1, ..long_lease() };
    enqueue(&inner, &[Plan::new(20_000, 1_000); 2]).await;
    let killed = start_built(on_boot(&inner, &job, long_lease(), "killed"));
    sleep(secs(40)).await;
    let died = killed.monitor.worker().to_string();
    killed.kill().await;
    let finder = start_built(on_boot(&store, &job, one_slot(), "finder"));
    let other = start_built(on_boot(&inner, &job, one_slot(), "other"));
    sleep(secs(3)).await;
    faults.every_call(Op::Ledger, DOWN);
    let both = async || holds(&inner, &finder, 1).await && holds(&inner, &other, 1).await;
    within(secs(120), "a job for each", both).await;
    sleep(secs(600)).await;
    assert_eq!(deaths(&inner).await, [died]);
    faults.clear(Op::Ledger);
    assert_eq!(finder.stop().await.missing_entries, 0);
    other.kill().await;
}

/// Its store was away alone, and another took over its job; then all were away, for less than a lease.
#[tokio::test(start_paused = true)]
async fn no_living_worker_is_entered_as_dead_after_an_outage_at_the_time_of_the_look() {
    for (gap, outage) in [(10, 15), (3, 85), (20, 200)] {
        for fault in [DOWN, Fault::Hang] {
            let (inner, job) = (memory::store(), Steps::default());
            let (one, one_faults) = Faults::wrap(inner.clone());
            let (two, two_faults) = Faults::wrap(inner.clone());
            enqueue(&inner, &[Plan::new(5_000, 1_000); 2]).await;
            let holder = start_built(on_boot(&one, &job, Settings { concurrency: 2, ..long_lease() }, "one"));
            within(secs(60), "both jobs", async || holds(&inner, &holder, 2).await).await;
            let finder = start_built(on_boot(&two, &job, long_lease(), "two"));
            sleep(secs(30)).await;
            one_faults.everything(DOWN);
            within(secs(120), "the jobs' resumption", async || holds(&inner, &finder, 2).await).await;
            sleep(secs(gap)).await;
            two_faults.everything(fault);
            sleep(secs(outage)).await;
            one_faults.clear_all();
            two_faults.clear_all();
            sleep(secs(200)).await;
            assert_eq!(deaths(&inner).await, Vec::<String>::new(), "{gap} s later {fault:?} for {outage} s");
            assert_eq!(inner.roster.members(secs(15)).await.unwrap().len(), 2);
            holder.kill().await;
            finder.kill().await;
        }
    }
}
