//! What happened is in the ledger once, whoever saw it, and writing it costs no job anything.

use reprieve_core::clock::unix_millis;
use reprieve_core::interruption::Stage;
use reprieve_core::ledger::{Death, Entries, How, Interruption, Ledger, Machine, lives};
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::{Ending, Store};
use reprieve_core::telemetry::ByResult;
use reprieve_core::worker::{Settings, Worker, WorkerBuilder};
use reprieve_core::{ErrorKind, NoticeId, WorkerId};
use tokio::time::{Instant, sleep};

use crate::support::*;

pub(crate) fn wide() -> Settings {
    Settings { concurrency: 50, lease: secs(20), ..settings() }
}

pub(crate) async fn ledger(store: &Store) -> Entries {
    Ledger::new(store.records.clone()).read(0).await.unwrap()
}

pub(crate) async fn interruptions(store: &Store) -> Vec<Interruption> {
    ledger(store).await.interruptions
}

fn death(it: &Interruption) -> &Death {
    let How::Died(death) = &it.how else { panic!("it drained: {it:?}") };
    death
}

pub(crate) fn on_boot(store: &Store, job: &Steps, settings: Settings, boot: &str) -> WorkerBuilder {
    let machine = Machine { vm: format!("vm-{boot}"), zone: "2".to_owned(), ..Machine::default() };
    let worker = Worker::builder(store.clone()).job(job.clone()).settings(settings);
    worker.vm(format!("vm-{boot}")).boot(boot).machine(async { machine })
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_killed_with_fifty_jobs_has_one_entry_whoever_resumes_them() {
    // Some save before it dies, so that their records name it; in the other world none does.
    for saves in [true, false] {
        let (store, job) = (memory::store(), Steps::default());
        enqueue(&store, &vec![Plan::new(60, 1_000); 50]).await;
        let killed = start_built(on_boot(&store, &job, wide(), "one"));
        sleep(if saves { secs(13) } else { secs(3) }).await;
        let worker = killed.monitor.worker().clone();
        killed.kill().await;
        let others = ["two", "three", "four"]
            .map(|boot| start_built(on_boot(&store, &job, Settings { concurrency: 17, ..wide() }, boot)));
        emptied(&store, secs(900)).await;
        let found = interruptions(&store).await;
        assert_eq!(found.len(), 1, "saves {saves}: {found:?}");
        let (found, died) = (&found[0], death(&found[0]));
        assert_eq!(
            (&found.worker, found.boot.as_str(), found.machine.vm.as_str()),
            (&worker, "one", "vm-one")
        );
        assert_eq!((died.held, died.machine_lives), (50, false));
        // Each had run for 13 s and was saved at 10 s; or for 3 s, and never. The last report is up to a second old.
        let (lost, kept) = if saves { (100_000..=150_000, 500_000) } else { (100_000..=150_000, 0) };
        assert!(lost.contains(&died.work_lost_ms), "saves {saves}: {died:?}");
        assert!(died.work_kept_ms.abs_diff(kept) < 20_000, "saves {saves}: {died:?}");
        for other in others {
            other.stop().await;
        }
        assert_eq!(interruptions(&store).await.len(), 4, "the others drained");
    }
}

#[tokio::test(start_paused = true)]
async fn ten_workers_of_a_machine_write_one_boot() {
    let (store, job) = (memory::store(), Steps::default());
    let workers: Vec<_> = (0..10).map(|_| start_built(on_boot(&store, &job, settings(), "one"))).collect();
    let other = start_built(on_boot(&store, &job, settings(), "two"));
    sleep(secs(1)).await;
    let boots = ledger(&store).await.boots;
    let found: Vec<_> = boots.iter().map(|boot| (boot.boot.as_str(), boot.machine.zone.as_str())).collect();
    assert_eq!(found, [("one", "2"), ("two", "2")]);
    assert!(workers.iter().any(|worker| *worker.monitor.worker() == boots[0].worker));
    assert_eq!(*other.monitor.worker(), boots[1].worker);
}

/// The life of the only machine in the ledger, by the ledger alone: since when, for how many seconds, and whether it
/// was evicted.
async fn only_life(store: &Store) -> (i64, bool) {
    let lives = lives(&ledger(store).await, &[]);
    assert_eq!(lives.len(), 1, "{lives:?}");
    ((lives[0].until_unix_ms - lives[0].seen_unix_ms) / 1_000, lives[0].evicted.is_some())
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_vanishes_idle_was_seen_when_the_roster_has_forgotten_it() {
    on_one_clock();
    for (ran, known) in [(55, 0..1), (130, 120..130), (1_000, 960..1_000), (36_000, 31_800..36_000)] {
        let (store, job) = (memory::store(), Steps::default());
        // Two workers of the machine renew one entry.
        let workers = [(); 2].map(|()| start_built(on_boot(&store, &job, settings(), "one")));
        sleep(secs(ran)).await;
        for worker in workers {
            worker.kill().await;
        }
        let (seen, evicted) = only_life(&store).await;
        assert!(known.contains(&seen) && !evicted, "{seen} of {ran} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_taken_for_dead_and_goes_on_can_die() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1_000, 1_000); 2]).await;
    let worker = start_built(on_boot(&store, &job, wide(), "one"));
    sleep(secs(13)).await;
    let other = start_built(on_boot(&store, &job, wide(), "two"));
    worker.gate.freeze();
    sleep(secs(90)).await;
    assert_eq!(interruptions(&store).await.len(), 1, "it is taken for dead");
    worker.gate.thaw();
    other.stop().await;
    let ends = async || ends_of(&store, "one").await;
    within(secs(60), "a sign of life", async || worker.monitor.stage() == Stage::Start).await;
    sleep(secs(400)).await;
    assert_eq!(ends().await, (1, false), "the renewed entry of its boot overrules the death");
    worker.kill().await;
    let killed = unix_millis();
    let other = start_built(on_boot(&store, &job, wide(), "three"));
    within(secs(900), "the second death", async || ends().await.0 == 2).await;
    assert!(ends().await.1);
    let lives = lives(&ledger(&store).await, &[]);
    let until = lives.iter().find(|life| life.boot == "one").unwrap().until_unix_ms;
    assert!((killed - 20_000..=killed).contains(&until), "{} ms before it", killed - until);
    other.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_hurried_end_enters_its_drain_and_no_finder_a_death() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(60, 1_000).habit(Habit::StuckAt(5))]).await;
    let worker = start_built(on_boot(&store, &job, wide(), "one"));
    sleep(secs(10)).await;
    faults.every_call(Op::Ledger, Fault::Delay(ms(300)));
    worker.stopper.stop();
    sleep(ms(200)).await;
    assert_eq!(worker.stop().await.abandoned, 1);
    let notices = async || {
        let found = interruptions(&inner).await;
        found.iter().map(|it| it.notice().map(str::to_owned)).collect::<Vec<_>>()
    };
    let drained = [Some("Signal".to_owned())];
    assert_eq!(notices().await, drained);
    let other = start_built(on_boot(&inner, &Steps::default(), wide(), "two"));
    sleep(secs(120)).await;
    assert_eq!(notices().await, drained);
    other.kill().await;
}

#[tokio::test(start_paused = true)]
async fn each_death_of_a_crash_loop_is_entered() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(1_000, 1_000)]).await;
    for boot in ["one", "one", "two"] {
        let worker = start_built(on_boot(&store, &job, wide(), boot));
        let holds = async || {
            let reports = store.roster.reports(secs(15)).await.unwrap();
            reports.iter().any(|it| it.worker == *worker.monitor.worker() && !it.in_flight.is_empty())
        };
        // It has no time to enter the death of the one before.
        within(secs(120), "it holds the job", holds).await;
        worker.kill().await;
    }
    let last = start_built(on_boot(&store, &job, wide(), "three"));
    within(secs(300), "the deaths", async || interruptions(&store).await.len() == 3).await;
    last.kill().await;
}

