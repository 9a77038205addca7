//! Applies the answers, and publishes each change to the worker and the subscribers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use reprieve_core::ports::Change;
use tokio::sync::mpsc;
use tracing::{debug, info};

use super::clock_difference::ClockDifference;
use super::log;
use super::{WatchState, lock};
use crate::scheduled_events::document::{Answer, ApiVersion, Incarnation, ServiceClock};

/// How far the service's clock may move against the timers' clock before the worker gets its deadlines
/// again. Smaller corrections are frequent, and no drain is planned so closely.
const CLOCK_STEP_MAX: Duration = Duration::from_secs(1);

/// Publishes the changes of each answer, as soon as this VM's name is known.
#[derive(Debug)]
pub(super) struct ChangePublisher {
    shared: Arc<Mutex<WatchState>>,
    /// Unbounded, so that a busy worker never delays a poll. An event changes only a few times in
    /// its life.
    worker: mpsc::UnboundedSender<Change>,
    /// This VM's name in `Resources`.
    name: Option<String>,
    /// The last answer in each api-version, while this VM's name is not known.
    unread: BTreeMap<ApiVersion, Answer>,
    incarnations: BTreeMap<ApiVersion, Incarnation>,
    clock_difference: ClockDifference,
    /// The clocks by which the worker has its deadlines, give or take [`CLOCK_STEP_MAX`].
    clocks: Option<Clocks>,
    has_answered: bool,
}

impl ChangePublisher {
    pub(super) fn new(
        shared: Arc<Mutex<WatchState>>,
        worker: mpsc::UnboundedSender<Change>,
        name: Option<String>,
    ) -> Self {
        let (unread, incarnations) = (BTreeMap::new(), BTreeMap::new());
        if let Some(name) = &name {
            drop(worker.send(Change::Named(name.clone())));
        }
        Self {
            shared,
            worker,
            name,
            unread,
            incarnations,
            clock_difference: ClockDifference::default(),
            clocks: None,
            has_answered: false,
        }
    }

    /// Whether both an answer and the name are known.
    pub(super) const fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Whether this VM's name is not known.
    pub(super) const fn lacks_name(&self) -> bool {
        self.name.is_none()
    }

    /// Whether only the name is missing.
    pub(super) fn lacks_only_the_name(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Sets this VM's name, and applies the answers that waited for it.
    pub(super) fn set_name(&mut self, name: String) {
        drop(self.worker.send(Change::Named(name.clone())));
        self.name = Some(name);
        let mut unread: Vec<_> = std::mem::take(&mut self.unread).into_values().collect();
        unread.sort_by_key(|answer| answer.at);
        for answer in unread {
            self.apply(answer);
        }
    }

    /// Applies an answer and sends its changes.
    pub(super) fn apply(&mut self, answer: Answer) {
        self.check_incarnation(&answer);
        self.clock_difference.note(answer.at, answer.wall, answer.ahead);
        let ahead = self.clock_difference.ahead();
        let clock = ServiceClock::of(&answer, ahead);
        let clocks = Clocks { clock, ahead };
        let Some(name) = &self.name else {
            self.unread.insert(answer.version, answer);
            return;
        };
        let mut shared = lock(&self.shared);
        shared.ahead = ahead;
        if self.clocks.is_some_and(|before| before.are_outdated(clocks)) {
            self.clocks = Some(clocks);
            info!(
                "the service's clock has moved against this VM's timers, or the VM was frozen; its events are timed anew"
            );
            // The answer's own changes follow below.
            for change in shared.active_events.changes().filter(|change| change.not_before.is_some()) {
                if let Some(change) = change.for_worker(name, clock) {
                    drop(self.worker.send(change));
                }
            }
        }
        for change in shared.active_events.update(&answer, name) {
            log::event(&change);
            if let Some(change) = change.for_worker(name, clock) {
                self.clocks.get_or_insert(clocks);
                // The receiver is gone only while the watcher is being dropped, which ends the
                // watch too.
                drop(self.worker.send(change));
            }
            // A feed without subscribers is no error.
            drop(shared.feed.send(Arc::new(change)));
        }
        if !self.has_answered {
            self.has_answered = true;
            drop(self.worker.send(Change::Answered));
        }
        shared.documents.send_modify(|documents| *documents += 1);
    }

    fn check_incarnation(&mut self, answer: &Answer) {
        let incarnation = &answer.document.document_incarnation;
        let before = self.incarnations.get(&answer.version);
        if before == Some(incarnation) {
            return;
        }
        let (version, events) = (answer.version, answer.document.events.len());
        if before.is_some_and(|before| incarnation.is_reset_from(before)) {
            info!(%version, %incarnation, "the metadata service has restarted");
            lock(&self.shared).resets += 1;
        }
        debug!(%version, %incarnation, events, "the document has changed");
        self.incarnations.insert(version, incarnation.clone());
    }
}

/// The service's clock and the timers' clock at one time, and how far the service's was ahead of the wall clock.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    clock: ServiceClock,
    ahead: SignedDuration,
}

