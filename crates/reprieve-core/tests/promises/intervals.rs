//! The interval of checkpoints follows what the ledger says of lost work.

use reprieve_core::checkpoint::{Bound, CheckpointEvery, IntervalReport};
use reprieve_core::clock::unix_millis;
use reprieve_core::ledger::{Boot, Death, Entry, How, Interruption, Ledger, Machine};
use reprieve_core::memory::{self, Fault, Faults, ManualNotices, Op};
use reprieve_core::ports::Store;
use reprieve_core::worker::{DrainReport, Settings, Worker};
use reprieve_core::{BlobName, ErrorKind, WorkerId};
use tokio::time::{Instant, sleep};

use crate::support::*;

const HOUR_MS: i64 = 3_600_000;

fn auto() -> Settings {
    Settings { checkpoint_every: CheckpointEvery::Auto, ..settings() }
}

/// A machine that booted `hours` ago and whose worker was interrupted `after` so many hours.
async fn machine(ledger: &Ledger, boot: &str, hours: i64, after: i64, how: How) {
    let (worker, boot) = (WorkerId::unique(), boot.to_owned());
    let booted = unix_millis() - hours * HOUR_MS;
    let machine = Machine::default();
    let entry = Boot {
        boot: boot.clone(),
        worker: worker.clone(),
        at_unix_ms: booted,
        machine: machine.clone(),
        seen_unix_ms: None,
        worked_on_unix_ms: None,
    };
    assert!(ledger.write(Entry::Boot(entry)).await.unwrap());
    let (at_unix_ms, queue, jobs) = (booted + after * HOUR_MS, String::new(), Vec::new());
    let end = Interruption { worker, boot, machine, queue, at_unix_ms, jobs, how };
    assert!(ledger.write(Entry::Interruption(Box::new(end))).await.unwrap());
}

/// Twenty machines that died after an hour each.
async fn a_bad_day(store: &Store) {
    let ledger = Ledger::new(store.records.clone());
    for number in 0..20 {
        machine(&ledger, &format!("bad-{number}"), 20, 1, How::Died(Death::default())).await;
    }
}

/// Twenty machines that were evicted after a hundred hours, and lost nothing.
async fn calm_weeks(store: &Store) {
    let ledger = Ledger::new(store.records.clone());
    for number in 0..20 {
        let saved = DrainReport {
            notice: "Preempt".to_owned(),
            held: 4,
            released_saved: 4,
            ..DrainReport::default()
        };
        machine(&ledger, &format!("calm-{number}"), 200, 100, How::Drained(saved)).await;
    }
}

/// A store on which a save takes a second.
fn slow(inner: &Store) -> (Store, Faults) {
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Save, Fault::Delay(secs(1)));
    (store, faults)
}

/// Runs a job of steps of a second. Returns how often it is saved in an hour, once the worker has had the time to read
/// the ledger, and how it reports that.
async fn saves_an_hour(store: &Store, faults: &Faults) -> (u64, IntervalReport) {
    enqueue(store, &[Plan::new(20_000, 1_000)]).await;
    let worker = start_with(store, &Steps::default(), auto(), ManualNotices::answered());
    sleep(secs(3_700)).await;
    let before = faults.calls(Op::Save);
    sleep(secs(3_600)).await;
    let saves = faults.calls(Op::Save) - before;
    let report = store.roster.reports(secs(60)).await.unwrap().remove(0);
    worker.kill().await;
    (saves, report.intervals.expect("it reports them"))
}