/// How many deaths of a boot's workers the ledger has, and whether it was evicted, by the ledger alone.
async fn ends_of(store: &Store, boot: &str) -> (usize, bool) {
    let entries = ledger(store).await;
    let ends = entries.interruptions.iter().filter(|it| it.boot == boot && it.notice().is_none()).count();
    let is_evicted = lives(&entries, &[]).iter().any(|life| life.boot == boot && life.evicted.is_some());
    (ends, is_evicted)
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_notice_is_no_eviction_when_the_roster_has_forgotten_the_machine() {
    let (store, job) = (memory::store(), Steps::default());
    let worker = start_built_with(on_boot(&store, &job, settings(), "one"), ManualNotices::answered());
    worker.started().await;
    worker.evict(secs(30)).await;
    within(secs(5), "the entry", async || !interruptions(&store).await.is_empty()).await;
    assert!(only_life(&store).await.1, "no one knows better");
    worker.notices.over(&NoticeId::new("evicted"), Ending::Withdrawn);
    worker.started().await;
    within(secs(5), "the renewal", async || !only_life(&store).await.1).await;
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_writes_its_own_entry_and_no_finder_a_second() {
    let (store, job) = (memory::store(), Steps::default());
    // The first yields. The message of the second can't be released, so it is found later as one that vanished.
    enqueue(&store, &[Plan::new(60, 1_000).habit(Habit::Watches), Plan::new(60, 1_000)]).await;
    let (broken, faults) = Faults::wrap(store.clone());
    let worker = start_built_with(on_boot(&broken, &job, wide(), "one"), ManualNotices::answered());
    sleep(secs(12)).await;
    faults.every_call(Op::Release, Fault::Fail(ErrorKind::Unavailable));
    let report = worker.evict(secs(6)).await;
    assert!(report.abandoned >= 1, "{report:?}");
    within(secs(5), "the entry", async || !interruptions(&store).await.is_empty()).await;
    worker.kill().await;
    let other = start_built(on_boot(&store, &job, wide(), "two"));
    emptied(&store, secs(900)).await;
    sleep(secs(120)).await;
    let found = interruptions(&store).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].notice(), found[0].boot.as_str()), (Some("Preempt"), "one"));
    let How::Drained(kept) = &found[0].how else { panic!("{found:?}") };
    assert_eq!((kept, kept.lead_ms), (&report, Some(6_000)));
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_says_what_was_kept_and_what_was_lost() {
    let (store, job) = (memory::store(), Steps::default());
    // One is saved when it yields, the other never yields: saved at 10 s, it loses what came since.
    enqueue(&store, &[Plan::new(60, 1_000), Plan::new(60, 1_000).habit(Habit::StuckAt(11))]).await;
    let worker = start_built(on_boot(&store, &job, wide(), "one"));
    sleep(ms(13_500)).await;
    let report = worker.evict(secs(30)).await;
    assert_eq!((report.released_saved, report.released_cut), (1, 1), "{report:?}");
    assert!((22_000..25_000).contains(&report.work_kept_ms), "14 s and 10 s: {report:?}");
    assert!((5_000..8_000).contains(&report.work_lost_ms), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_goes_back_to_work_after_a_drain_and_is_killed_has_both_entries() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(100, 1_000)]).await;
    let worker = start_built(on_boot(&store, &job, settings(), "one"));
    sleep(secs(8)).await;
    worker.evict(secs(30)).await;
    worker.notices.over(&NoticeId::new("evicted"), Ending::Withdrawn);
    sleep(secs(20)).await;
    worker.kill().await;
    let other = start_built(on_boot(&store, &job, settings(), "two"));
    emptied(&store, secs(900)).await;
    let found = interruptions(&store).await;
    assert_eq!(found.iter().map(Interruption::notice).collect::<Vec<_>>(), [None, Some("Preempt")]);
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_only_lost_its_leases_is_not_called_dead() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(200, 1_000), Plan::new(200, 1_000)]).await;
    let (cut_off, faults) = Faults::wrap(store.clone());
    let worker = start_built(on_boot(&cut_off, &job, wide(), "one"));
    sleep(secs(12)).await;
    faults.every_call(Op::Renew, Fault::Fail(ErrorKind::Unavailable));
    let other = start_built(on_boot(&store, &job, wide(), "two"));
    sleep(secs(30)).await;
    faults.clear(Op::Renew);
    emptied(&store, secs(900)).await;
    sleep(secs(120)).await;
    assert_eq!(interruptions(&store).await, []);
    assert!(worker.monitor.telemetry().leases_lost.get() >= 1, "it lost one");
    drop((worker, other));
}

