//! A sequence of documents as an interruption source, which checks every approval.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proptest::prelude::*;
use reprieve_azure::scheduled_events::document::{Document, Event, EventStatus, EventType, ServiceClock};
use reprieve_azure::scheduled_events::{ActiveEvents, Answer, ApiVersion, NotBefore};
use reprieve_core::clock::wall_now;
use reprieve_core::interruption::Approve;
use reprieve_core::ports::{Change, InterruptionSource};
use reprieve_core::{NoticeId, Result};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A document, and the time until the next one.
#[derive(Debug, Clone)]
pub(crate) struct TimedDocument {
    pub(crate) document: Document,
    pub(crate) wait: Duration,
}

/// The latest `NotBefore` of an event.
const NOTICE_MAX_S: u64 = 1200;

/// The time in which the worker has seen a document.
const HEARD_WITHIN: Duration = Duration::from_millis(50);

pub(crate) fn nothing() -> Document {
    Document { document_incarnation: 1.into(), events: Vec::new() }
}

fn event() -> impl Strategy<Value = Event> {
    let types =
        ["Preempt", "Terminate", "Reboot", "Redeploy", "Freeze", "SpotRebalanceRecommendation", "Surprise"];
    let resources = [&["vm_0"][..], &["VM_0", "vm_1"], &["vm_1", "vm_0"], &["vm_1"], &[]];
    let when = prop_oneof![Just(None), (0..60_u64).prop_map(Some), (0..NOTICE_MAX_S).prop_map(Some)];
    let parts = (0..4_u8, prop::sample::select(types.to_vec()), prop::sample::select(resources.to_vec()));
    (parts, any::<bool>(), when, any::<bool>(), prop::option::of(0..40_i64)).prop_map(
        |((id, event_type, resources), started, when, user, duration)| {
            let not_before =
                when.and_then(|seconds| NotBefore::write(wall_now() + Duration::from_secs(seconds)));
            Event {
                event_id: format!("EVENT-{id}"),
                event_status: if started { EventStatus::Started } else { EventStatus::Scheduled },
                event_type: event_type.to_owned().into(),
                resource_type: "VirtualMachine".to_owned(),
                resources: resources.iter().map(|name| (*name).to_owned()).collect(),
                not_before: not_before.unwrap_or_default(),
                description: String::new(),
                event_source: if user { "User" } else { "Platform" }.to_owned(),
                duration_in_seconds: Some(duration.unwrap_or(-1)),
            }
        },
    )
}

pub(crate) fn documents() -> impl Strategy<Value = Vec<TimedDocument>> {
    let wait = prop_oneof![Just(0), 0..20_u64, 0..900_u64].prop_map(Duration::from_secs);
    let document = (any::<u64>(), prop::collection::vec(event(), 0..4));
    let reported = (document, wait).prop_map(|((incarnation, events), wait)| TimedDocument {
        document: Document { document_incarnation: incarnation.into(), events },
        wait,
    });
    prop::collection::vec(reported, 0..8)
}

/// An interruption source that reports the changes of documents.
#[derive(Debug)]
pub(crate) struct Script {
    name: &'static str,
    approve: Approve,
    state: Mutex<State>,
    sender: mpsc::UnboundedSender<Change>,
    changes: tokio::sync::Mutex<mpsc::UnboundedReceiver<Change>>,
}

#[derive(Debug)]
struct State {
    active: ActiveEvents,
    /// The reported changes and their times, the newest last.
    reported: Vec<(Instant, Document)>,
    faults: Vec<String>,
}

impl Script {
    pub(crate) fn new(name: &'static str, approve: Approve) -> Self {
        let (sender, changes) = mpsc::unbounded_channel();
        let state = State {
            active: ActiveEvents::default(),
            reported: vec![(Instant::now(), nothing())],
            faults: Vec::new(),
        };
        let script = Self {
            name,
            approve,
            state: Mutex::new(state),
            sender,
            changes: tokio::sync::Mutex::new(changes),
        };
        script.send(Change::Answered);
        script
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, change: Change) {
        self.sender.send(change).expect("a script that is there");
    }

    /// Sets the service's answer from now on.
    pub(crate) fn set_answer(&self, document: Document) {
        let mut state = self.lock();
        let answer = Answer::now(document.clone(), ApiVersion::ALL[0]);
        for change in state.active.update(&answer, self.name) {
            if let Some(change) =
                change.for_worker(self.name, ServiceClock { at: answer.at, wall: answer.wall })
            {
                self.send(change);
            }
        }
        state.reported.push((Instant::now(), document));
    }

    /// Whether a drain under this document may leave jobs that will be done in time.
    pub(crate) fn has_patience(&self, document: &Document) -> bool {
        let patient = |event: &Event| {
            event.event_type == EventType::Terminate && event.event_status == EventStatus::Scheduled
        };
        document.events.iter().any(|event| event.concerns(self.name) && patient(event))
    }

    pub(crate) fn document(&self) -> Document {
        self.lock().reported.last().expect("a document").1.clone()
    }

    /// The approvals that were wrong.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.lock().faults.clone()
    }

    /// Returns why this may not be approved now. It considers the active events, and those that
    /// were active until a moment ago: the worker may not have seen their end.
    fn fault(&self, state: &State, id: &NoticeId) -> Option<String> {
        let recent = Instant::now() - HEARD_WITHIN;
        let recently_active =
            state.reported.iter().zip(state.reported.iter().skip(1)).filter(|(_, (over, _))| *over >= recent);
        let documents = recently_active
            .map(|((_, document), _)| document)
            .chain(state.reported.last().map(|(_, document)| document));
        // An id that occurs twice in a document is reported once, as its last.
        let is_ours = |event: &&Event| event.notice_id() == *id && event.concerns(self.name);
        let faults = documents.map(|document| match document.events.iter().rfind(is_ours) {
            Some(event) => Some(format!("{event:?} {}", self.fault_of(event)?)),
            None => Some(format!("{id} does not stand")),
        });
        let faults: Option<Vec<_>> = faults.collect();
        faults.map(|faults| faults.join(", "))
    }

    fn fault_of(&self, event: &Event) -> Option<&'static str> {
        let ours = |name: &String| name.eq_ignore_ascii_case(self.name);
        match event.event_type {
            EventType::Preempt | EventType::SpotRebalanceRecommendation | EventType::Other(_) => {
                return Some("can't be approved");
            }
            EventType::Freeze | EventType::Reboot | EventType::Redeploy | EventType::Terminate => {}
        }
        if event.event_status == EventStatus::Started {
            return Some("has begun");
        }
        if !event.resources.iter().any(ours) {
            return Some("is not ours");
        }
        match self.approve {
            Approve::Never => Some("may not be approved by any VM"),
            Approve::Any => None,
            // No other machine of these scripts is ever ready.
            Approve::Sole | Approve::Leader => (event.resources.len() > 1).then_some("is not ours alone"),
        }
    }
}

#[async_trait::async_trait]
impl InterruptionSource for Script {
    async fn next(&self) -> Change {
        match self.changes.lock().await.recv().await {
            Some(change) => change,
            None => std::future::pending().await,
        }
    }

    async fn approve(&self, notices: &[NoticeId], _: Duration) -> Result<()> {
        let mut state = self.lock();
        let faults: Vec<_> = notices.iter().filter_map(|id| self.fault(&state, id)).collect();
        state.faults.extend(faults);
        for id in notices {
            state.active.approval(id)?;
        }
        Ok(())
    }
}
