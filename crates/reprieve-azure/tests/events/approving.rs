//! Approvals of one event and of several, by a service that accepts them, refuses them or is away.

use std::time::Duration;

use reprieve_azure::scheduled_events::{ApiVersion, Watcher};
use reprieve_core::ports::InterruptionSource as _;
use reprieve_core::{ErrorKind, NoticeId};
use tokio::time::Instant;

use crate::service::{ME, Reply, Service};

const WITHIN: Duration = Duration::from_secs(10);

/// A service with events for this VM, and a watcher that has seen them.
async fn with(events: &[&str]) -> (Service, Watcher) {
    let service = Service::with([ApiVersion::V2020_07_01]).await;
    for id in events {
        service.event(id, "Freeze", &[ME, "me_1"]);
    }
    let watcher = service.watch().await;
    (service, watcher)
}

fn ids(ids: &[&str]) -> Vec<NoticeId> {
    ids.iter().map(|id| NoticeId::new(id)).collect()
}

/// Returns the ids of each approval that was sent.
fn sent(service: &Service) -> Vec<String> {
    service.state().approved.iter().map(|(_, ids)| ids.join(" ")).collect()
}

#[tokio::test(start_paused = true)]
async fn several_events_are_approved_in_one_request_as_the_service_spells_them() {
    let (service, watcher) = with(&["A", "b", "c"]).await;
    watcher.approve(&ids(&["b", "a", "B"]), WITHIN).await.expect("an approval");
    assert_eq!(service.state().approved, [("2020-07-01".to_owned(), vec!["A".to_owned(), "b".to_owned()])]);
    assert_eq!(watcher.stats().approvals, 2);
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_retried_within_the_time() {
    for reply in
        [410, 429, 500, 503, 404].map(Reply::Status).into_iter().chain([Reply::BreakOff, Reply::Hang])
    {
        let (service, watcher) = with(&["a"]).await;
        service.state().approvals.extend([reply.clone(), reply.clone()]);
        watcher.approve(&ids(&["a"]), WITHIN).await.unwrap_or_else(|error| panic!("{reply:?}: {error}"));
        assert_eq!(sent(&service), ["a", "a", "a"], "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_web_page_is_no_approval() {
    let (service, watcher) = with(&["a"]).await;
    service.state().approvals.push_back(Reply::Page("<html>Sign in</html>"));
    watcher.approve(&ids(&["a"]), Duration::MAX).await.expect("an approval, the second time");
    assert_eq!((sent(&service).len(), watcher.stats().approvals), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_keeps_failing_ends_in_time_with_the_reason() {
    let (service, watcher) = with(&["a"]).await;
    for (reply, kind) in [(Reply::Status(503), ErrorKind::Unavailable), (Reply::Hang, ErrorKind::TimedOut)] {
        service.state().approvals = std::iter::repeat_n(reply, 50).collect();
        let began = Instant::now();
        let error = watcher.approve(&ids(&["a"]), Duration::from_secs(3)).await.expect_err("away");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(began.elapsed() <= Duration::from_secs(3), "{:?}", began.elapsed());
    }
    assert_eq!(watcher.stats().approvals, 0);
}

#[tokio::test(start_paused = true)]
async fn an_ended_event_keeps_no_other_from_being_approved() {
    let (service, watcher) = with(&["a", "b", "c"]).await;
    // The watcher has not seen that yet.
    service.over("b");
    service.state().unapprovable.push("b".to_owned());
    watcher.approve(&ids(&["a", "b", "c"]), WITHIN).await.expect("what is over needs none");
    let sent = sent(&service);
    assert_eq!(sent[0], "a b c");
    assert!(sent.contains(&"a".to_owned()) && sent.contains(&"c".to_owned()), "{sent:?}");
    assert_eq!(watcher.stats().approvals, 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_an_active_event_is_an_error_and_the_others_are_approved() {
    let (service, watcher) = with(&["a", "b", "c"]).await;
    service.state().unapprovable.push("a".to_owned());
    let error = watcher.approve(&ids(&["a", "b", "c"]), WITHIN).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().starts_with("approve an event: event a: ") && error.to_string().contains("400"),
        "{error}"
    );
    assert_eq!(sent(&service), ["a b c", "a", "b", "c"]);
    assert_eq!(watcher.stats().approvals, 2);
}

#[tokio::test(start_paused = true)]
async fn an_advice_and_an_event_of_others_are_refused_before_anything_is_sent() {
    let service = Service::with(ApiVersion::ALL).await;
    service.event("mine", "Freeze", &[ME]);
    service.event("advice", "SpotRebalanceRecommendation", &[ME]);
    service.event("theirs", "Freeze", &["me_1"]);
    let watcher = service.watch().await;
    for id in ["advice", "theirs"] {
        let error = watcher.approve(&ids(&["mine", id]), WITHIN).await.expect_err(id);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(service.state().approved, []);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_known_to_be_over_needs_no_approval() {
    let (service, watcher) = with(&[]).await;
    watcher.approve(&ids(&["long-gone"]), WITHIN).await.expect("nothing to approve");
    watcher.approve(&[], WITHIN).await.expect("nothing to approve");
    assert_eq!(service.state().approved, []);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_watch_finds_the_version_first() {
    let service = Service::with([ApiVersion::V2019_08_01]).await;
    service.state().polls.extend([Reply::Status(410), Reply::BreakOff]);
    service.state().approvals.push_back(Reply::Status(429));
    service.client().approve(&["a", "b"], WITHIN).await.expect("an approval");
    let both = ("2019-08-01".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(service.state().approved, [both.clone(), both]);

    service.state().unapprovable.push("c".to_owned());
    let error = service.client().approve(&["c"], WITHIN).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
