//! The ledger of real processes: one that is killed, and one that is stopped.

use std::time::Duration;

use reprieve::NewJob;
use reprieve_core::ledger::{Entries, How, Ledger};
use reprieve_testkit::Signal;
use serde_json::value::RawValue;

use crate::support::{Place, until};

const JOBS: usize = 12;

async fn entries(client: &reprieve::Client) -> Entries {
    Ledger::new(client.store().records.clone()).read(0).await.expect("the ledger")
}

/// How many jobs the workers of the store hold.
async fn held(client: &reprieve::Client) -> usize {
    let reports = client.store().roster.reports(Duration::from_mins(1)).await.expect("reports");
    reports.iter().map(|report| report.in_flight.iter().filter(|job| job.steps > 0).count()).sum()
}

#[tokio::test]
async fn a_killed_process_has_one_entry_with_all_its_jobs_and_a_stopped_one_its_own() {
    let place = Place::new();
    let client = place.client().await;
    let job = || NewJob::new("count-to", RawValue::from_string("100000".to_owned()).expect("JSON"));
    client.producer().enqueue((0..JOBS).map(|_| job()).collect()).await.expect("enqueued");
    let args = ["--concurrency", "12", "--checkpoint-every", "500ms"];
    let killed = place.worker("hello", &args);
    until("it holds all jobs", async || (held(&client).await == JOBS).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    killed.signal(Signal::KILL);
    let mut other = place.worker("hello", &args);
    let reported = async || entries(&client).await.interruptions.into_iter().next();
    // A worker is called dead when it has missed three reports.
    let found = reprieve_testkit::until("the death is found", Duration::from_mins(2), reported).await;
    let How::Died(death) = &found.how else { panic!("{found:?}") };
    // On the same machine, by the kernel's id of its boot.
    assert_eq!((death.held, death.machine_lives, found.jobs.len()), (12, true, 12), "{found:?}");
    assert!(death.work_kept_ms > 12_000 && death.work_lost_ms < 24_000, "{death:?}");
    other.signal(Signal::TERM);
    assert_eq!(other.ends(), Some(0));
    let Entries { boots, interruptions, failures, .. } = entries(&client).await;
    let notices: Vec<_> = interruptions.iter().map(|it| it.notice()).collect();
    assert_eq!((boots.len(), notices, failures.len()), (1, vec![None, Some("Signal")], 0));
    assert!(
        boots[0].machine.booted_unix_ms.is_some_and(|at| at > 0 && at <= boots[0].at_unix_ms),
        "{boots:?}"
    );
}
