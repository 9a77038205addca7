//! The api-version of requests for events.

use std::time::Duration;

use reprieve_azure::scheduled_events::{ApiVersion, FailureKind, Watcher};
use reprieve_core::ErrorKind;
use reprieve_core::ports::{Change, InterruptionSource as _};
use tokio::time::{Instant, sleep, timeout};

use crate::service::{ME, Service, until};

use ApiVersion::{V2017_03_01, V2019_08_01, V2020_07_01, V2024_07_09};

#[tokio::test(start_paused = true)]
async fn one_call_asks_in_two_versions_and_prefers_the_newest() {
    let service = Service::with([V2020_07_01]).await;
    let client = service.client();
    let answer = client.answer(Duration::from_secs(5)).await.expect("a document");
    assert_eq!((answer.version, client.version()), (V2020_07_01, V2020_07_01));
    assert_eq!(std::mem::take(&mut service.state().polled).len(), 2);
    service.state().versions.insert(V2024_07_09);
    assert_eq!(client.answer(Duration::from_secs(5)).await.expect("a document").version, V2024_07_09);
}

#[tokio::test(start_paused = true)]
async fn one_call_falls_back_to_the_newest_version_there_is_and_remembers_it() {
    let service = Service::with([V2019_08_01]).await;
    let client = service.client();
    let answer = client.answer(Duration::from_secs(5)).await.expect("a document");
    assert_eq!((answer.version, client.version()), (V2019_08_01, V2019_08_01));
    service.state().polled.clear();
    client.clone().document(Duration::from_secs(5)).await.expect("a document");
    let mut polled = std::mem::take(&mut service.state().polled);
    polled.sort();
    assert_eq!(polled, ["2019-08-01", "2024-07-09"]);

    service.state().versions.insert(V2020_07_01);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(client.answer(Duration::from_secs(5)).await.expect("a document").version, V2020_07_01);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_is_replaced_by_any_that_is_there() {
    let service = Service::with([V2019_08_01]).await;
    let client = service.client();
    client.document(Duration::from_secs(10)).await.expect("a document");
    service.state().versions = [V2017_03_01].into();
    assert_eq!(client.answer(Duration::from_secs(10)).await.expect("a document").version, V2017_03_01);
}

#[tokio::test(start_paused = true)]
async fn a_service_without_any_version_is_reported_by_its_refusal_of_the_newest() {
    let service = Service::with([]).await;
    let error = service.client().document(Duration::from_secs(10)).await.expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("404"), "{error}");
    assert_eq!(service.state().polled.len(), ApiVersion::ALL.len());
    // Never longer than the given time, however many versions there are to try.
    let began = Instant::now();
    service.client().document(Duration::from_secs(1)).await.expect_err("nothing is there");
    assert!(began.elapsed() <= Duration::from_millis(1100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_pinned_version_is_the_only_one_that_is_asked_for() {
    let service = Service::with([V2020_07_01]).await;
    let pinned = service.client().with_version(V2024_07_09);
    assert_eq!(
        pinned.document(Duration::from_secs(5)).await.expect_err("not there").kind(),
        ErrorKind::Unavailable
    );
    let watcher = Watcher::spawn(pinned, None);
    until("the service was polled", || watcher.stats().failures.of(FailureKind::Refused) >= 5).await;
    assert_eq!(watcher.stats().version, V2024_07_09);
    assert!(service.state().polled.iter().all(|version| version == "2024-07-09"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_finds_its_version_without_counting_that_as_trouble_and_probes_newer_ones() {
    let service = Service::with([V2020_07_01]).await;
    let watcher = service.watch().await;
    assert_eq!((watcher.stats().version, watcher.stats().errors), (V2020_07_01, 0));
    service.state().versions.insert(V2024_07_09);
    until("the newer version is found", || watcher.stats().version == V2024_07_09).await;
    assert_eq!(watcher.stats().errors, 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_leaves_a_version_that_is_gone_and_keeps_one_that_was_only_away() {
    let service = Service::with(ApiVersion::ALL).await;
    service.event("a", "Terminate", &[ME]);
    let watcher = service.watch().await;
    assert_eq!(watcher.stats().version, V2024_07_09);

    // A proxy that refuses everything for a while.
    let all = std::mem::take(&mut service.state().versions);
    until("refusals are counted", || watcher.stats().failures.of(FailureKind::Refused) >= 10).await;
    service.state().versions = all;
    let refused = watcher.stats().failures.of(FailureKind::Refused);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(watcher.stats().version, V2024_07_09);
    assert!(watcher.stats().failures.of(FailureKind::Refused) <= refused + 1, "{:?}", watcher.stats());

    service.state().versions.remove(&V2024_07_09);
    until("the version is replaced", || watcher.stats().version == V2020_07_01).await;
    sleep(Duration::from_secs(3)).await;
    assert!(watcher.stats().answer_age.expect("an answer") < Duration::from_secs(3));
    assert_eq!(watcher.next().await, Change::Named(ME.to_owned()));
    assert!(matches!(watcher.next().await, Change::Noticed(_)));
    assert_eq!(watcher.next().await, Change::Answered);
    let more = timeout(Duration::from_secs(5), watcher.next()).await;
    assert!(more.is_err(), "nothing has changed for the event, but {more:?}");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_version_works() {
    let service = Service::with([V2017_03_01]).await;
    service.event("a", "Reboot", &["_me_0", "_me_1"]);
    let watcher = service.watch().await;
    assert_eq!(watcher.next().await, Change::Named(ME.to_owned()));
    let Change::Noticed(notice) = watcher.next().await else { panic!("a notice was due") };
    assert_eq!(
        (notice.machine.as_str(), &notice.resources[..]),
        (ME, &["me_0".to_owned(), "me_1".to_owned()][..])
    );
    assert_eq!((watcher.stats().version, watcher.stats().errors), (V2017_03_01, 0));
}