impl Clocks {
    /// Whether deadlines by these clocks are wrong by now. They come too late when the service's clock has
    /// advanced further than the timers': the VM was frozen, or its wall clock was set forward and there is no
    /// `Date`. They come too early when the service's clock has turned out to be another.
    fn are_outdated(self, now: Self) -> bool {
        let timers = now.clock.at.saturating_duration_since(self.clock.at);
        let (sooner, later) = match now.clock.wall.duration_since(self.clock.wall) {
            Ok(service) => (service.saturating_sub(timers), timers.saturating_sub(service)),
            Err(backward) => (Duration::ZERO, backward.duration() + timers),
        };
        let is_another = (now.ahead - self.ahead).unsigned_abs() > CLOCK_STEP_MAX;
        sooner > CLOCK_STEP_MAX || later > CLOCK_STEP_MAX && is_another
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduled_events::document::Document;

    /// A distant Preempt for this VM, one for another VM, and one without a time.
    const EVENTS: &str = r#"{"Events":[
        {"EventId":"a","EventType":"Preempt","EventStatus":"Scheduled","Resources":["me_0"],"NotBefore":"Mon, 11 Apr 2050 22:26:58 GMT"},
        {"EventId":"b","EventType":"Preempt","EventStatus":"Scheduled","Resources":["me_1"],"NotBefore":"Mon, 11 Apr 2050 22:26:58 GMT"},
        {"EventId":"c","EventType":"Freeze","EventStatus":"Started","Resources":["me_0"],"NotBefore":""}]}"#;

    #[tokio::test(start_paused = true)]
    async fn a_worker_gets_its_deadlines_again_when_the_wall_clock_is_set_and_there_is_no_date() {
        let shared = Arc::new(Mutex::new(WatchState::new(ApiVersion::NEWEST)));
        let (sender, mut received) = mpsc::unbounded_channel();
        let mut publisher = ChangePublisher::new(Arc::clone(&shared), sender, Some("me_0".to_owned()));
        let document = Document::read(EVENTS.as_bytes()).expect("a document");
        let first = Answer::now(document, ApiVersion::NEWEST);
        let mut sent_at = |seconds: u64, wall_ms: u64| {
            let at = first.at + Duration::from_secs(seconds);
            let wall = first.wall + Duration::from_millis(wall_ms);
            publisher.apply(Answer { at, wall, ..first.clone() });
            let sent = std::iter::from_fn(|| received.try_recv().ok());
            let sent = sent.map(|change| match change {
                Change::Noticed(notice) => notice.id.to_string(),
                other => format!("{other:?}"),
            });
            sent.collect::<Vec<_>>()
        };
        assert_eq!(sent_at(100, 100_000), [r#"Named("me_0")"#, "a", "c", "Answered"]);
        assert_eq!(sent_at(101, 101_000), [""; 0]);
        assert_eq!(sent_at(102, 103_000), [""; 0], "too small a step");
        assert_eq!(sent_at(103, 104_500), ["a"]);
        assert_eq!(sent_at(104, 105_500), [""; 0], "sent once");
        assert_eq!(sent_at(105, 0), [""; 0], "set back");
        assert_eq!(sent_at(106, 166_000), ["a"], "and forward by a minute");
        assert_eq!(lock(&shared).feed.receiver_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_date_that_jumps_for_one_answer_moves_no_deadline() {
        let shared = Arc::new(Mutex::new(WatchState::new(ApiVersion::NEWEST)));
        let (sender, mut received) = mpsc::unbounded_channel();
        let mut publisher = ChangePublisher::new(Arc::clone(&shared), sender, Some("me_0".to_owned()));
        let document = Document::read(EVENTS.as_bytes()).expect("a document");
        let first = Answer::now(document, ApiVersion::NEWEST);
        for (second, ahead) in [(0, 0), (1, 3_600), (2, 0), (3, -3_600), (4, 0), (5, 3_600), (6, 0)] {
            let after = Duration::from_secs(second);
            let (at, wall) = (first.at + after, first.wall + after);
            let ahead = Some(jiff::SignedDuration::from_secs(ahead));
            publisher.apply(Answer { at, wall, ahead, ..first.clone() });
        }
        let sent = std::iter::from_fn(|| received.try_recv().ok()).count();
        assert_eq!(sent, 4, "the name, two notices and the first answer");
        assert!(lock(&shared).ahead.is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_gets_later_deadlines_when_a_date_shows_that_the_wall_clock_was_ahead() {
        let shared = Arc::new(Mutex::new(WatchState::new(ApiVersion::NEWEST)));
        let (sender, mut received) = mpsc::unbounded_channel();
        let mut publisher = ChangePublisher::new(Arc::clone(&shared), sender, Some("me_0".to_owned()));
        let document = Document::read(EVENTS.as_bytes()).expect("a document");
        let first = Answer::now(document, ApiVersion::NEWEST);
        // The first answer was too slow for its `Date` to be used.
        for (second, ahead) in [(0, None), (1, Some(-1_200)), (2, Some(-1_200))] {
            let after = Duration::from_secs(second);
            let ahead = ahead.map(jiff::SignedDuration::from_secs);
            publisher.apply(Answer {
                at: first.at + after,
                wall: first.wall + after,
                ahead,
                ..first.clone()
            });
        }
        let deadlines = std::iter::from_fn(|| received.try_recv().ok()).filter_map(|change| match change {
            Change::Noticed(notice) => notice.not_before,
            _ => None,
        });
        let deadlines: Vec<_> = deadlines.collect();
        assert_eq!(deadlines.len(), 2);
        assert_eq!(deadlines[1] - deadlines[0], Duration::from_secs(1_200));
    }
}