#[tokio::test(start_paused = true)]
async fn each_failed_delivery_has_an_entry_and_a_successful_job_has_none() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    let plans = [
        Plan::new(3, 10).habit(Habit::PanicsAt(1)),
        Plan::new(3, 10).habit(Habit::FatalAt(1)),
        Plan::new(30, 10).habit(Habit::FailsOnceEvery(30)),
    ];
    let ids = enqueue(&inner, &plans).await;
    let worker = start(&store, &job);
    emptied(&inner, secs(3_600)).await;
    sleep(secs(1)).await;
    let failures = ledger(&inner).await.failures;
    let of = |at: usize| {
        let mut of_job: Vec<_> = failures.iter().filter(|failure| failure.job == ids[at]).collect();
        of_job.sort_by_key(|failure| failure.delivery);
        of_job
    };
    assert_eq!(failures.len() as u64, worker.ended("retried") + worker.ended("dead_lettered"));
    // The step before the panic is saved after the first failure, which is forgiven then.
    let deliveries: Vec<_> = of(0).iter().map(|failure| (failure.delivery, failure.poisoned)).collect();
    assert_eq!(deliveries, [(1, false), (2, false), (3, false), (4, false), (5, false), (6, true)]);
    assert!(of(0).iter().all(|failure| failure.reason.contains("step 1 is cursed")), "{failures:?}");
    assert_eq!(
        of(1).iter().map(|it| (it.reason.as_str(), it.poisoned)).collect::<Vec<_>>(),
        [("never", true)]
    );
    assert_eq!(of(2).len(), 1);
    // The entry of the boot is renewed after the worker has run for one, two, four, … minutes.
    sleep(secs(3_600)).await;
    let before = faults.calls(Op::Ledger);
    enqueue(&inner, &vec![Plan::new(2, 10); 500]).await;
    emptied(&inner, secs(600)).await;
    assert_eq!(faults.calls(Op::Ledger), before, "500 jobs that were done");
    worker.stop().await;
    assert_eq!(faults.calls(Op::Ledger), before + 1, "the drain");
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_does_not_answer_delays_no_release_and_fails_no_drain() {
    for fault in [Fault::Hang, Fault::Fail(ErrorKind::Denied)] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Ledger, fault);
        let failing = Plan::new(2, 10).habit(Habit::FatalAt(1));
        enqueue(&inner, &[vec![failing; 20], vec![Plan::new(60, 1_000); 4]].concat()).await;
        let worker = start(&store, &job);
        within(secs(60), "the failures", async || worker.ended("dead_lettered") == 20).await;
        sleep(secs(7)).await;
        let report = worker.evict(secs(30)).await;
        assert_eq!((report.held, report.released_saved), (4, 4), "{fault:?}: {report:?}");
        assert!(report.released_after_ms < 1_100, "{fault:?}: {report:?}");
        let began = Instant::now();
        let telemetry = worker.monitor.telemetry().clone();
        worker.stop().await;
        assert!(began.elapsed() <= secs(2), "{fault:?}: the end took {:?}", began.elapsed());
        let lost = telemetry.ledger_entries.get_or_create(&ByResult { result: "error" }).get();
        assert!(fault == Fault::Hang || lost >= 22, "{lost} entries are counted as lost");
        assert_eq!(ledger(&inner).await, Entries::default());
    }
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_the_ledger_is_away_is_written_once_when_it_answers_again() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Hang, Fault::LoseAnswer] {
        on_one_clock();
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Ledger, fault);
        let began = reprieve_core::clock::unix_millis();
        enqueue(&inner, &vec![Plan::new(2, 10).habit(Habit::FatalAt(1)); 20]).await;
        let worker = start_built(on_boot(&store, &job, settings(), "one"));
        sleep(secs(3_600)).await;
        assert_eq!(worker.ended("dead_lettered"), 20, "{fault:?}");
        assert!(fault == Fault::LoseAnswer || ledger(&inner).await == Entries::default(), "{fault:?}");
        faults.clear(Op::Ledger);
        sleep(secs(60)).await;
        let found = ledger(&inner).await;
        assert_eq!((found.boots.len(), found.failures.len()), (1, 20), "{fault:?}");
        let seen = found.boots[0].at_unix_ms;
        assert!(seen - began < 2_000, "{fault:?}: seen since its start, and not since the outage");
        let calls = faults.calls(Op::Ledger);
        sleep(secs(600)).await;
        let later = faults.calls(Op::Ledger) - calls;
        assert_eq!(
            later, 1,
            "{fault:?}: the boot is renewed after 63 minutes, and nothing else is left to write"
        );
        worker.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_says_at_its_end_how_many_entries_are_missing_whatever_the_store_does() {
    const FAILED: usize = 40;
    let unavailable = Fault::Fail(ErrorKind::Unavailable);
    let (denied, slow) = (Fault::Fail(ErrorKind::Denied), |millis| Fault::Delay(ms(millis)));
    for (fault, stops, expected) in [
        (slow(0), 1, Some(0)),
        (slow(700), 1, Some(0)),
        (slow(4_000), 1, None),
        (slow(4_000), 2, None),
        (unavailable, 1, Some(FAILED + 2)),
        (unavailable, 2, Some(FAILED + 2)),
        (denied, 1, Some(FAILED + 2)),
        (Fault::Hang, 1, Some(FAILED + 2)),
        (Fault::Hang, 2, Some(FAILED + 2)),
    ] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Ledger, fault);
        let failing = Plan::new(2, 10).habit(Habit::FatalAt(1));
        enqueue(&inner, &[vec![failing; FAILED], vec![Plan::new(600, 1_000)]].concat()).await;
        let worker = start_built(on_boot(&store, &job, wide(), "one"));
        within(secs(60), "the failures", async || worker.ended("dead_lettered") == FAILED as u64).await;
        (1..stops).for_each(|_| worker.stopper.stop());
        let stopped = worker.stop().await;
        let found = ledger(&inner).await;
        let written = found.boots.len() + found.failures.len() + found.interruptions.len();
        let missing = usize::try_from(stopped.missing_entries).unwrap();
        assert_eq!(missing + written, FAILED + 2, "{fault:?}, {stops} stops: {found:?}");
        assert!(expected.is_none_or(|expected| missing == expected), "{fault:?}, {stops} stops: {missing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_before_it_knows_its_machine_says_that_the_boot_is_missing() {
    let store = memory::store();
    let worker = Worker::builder(store.clone()).job(Steps::default()).settings(settings());
    let worker = start_built(worker.vm("vm").boot("one").machine(std::future::pending()));
    worker.started().await;
    assert_eq!(worker.stop().await.missing_entries, 1);
    assert_eq!(ledger(&store).await.boots, []);
}

