//! The request rate of a watch, counted in the client itself: requests may arrive late.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reprieve_azure::scheduled_events::{ApiVersion, Watcher};
use reprieve_core::NoticeId;
use reprieve_core::ports::InterruptionSource as _;
use tokio::time::{Instant, sleep};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::service::{ME, Reply, Service, until};

/// The times at which this thread sent requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<Vec<Instant>>>);

impl<S: tracing::Subscriber> Layer<S> for Sent {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        struct IsRequest(bool);
        impl Visit for IsRequest {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 |= field.name() == "message" && format!("{value:?}") == "metadata request";
            }
        }
        let mut request = IsRequest(false);
        event.record(&mut request);
        if request.0 {
            self.0.lock().expect("no panic").push(Instant::now());
        }
    }
}

impl Sent {
    /// Counts this thread's requests until the guard is dropped.
    pub(crate) fn count() -> (Self, tracing::subscriber::DefaultGuard) {
        let sent = Self::default();
        (sent.clone(), tracing::subscriber::set_default(tracing_subscriber::registry().with(sent)))
    }

    /// Returns the highest number of requests in any second.
    pub(crate) fn most_in_a_second(&self) -> usize {
        let sent = self.0.lock().expect("no panic");
        let second = |from: &Instant| {
            let end = *from + Duration::from_secs(1);
            sent.iter().filter(|at| **at >= *from && **at < end).count()
        };
        sent.iter().map(second).max().unwrap_or(0)
    }

    pub(crate) fn total(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

/// Watches a service with these versions for a minute. Returns the most requests in a second, the number
/// of polls, and the number of other requests.
async fn requests(known: &[ApiVersion]) -> (usize, u64, u64) {
    let service = Service::with(known.iter().copied()).await;
    let (sent, _counting) = Sent::count();
    let watcher = Watcher::spawn(service.client(), None);
    sleep(Duration::from_secs(60)).await;
    let polls = watcher.stats().polls;
    (sent.most_in_a_second(), polls, sent.total() as u64 - polls)
}

#[track_caller]
fn check((most, polls, others): (usize, u64, u64), at_most: usize, expected: RangeInclusive<u64>) {
    assert!(most <= at_most, "{most} requests in a second");
    assert!(expected.contains(&polls), "{polls} polls");
    assert_eq!(others, 1, "the name");
}

#[tokio::test(start_paused = true)]
async fn no_second_has_more_requests_than_the_service_allows() {
    check(requests(&ApiVersion::ALL).await, 3, 115..=122);
    // The newest is tried for 10 s, and then every 30 s.
    check(requests(&[ApiVersion::V2020_07_01]).await, 3, 69..=75);
    // So are the documented one, and older ones that are newer than the one in use.
    check(requests(&[ApiVersion::V2019_08_01]).await, 5, 78..=90);
    check(requests(&[ApiVersion::V2017_11_01]).await, 5, 80..=105);
    // One that lists no evictions is not enough.
    check(requests(&[ApiVersion::V2017_03_01]).await, 5, 130..=150);
    check(requests(&[]).await, 5, 180..=200);
}

#[tokio::test(start_paused = true)]
async fn a_second_in_which_both_versions_begin_to_fail_has_six_requests() {
    let service = Service::with(ApiVersion::ALL).await;
    let (sent, _counting) = Sent::count();
    let watcher = Watcher::spawn(service.client(), Some(ME.to_owned()));
    sleep(Duration::from_secs(20)).await;
    service.state().versions.clear();
    sleep(Duration::from_secs(8)).await;
    assert!(sent.most_in_a_second() <= 6, "{}", sent.most_in_a_second());
    let polls = watcher.stats().polls;
    sleep(Duration::from_secs(60)).await;
    let sent = watcher.stats().polls - polls;
    assert!((180..=210).contains(&sent), "three a second, and all at once every 10 s at most: {sent}");
}

#[tokio::test(start_paused = true)]
async fn approvals_that_are_tried_again_keep_within_the_limit() {
    let service = Service::with([ApiVersion::V2020_07_01]).await;
    for id in ["a", "b", "c", "d"] {
        service.event(id, "Freeze", &[ME]);
    }
    let watcher = service.watch().await;
    let (sent, _counting) = Sent::count();
    service.state().approvals.extend([Reply::Status(500), Reply::Status(429), Reply::Status(400)]);
    let ids = ["a", "b", "c", "d"].map(NoticeId::new);
    watcher.approve(&ids, Duration::from_secs(20)).await.expect("an approval of each");
    until("all is calm", || service.state().approved.len() == 7).await;
    assert!(sent.most_in_a_second() <= 5, "{}", sent.most_in_a_second());
}
