//! The promises that the [ledger](crate::ledger) needs of a store's records.

use std::time::Duration;

use super::Fixture;
use crate::clock::unix_millis;
use crate::ids::{JobId, WorkerId};
use crate::ledger::{Boot, Death, Entries, Entry, Failure, How, Interruption, Ledger, Machine};
use crate::ports::Store;
use crate::report::DrainReport;

fn ledger(store: &Store) -> Ledger {
    Ledger::new(store.records.clone())
}

async fn read(store: &Store, since_unix_ms: i64) -> Entries {
    ledger(store).read(since_unix_ms).await.expect("reads the ledger")
}

fn boot(id: &str, worker: &str) -> Entry {
    let machine = Machine { vm: "été\n\"".to_owned(), zone: "2".to_owned(), ..Machine::default() };
    Entry::Boot(Boot { machine, ..of_boot(id, worker) })
}

fn of_boot(id: &str, worker: &str) -> Boot {
    let (boot, worker, machine) = (id.to_owned(), WorkerId::new(worker), Machine::default());
    Boot { boot, worker, at_unix_ms: 7, machine, seen_unix_ms: None, worked_on_unix_ms: None }
}

fn end(worker: &str, how: How) -> Entry {
    let (worker, boot, queue) = (WorkerId::new(worker), "b".to_owned(), "default".to_owned());
    let (machine, at_unix_ms) = (Machine::default(), unix_millis());
    Entry::Interruption(Box::new(Interruption {
        worker,
        boot,
        machine,
        queue,
        at_unix_ms,
        jobs: Vec::new(),
        how,
    }))
}

fn failure(at_unix_ms: i64, reason: &str) -> Entry {
    Entry::Failure(Failure {
        job: JobId::parse("order-17").expect("is valid"),
        kind: "resize".to_owned(),
        delivery: 2,
        reason: reason.to_owned(),
        poisoned: false,
        worker: WorkerId::new("w"),
        at_unix_ms,
    })
}

/// Of any number of workers that write the same boot, or the same death, exactly one does; the entry stays as it was.
pub async fn one_boot_and_one_death_are_written_once(fixture: &Fixture) {
    let (ours, theirs) = (ledger(&fixture.store), ledger(&fixture.another));
    let death = |held| end("w", How::Died(Death { held, ..Death::default() }));
    let written = futures_util::future::join_all([
        ours.write(boot("one", "a")),
        theirs.write(boot("one", "b")),
        ours.write(boot("one", "c")),
        theirs.write(boot("two", "d")),
        ours.write(death(50)),
        theirs.write(death(50)),
    ])
    .await;
    let written: Vec<_> = written.into_iter().map(|it| it.expect("writes an entry")).collect();
    assert_eq!(written[..3].iter().filter(|written| **written).count(), 1, "{written:?}");
    assert_eq!(written[4..].iter().filter(|written| **written).count(), 1, "{written:?}");
    assert!(!ours.write(death(3)).await.expect("writes an entry"), "it is written already");
    let found = read(&fixture.another, 0).await;
    let boots: Vec<_> = found.boots.iter().map(|boot| boot.boot.as_str()).collect();
    assert_eq!(boots, ["one", "two"]);
    assert_eq!(found.boots[0].machine.vm, "été\n\"");
    let held: Vec<_> = found.interruptions.iter().map(Interruption::held).collect();
    assert_eq!(held, [50]);
}

/// A boot's entry keeps what it says, and takes the time at which the machine was last seen: once for all its workers,
/// and also if the entry was lost.
pub async fn a_boot_is_renewed(fixture: &Fixture) {
    let (ours, theirs, minute) = (ledger(&fixture.store), ledger(&fixture.another), Duration::from_mins(1));
    assert!(ours.write(boot("one", "a")).await.expect("writes an entry"));
    let seen = |at| Boot { seen_unix_ms: Some(at), ..of_boot("one", "b") };
    for (at, is_written) in
        [(50_000, false), (60_007, true), (60_009, false), (130_000, true), (90_000, false)]
    {
        assert_eq!(theirs.renew(seen(at), minute).await.expect("renews an entry"), is_written, "at {at}");
    }
    let back = Boot { worked_on_unix_ms: Some(130_001), ..seen(130_001) };
    assert!(ours.renew(back, minute).await.expect("renews an entry"));
    assert!(ours.renew(of_boot("one-more", "c"), minute).await.expect("writes the entry"));
    let boots = read(&fixture.another, 0).await.boots;
    let found = &boots[0];
    assert_eq!((found.worker.as_str(), found.at_unix_ms, found.machine.vm.as_str()), ("a", 7, "été\n\""));
    assert_eq!((found.seen_unix_ms, found.worked_on_unix_ms), (Some(130_001), Some(130_001)));
    assert_eq!((boots.len(), boots[1].boot.as_str()), (2, "one-more"));
}

/// A worker's drains and its death are different entries, and a list of one worker's has no other's.
pub async fn each_interruption_of_a_worker_has_an_entry(fixture: &Fixture) {
    let ledger = ledger(&fixture.store);
    let drained = || How::Drained(DrainReport { notice: "Preempt".to_owned(), ..DrainReport::default() });
    for (worker, drain) in [("w", 1), ("w", 2), ("w2", 1)] {
        assert!(ledger.write_numbered(end(worker, drained()), drain).await.expect("writes an entry"));
    }
    for (died, is_new) in
        [(0, true), (1_700_000_000_000, true), (1_700_000_000_000, false), (1_700_000_090_000, true)]
    {
        let death = end("w", How::Died(Death::default()));
        assert_eq!(ledger.write_numbered(death, died).await.expect("writes an entry"), is_new, "{died}");
    }
    let of = async |worker: &str| {
        let worker = WorkerId::new(worker);
        let ends = ledger.interruptions_of(&worker).await.expect("reads interruptions");
        assert!(ends.iter().all(|end| end.worker == worker));
        ends.len()
    };
    assert_eq!((of("w").await, of("w2").await, of("w3").await), (5, 1, 0));
}

/// Failures are read since the time that is asked for, each as often as it was written, and whole.
pub async fn failures_are_read_since_a_time(fixture: &Fixture) {
    let (now, day) = (unix_millis(), 86_400_000);
    let reason = "é\"\n".repeat(150);
    for at in [now - 40 * day, now - 2 * day, now - 1_000, now, now] {
        assert!(ledger(&fixture.store).write(failure(at, &reason)).await.expect("writes an entry"));
    }
    for (since, count) in [(now - 30 * day, 4), (now - day, 3), (now, 2), (now + 1, 0)] {
        assert_eq!(read(&fixture.another, since).await.failures.len(), count, "since {since}, now {now}");
    }
    let failures = read(&fixture.another, now).await.failures;
    assert!(failures.iter().all(|failure| failure.reason == reason && failure.delivery == 2), "{failures:?}");
}

/// One test per promise of a ledger; see [`conformance`](crate::conformance).
#[macro_export]
macro_rules! ledger_conformance {
    ($fixture:ident $(, $($attribute:tt)*)?) => {
        $crate::__conformance! {
            ledger, ledger_conformance, $fixture, ($($($attribute)*)?),
            one_boot_and_one_death_are_written_once,
            a_boot_is_renewed,
            each_interruption_of_a_worker_has_an_entry,
            failures_are_read_since_a_time,
        }
    };
}