#[tokio::test(start_paused = true)]
async fn a_death_is_entered_also_if_its_finder_is_evicted_before_it_would_look() {
    // By the default lease's end a dead worker has been silent for long enough.
    let settings = || Settings { lease: secs(60), ..wide() };
    for notice in [secs(30), secs(0)] {
        let (store, job) = (memory::store(), Steps::default());
        let ids = enqueue(&store, &[Plan::new(200, 1_000)]).await;
        let killed = start_built(on_boot(&store, &job, settings(), "one"));
        sleep(secs(60)).await;
        let (died, steps) = (killed.monitor.worker().clone(), job.trace.steps(&ids[0]).len());
        killed.kill().await;
        let finder = start_built(on_boot(&store, &job, settings(), "two"));
        within(secs(90), "the job's resumption", async || job.trace.steps(&ids[0]).len() > steps).await;
        if notice > secs(0) {
            finder.evict(notice).await;
            sleep(secs(2)).await;
            finder.kill().await;
        } else {
            finder.stop().await;
        }
        let other = start_built(on_boot(&store, &job, settings(), "three"));
        emptied(&store, secs(900)).await;
        other.stop().await;
        let found = interruptions(&store).await;
        let deaths: Vec<_> = found.iter().filter(|it| matches!(it.how, How::Died(_))).collect();
        assert_eq!(deaths.iter().map(|it| &it.worker).collect::<Vec<_>>(), [&died], "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_worker_is_called_dead_that_had_no_time_to_report_after_an_outage() {
    let settings = || Settings { lease: secs(60), ..wide() };
    let (inner, job) = (memory::store(), Steps::default());
    let ids = enqueue(&inner, &[Plan::new(400, 1_000)]).await;
    let (store, faults) = Faults::wrap(inner.clone());
    let (other_store, other_faults) = Faults::wrap(inner.clone());
    let holder = start_built(on_boot(&store, &job, settings(), "one"));
    sleep(secs(60)).await;
    let finder = start_built(on_boot(&other_store, &job, settings(), "two"));
    sleep(secs(60)).await;
    for faults in [&faults, &other_faults] {
        faults.everything(Fault::Fail(ErrorKind::Unavailable));
    }
    // It has lost its lease, and its job is cut off.
    sleep(secs(120)).await;
    let steps = job.trace.steps(&ids[0]).len();
    other_faults.clear_all();
    within(secs(90), "the job's resumption", async || job.trace.steps(&ids[0]).len() > steps).await;
    finder.evict(secs(30)).await;
    sleep(secs(2)).await;
    finder.kill().await;
    faults.clear_all();
    sleep(secs(300)).await;
    let found = interruptions(&inner).await;
    assert!(
        found.iter().all(|it| !matches!(it.how, How::Died(_)) || it.worker != *holder.monitor.worker()),
        "{found:?}"
    );
    drop(holder);
}

#[tokio::test(start_paused = true)]
async fn deaths_that_a_worker_could_not_write_are_missing_once_each() {
    let settings = || Settings { lease: secs(60), ..wide() };
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Hang, Fault::Delay(secs(3))] {
        let (inner, job) = (memory::store(), Steps::default());
        enqueue(&inner, &[Plan::new(400, 1_000); 3]).await;
        let one = || Settings { concurrency: 1, ..settings() };
        let killed = ["one", "two", "three"].map(|boot| start_built(on_boot(&inner, &job, one(), boot)));
        sleep(secs(30)).await;
        for worker in killed {
            worker.kill().await;
        }
        let before = ledger(&inner).await;
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Ledger, fault);
        let finder = start_built(on_boot(&store, &job, settings(), "four"));
        sleep(secs(150)).await;
        let stopped = finder.stop().await;
        let after = ledger(&inner).await;
        let written = |it: &Entries| it.boots.len() + it.interruptions.len();
        let missing = 5 - (written(&after) - written(&before));
        assert_eq!(stopped.missing_entries, missing as u64, "{fault:?}: the boot, a drain and three deaths");
    }
}

