//! Readers that keep up, readers that fall behind, and the changes that each receives.

use proptest::prelude::*;
use tokio::time::timeout;

use super::*;
use crate::scheduled_events::document::{Answer, ApiVersion};
use crate::scheduled_events::document::{Document, Event, EventStatus, EventType, Incarnation};
use crate::scheduled_events::watcher::BEHIND_MAX;

/// A watch without a service: the test supplies the documents.
struct Documents(Arc<Mutex<WatchState>>);

impl Documents {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(WatchState::new(ApiVersion::NEWEST))))
    }

    fn subscribe(&self) -> Changes {
        Changes::subscribe(&self.0)
    }

    fn document(&self, events: &[Event]) {
        let document = Document { document_incarnation: Incarnation::default(), events: events.to_vec() };
        let mut shared = lock(&self.0);
        for change in shared.active_events.update(&Answer::now(document, ApiVersion::NEWEST), "me_0") {
            drop(shared.feed.send(Arc::new(change)));
        }
    }
}

fn event(id: &str, event_status: EventStatus) -> Event {
    Event {
        event_id: id.to_owned(),
        event_type: EventType::Freeze,
        event_status,
        resources: vec!["me_0".to_owned()],
        ..Event::default()
    }
}

/// All changes that are ready now.
async fn received(changes: &mut Changes) -> Vec<String> {
    let mut received = Vec::new();
    while let Ok(Some(change)) = timeout(std::time::Duration::ZERO, changes.next()).await {
        received.push(format!("{} {}", change.id(), change.kind.as_str()));
    }
    received
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_gets_the_active_events_and_then_every_change() {
    let documents = Documents::new();
    documents.document(&[event("a", EventStatus::Scheduled), event("b", EventStatus::Started)]);
    let mut changes = documents.subscribe();
    documents.document(&[event("a", EventStatus::Started)]);
    assert_eq!(received(&mut changes).await, ["a noticed", "b started", "a started", "b completed"]);
    assert_eq!(received(&mut changes).await, [""; 0]);
    assert_eq!(changes.missed(), 0);
}

#[tokio::test(start_paused = true)]
async fn subscribers_take_nothing_from_each_other() {
    let documents = Documents::new();
    let (mut one, mut two) = (documents.subscribe(), documents.subscribe());
    documents.document(&[event("a", EventStatus::Scheduled)]);
    assert_eq!(received(&mut one).await, ["a noticed"]);
    assert_eq!(received(&mut two).await, ["a noticed"]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_far_behind_gets_the_active_events_and_the_endings_of_those_it_knew() {
    let documents = Documents::new();
    let known = [
        event("gone", EventStatus::Scheduled),
        event("begun", EventStatus::Scheduled),
        event("same", EventStatus::Started),
    ];
    documents.document(&known);
    let mut changes = documents.subscribe();
    assert_eq!(received(&mut changes).await, ["begun noticed", "gone noticed", "same started"]);

    let active = [event("begun", EventStatus::Started), event("same", EventStatus::Started)];
    for _ in 0..BEHIND_MAX {
        documents.document(&[&active[..], &[event("flash", EventStatus::Scheduled)]].concat());
        documents.document(&active);
    }
    documents.document(&[&active[..], &[event("new", EventStatus::Scheduled)]].concat());
    assert_eq!(received(&mut changes).await, ["begun started", "new noticed", "gone withdrawn"]);
    assert_eq!(changes.missed(), 2 * BEHIND_MAX as u64 + 3);
    documents.document(&[]);
    assert_eq!(received(&mut changes).await, ["begun completed", "new withdrawn", "same completed"]);
}

#[tokio::test(start_paused = true)]
async fn queued_changes_outlive_the_watcher() {
    let documents = Documents::new();
    let mut changes = documents.subscribe();
    documents.document(&[event("a", EventStatus::Scheduled)]);
    drop(documents);
    assert_eq!(changes.next().await.map(|change| change.kind), Some(ChangeKind::Noticed));
    assert_eq!(changes.next().await, None);
    assert_eq!(changes.next().await, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_reader_that_has_caught_up_knows_the_active_events_however_slow_it_was(
        steps in proptest::collection::vec((proptest::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4), any::<bool>(), 0_usize..200), 1..12)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let documents = Documents::new();
            let mut changes = documents.subscribe();
            let mut known = BTreeMap::new();
            for (ids, started, flashes) in steps {
                for _ in 0..flashes {
                    documents.document(&[event("x", EventStatus::Started)]);
                    documents.document(&[]);
                }
                let status = if started { EventStatus::Started } else { EventStatus::Scheduled };
                let events: Vec<_> = ids.into_iter().map(|id| event(id, status.clone())).collect();
                documents.document(&events);
                while let Ok(Some(change)) = timeout(std::time::Duration::ZERO, changes.next()).await {
                    if change.kind.has_ended() {
                        known.remove(&change.id()).expect("only a reported event ends");
                    } else {
                        known.insert(change.id(), change.event);
                    }
                }
                let known: Vec<_> = known.values().cloned().collect();
                assert_eq!(known, events);
            }
        });
    }
}