#[tokio::test(start_paused = true)]
async fn a_worker_saves_as_often_as_the_losses_in_the_ledger_call_for() {
    let cases = [
        // Nothing is known: one loss in ten hours, √(2 × 1 s × 10 h) = 268 s.
        ("nothing", 12..=14, (0, 0), 36_000),
        // 22 losses in 40 h: 114 s.
        ("bad", 29..=33, (20, 20), 6_545),
        // Two in 2,020 h: ten minutes at most.
        ("calm", 6..=6, (0, 2_000), 3_636_000),
    ];
    for (ledger, expected, counted, between) in cases {
        on_one_clock();
        let inner = memory::store();
        match ledger {
            "bad" => a_bad_day(&inner).await,
            "calm" => calm_weeks(&inner).await,
            _ => {}
        }
        let (store, faults) = slow(&inner);
        let (saves, report) = saves_an_hour(&store, &faults).await;
        assert!(expected.contains(&saves), "{ledger}: {saves} saves in an hour, {report:?}");
        let rate = report.rate.expect("it is not set");
        // The worker's own machine was seen for up to two hours.
        let hours = rate.counted.vm_ms / 3_600_000;
        assert!(rate.counted.count == counted.0 && (counted.1..=counted.1 + 2).contains(&hours), "{rate:?}");
        assert!((rate.between_ms / 1_000).abs_diff(between) <= 2 * 3_600, "{ledger}: {rate:?}");
        let kind = &report.kinds[0];
        let bound = (ledger == "calm").then_some(Bound::Ceiling);
        assert_eq!((kind.kind.as_str(), kind.save_ms, kind.bound), ("steps", Some(1_000), bound));
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_can_not_be_read_changes_nothing() {
    for (op, fault) in [
        (Op::LedgerPage, Fault::Fail(ErrorKind::Denied)),
        (Op::LedgerPage, Fault::Hang),
        (Op::Reports, Fault::Fail(ErrorKind::Unavailable)),
        (Op::Get, Fault::Fail(ErrorKind::Unavailable)),
    ] {
        on_one_clock();
        let inner = memory::store();
        a_bad_day(&inner).await;
        let (store, faults) = slow(&inner);
        faults.every_call(op, fault);
        enqueue(&inner, &[Plan::new(20_000, 1_000)]).await;
        let worker = start_with(&store, &Steps::default(), auto(), ManualNotices::answered());
        sleep(secs(4_200)).await;
        let report = inner.roster.reports(secs(60)).await.unwrap().remove(0).intervals.unwrap();
        assert_eq!(report.rate.unwrap().counted.count, 0, "{op:?} {fault:?}");
        assert_eq!(report.kinds[0].every_ms, 268_328, "{op:?} {fault:?}");
        // When it can be read again, the next look counts.
        faults.clear(op);
        sleep(secs(4_200)).await;
        let report = inner.roster.reports(secs(60)).await.unwrap().remove(0).intervals.unwrap();
        assert_eq!(report.rate.unwrap().counted.count, 20, "{op:?} {fault:?}");
        worker.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_worker_counts_for_all_and_those_that_start_later_know_it_at_once() {
    on_one_clock();
    let inner = memory::store();
    a_bad_day(&inner).await;
    let (store, faults) = Faults::wrap(inner.clone());
    let start = |boot: &str| {
        let worker = Worker::builder(store.clone()).job(Steps::default()).settings(auto());
        start_built(worker.boot(boot))
    };
    let workers: Vec<_> = (0..4).map(|number| start(&format!("here-{number}"))).collect();
    sleep(secs(6 * 3_600)).await;
    // A count reads those that are there, and those that departed.
    let counts = faults.calls(Op::Reports) / 2;
    assert!((3..=6).contains(&counts), "4 workers counted {counts} times in 6 hours");
    let late = start("late");
    sleep(secs(2)).await;
    let reports = inner.roster.reports(secs(60)).await.unwrap();
    let known = reports.iter().find(|report| report.boot == "late").unwrap().intervals.clone().unwrap();
    let rate = known.rate.unwrap();
    assert_eq!(rate.counted.count, 20);
    // Four machines for up to six hours, besides the twenty.
    assert!((34..=44).contains(&(rate.counted.vm_ms / 3_600_000)), "{rate:?}");
    assert_eq!(faults.calls(Op::Reports) / 2, counts, "it did not count again");
    drop((workers, late));
}

#[tokio::test(start_paused = true)]
async fn a_count_that_is_damaged_or_of_a_wrong_clock_is_made_anew() {
    let tomorrow = format!(r#"{{"at_unix_ms":{},"days":{{}}}}"#, unix_millis() + 24 * HOUR_MS);
    for kept in ["", "{}", "not a count", tomorrow.as_str()] {
        on_one_clock();
        let store = memory::store();
        a_bad_day(&store).await;
        let name = BlobName::parse("lost-work.json").unwrap();
        store.blobs.put(&name, kept.into(), None).await.unwrap();
        let worker = start_with(&store, &Steps::default(), auto(), ManualNotices::answered());
        sleep(secs(3_700)).await;
        let report = store.roster.reports(secs(60)).await.unwrap().remove(0).intervals.unwrap();
        assert_eq!(report.rate.unwrap().counted.count, 20, "{kept:?}");
        worker.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_that_is_set_stays_and_reads_no_ledger() {
    let inner = memory::store();
    on_one_clock();
    a_bad_day(&inner).await;
    let (store, faults) = Faults::wrap(inner.clone());
    enqueue(&inner, &[Plan::new(20_000, 1_000)]).await;
    let every = Settings { checkpoint_every: CheckpointEvery::Every(secs(60)), ..settings() };
    let worker = start_with(&store, &Steps::default(), every, ManualNotices::answered());
    sleep(secs(7_300)).await;
    assert_eq!(faults.calls(Op::Reports), 0);
    let name = BlobName::parse("lost-work.json").unwrap();
    assert!(!inner.blobs.exists(&name).await.unwrap(), "it did not count");
    let report = inner.roster.reports(secs(60)).await.unwrap().remove(0).intervals.unwrap();
    assert_eq!((report.rate, report.kinds[0].every_ms, report.kinds[0].bound), (None, 60_000, None));
    worker.kill().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_death_dear_saves_take_a_tenth_of_the_time_and_cheap_ones_come_after_every_step() {
    for (save, expected) in [(secs(4), 2..=4), (ms(0), 98..=100)] {
        let (inner, job) = (memory::store(), Steps::default());
        enqueue(&inner, &[Plan::new(20_000, 1_000)]).await;
        let every = Settings { checkpoint_every: CheckpointEvery::Every(secs(200)), ..settings() };
        let first = start_with(&inner, &job, every.clone(), ManualNotices::answered());
        sleep(secs(500)).await;
        first.kill().await;
        let (store, faults) = Faults::wrap(inner.clone());
        faults.every_call(Op::Save, Fault::Delay(save));
        let next = start_with(&store, &job, every, ManualNotices::answered());
        // The claim is the first write, and the save after the first step the second.
        faults.called(Op::Save, 2).await;
        let before = faults.calls(Op::Save);
        sleep(secs(100)).await;
        let saves = faults.calls(Op::Save) - before;
        assert!(expected.contains(&saves), "{saves} saves of {save:?} in 100 s");
        next.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_death_the_first_step_is_saved_however_dear_that_is() {
    let (inner, job) = (memory::store(), Steps::default());
    let (store, faults) = Faults::wrap(inner.clone());
    faults.every_call(Op::Save, Fault::Delay(secs(4)));
    let every =
        Settings { concurrency: 1, checkpoint_every: CheckpointEvery::Every(secs(100)), ..settings() };
    // The second worker knows what a save takes from a job of its own.
    enqueue(&inner, &[Plan::new(150, 1_000)]).await;
    let second = start_with(&store, &job, every.clone(), ManualNotices::answered());
    within(secs(60), "its job", async || leased(&inner).await == 1).await;
    enqueue(&inner, &[Plan::new(20_000, 1_000)]).await;
    let first = start_with(&inner, &job, every, ManualNotices::answered());
    sleep(secs(120)).await;
    first.kill().await;
    within(secs(120), "the end of its job", async || second.ended("completed") == 1).await;
    let before = faults.calls(Op::Save);
    assert!(before > 0, "it was saved");
    faults.called(Op::Save, before + 1).await;
    let claimed = Instant::now();
    faults.called(Op::Save, before + 2).await;
    assert!(claimed.elapsed() < secs(10), "the first save came {:?} after the claim", claimed.elapsed());
    faults.called(Op::Save, before + 3).await;
    assert!(claimed.elapsed() > secs(40), "the second save came {:?} after the claim", claimed.elapsed());
    second.kill().await;
}