/// Several on a machine, or each on its own.
async fn died_at_once(dead: usize, on_a_machine: usize) -> Store {
    let one = || Settings { lease: secs(60), concurrency: 1, ..wide() };
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &vec![Plan::new(4_000, 1_000); dead]).await;
    let boot = |number: usize| format!("boot-{}", number / on_a_machine);
    let killed: Vec<_> =
        (0..dead).map(|number| start_built(on_boot(&store, &job, one(), &boot(number)))).collect();
    sleep(secs(30)).await;
    for worker in killed {
        worker.kill().await;
    }
    store
}

/// A worker looks at 256 at a time.
#[tokio::test(start_paused = true)]
async fn deaths_of_more_workers_than_are_looked_at_at_once_are_all_written_or_missing() {
    for (dead, on_a_machine, is_down) in [(300, 1, true), (300, 10, false)] {
        let inner = died_at_once(dead, on_a_machine).await;
        let (store, faults) = Faults::wrap(inner.clone());
        if is_down {
            faults.every_call(Op::Ledger, Fault::Fail(ErrorKind::Unavailable));
        }
        let settings = Settings { lease: secs(60), concurrency: dead, ..wide() };
        let finder = start_built(on_boot(&store, &Steps::default(), settings, "finder"));
        sleep(secs(400)).await;
        let missing = finder.stop().await.missing_entries;
        let found = interruptions(&inner).await;
        let written = found.iter().filter(|it| matches!(it.how, How::Died(_))).count();
        // The boot and a drain, too.
        let expected = if is_down { (dead as u64 + 2, 0) } else { (0, dead) };
        assert_eq!((missing, written), expected, "{dead} workers, {on_a_machine} on a machine");
    }
}

