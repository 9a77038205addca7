//! The request rate of a watch, counted in the client itself: requests may arrive late.

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
struct Sent(Arc<Mutex<Vec<Instant>>>);

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
    fn count() -> (Self, tracing::subscriber::DefaultGuard) {
        let sent = Self::default();
        (sent.clone(), tracing::subscriber::set_default(tracing_subscriber::registry().with(sent)))
    }

    /// Returns the highest number of requests in any second.
    fn most_in_a_second(&self) -> usize {
        let sent = self.0.lock().expect("no panic");
        let second = |from: &Instant| {
            let end = *from + Duration::from_secs(1);
            sent.iter().filter(|at| **at >= *from && **at < end).count()
        };
        sent.iter().map(second).max().unwrap_or(0)
    }

    fn total(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

/// Watches a service with these versions for this long. Returns the number of requests besides the
/// polls.
async fn besides(known: &[ApiVersion], seconds: u64) -> usize {
    let service = Service::with(known.iter().copied()).await;
    let (sent, _counting) = Sent::count();
    let watcher = Watcher::spawn(service.client(), None);
    sleep(Duration::from_secs(seconds)).await;
    assert!(sent.most_in_a_second() <= 3, "{} in a second; {known:?}", sent.most_in_a_second());
    let polls = watcher.stats().polls;
    assert!(polls + 2 >= seconds, "one a second: {polls}");
    sent.total() - usize::try_from(polls).expect("some thousands")
}

#[tokio::test(start_paused = true)]
async fn no_second_has_more_than_three_requests() {
    assert_eq!(besides(&ApiVersion::ALL, 60).await, 1, "the name");
    assert_eq!(besides(&[ApiVersion::V2020_07_01], 60).await, 1, "the newest has polls of its own");
    assert_eq!(
        besides(&[ApiVersion::V2017_03_01], 60).await,
        1 + 6,
        "the name, and all versions up to the documented one"
    );
    assert!(besides(&[], 60).await > 40, "a service that refuses all is asked for all");
}

#[tokio::test(start_paused = true)]
async fn newer_versions_are_asked_for_once_an_hour_within_the_pace() {
    assert_eq!(besides(&[ApiVersion::V2017_03_01], 3600 + 60).await, 1 + 2 * 6);
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