#[tokio::test(start_paused = true)]
async fn the_ledger_is_kept_for_as_long_as_it_is_to_be_and_is_no_jobs_record() {
    use reprieve_core::retention::Keep;
    on_one_clock();
    let (store, job) = (memory::store(), Steps::default());
    let worker = start_built(on_boot(&store, &job, settings(), "one"));
    worker.started().await;
    worker.stop().await;
    let days = |days: u64| secs(days * 86_400);
    tokio::time::advance(days(20)).await;
    assert_eq!(clean(&store, Keep::default(), false).await.ledger, 0);
    let keep = Keep { ledger: Some(days(19)), ..Keep::default() };
    assert_eq!(clean(&store, Keep { ledger: None, ..keep }, false).await.ledger, 0);
    assert_eq!((clean(&store, keep, true).await.ledger, clean(&store, keep, false).await.ledger), (2, 2));
    assert_eq!(ledger(&store).await, Entries::default());
    let lives = start_built(on_boot(&store, &job, settings(), "two"));
    lives.started().await;
    tokio::time::advance(days(20)).await;
    sleep(secs(20)).await;
    assert_eq!(clean(&store, keep, false).await.ledger, 0, "its machine lives");
    assert_eq!(ledger(&store).await.boots.len(), 1);
    lives.kill().await;
    let of_job = format!("reprieve-ledger.end.{}.died", WorkerId::unique());
    let job = reprieve_core::NewJob::of::<Steps>(&Plan::new(1, 1)).unwrap();
    let job = job.with_id(reprieve_core::JobId::parse(of_job).unwrap());
    let error = reprieve_core::Producer::new(store.clone()).enqueue(vec![job]).await.unwrap_err();
    assert!(error.to_string().contains("an entry of the ledger"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_writes_down_what_failed_before() {
    for (jobs, delay) in [(600, 30), (600, 100), (100, 400)] {
        let (inner, job) = (memory::store(), Steps::default());
        let (store, faults) = Faults::wrap(inner.clone());
        enqueue(&inner, &vec![Plan::new(2, 10).habit(Habit::FatalAt(0)); jobs]).await;
        let worker = start_built(on_boot(&store, &job, wide(), "one"));
        faults.every_call(Op::Ledger, Fault::Delay(ms(delay)));
        emptied(&inner, secs(600)).await;
        worker.stop().await;
        assert_eq!(ledger(&inner).await.failures.len(), jobs, "each write takes {delay} ms");
    }
}
