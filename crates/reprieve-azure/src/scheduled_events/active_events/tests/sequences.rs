//! Properties of every sequence of documents, in any mix of versions.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::scheduled_events::document::{EventStatus, Incarnation};

/// Events among a few ids, types, states and VMs, so that sequences cover every transition.
fn some_event() -> impl Strategy<Value = Event> {
    let status = prop_oneof![Just(EventStatus::Scheduled), Just(EventStatus::Started)];
    let kind = prop_oneof![Just(EventType::Preempt), Just(EventType::Freeze)];
    let vms = proptest::sample::subsequence(vec!["me_0".to_owned(), "me_1".to_owned()], 0..=2);
    let not_before = prop_oneof![Just(""), Just("soon"), Just("Mon, 11 Apr 2022 22:26:58 GMT")];
    ("[A-C]?", status, kind, vms, not_before, proptest::option::of(-1_i64..3)).prop_map(
        |(event_id, event_status, event_type, resources, not_before, duration_in_seconds)| Event {
            event_id,
            event_status,
            event_type,
            resources,
            not_before: not_before.to_owned(),
            duration_in_seconds,
            ..Event::default()
        },
    )
}

fn some_answers() -> impl Strategy<Value = Vec<Answer>> {
    let version = proptest::sample::select(ApiVersion::ALL.to_vec());
    let events = proptest::collection::vec(some_event(), 0..4);
    let answer = (version, events, 0..8_u64).prop_map(|(version, events, after)| {
        (Answer::now(Document { document_incarnation: Incarnation::default(), events }, version), after)
    });
    proptest::collection::vec(answer, 1..12).prop_map(|answers| {
        let mut at = Instant::now();
        let answers = answers.into_iter().map(|(answer, after)| {
            at += Duration::from_secs(after);
            Answer { at, ..answer }
        });
        answers.collect()
    })
}

proptest! {
    #[test]
    fn the_changes_add_up_to_the_active_events(answers in some_answers()) {
        let mut active = ActiveEvents::default();
        let mut known: BTreeMap<(Scope, NoticeId), EventChange> = BTreeMap::new();
        for answer in answers {
            for change in active.update(&answer, "me_0") {
                let key = (change.scope, change.id());
                match (change.kind, known.get(&key)) {
                    (ChangeKind::Noticed, None) => prop_assert_eq!(change.event.event_status.phase(), Phase::Scheduled),
                    (ChangeKind::Started, before) => {
                        prop_assert_eq!(change.event.event_status.phase(), Phase::Started);
                        prop_assert!(before.is_none_or(|it| it.event.event_status.phase() == Phase::Scheduled));
                    }
                    (ChangeKind::Changed, Some(before)) => prop_assert_ne!(&before.event, &change.event),
                    (ending @ (ChangeKind::Withdrawn | ChangeKind::Completed), Some(before)) => {
                        prop_assert_eq!(ending, ChangeKind::ending(before.event.event_status.phase()));
                    }
                    (what, before) => prop_assert!(false, "{:?} after {:?}", what, before),
                }
                if change.kind.has_ended() { known.remove(&key); } else { known.insert(key, change); }
            }
            let active_now: Vec<_> = active.changes().map(|change| (change.scope, change.event)).collect();
            let known_now: Vec<_> = known.iter().map(|((scope, _), change)| (*scope, change.event.clone())).collect();
            prop_assert_eq!(known_now, active_now);
            for event in &answer.document.events {
                prop_assert!(known.contains_key(&key(event, "me_0")), "{:?} is reported", event);
            }
            prop_assert_eq!(active.update(&answer, "me_0"), vec![], "the same answer again");
        }
    }

    #[test]
    fn a_worker_misses_no_event_and_no_ending(answers in some_answers()) {
        let mut active = ActiveEvents::default();
        let mut believed: BTreeMap<NoticeId, Notice> = BTreeMap::new();
        for answer in answers {
            for change in active.update(&answer, "me_0").iter().filter_map(|it| it.for_worker("me_0", clock(&answer))) {
                match change {
                    Change::Answered | Change::Named(_) => prop_assert!(false, "only the watcher answers"),
                    Change::Noticed(notice) => { believed.insert(notice.id.clone(), notice); }
                    Change::Over(id, ending) => {
                        let over = believed.remove(&id).expect("only what active is over");
                        prop_assert_eq!(ending == Ending::Completed, over.phase == Phase::Started);
                    }
                }
            }
            for event in answer.document.events.iter().filter(|event| event.concerns("me_0")) {
                prop_assert!(believed.contains_key(&event.notice_id()));
            }
        }
        // The newest version hides nothing, so its empty document ends every event.
        // No other version has listed one for a while.
        let last = answer(NOTHING, ApiVersion::NEWEST);
        let last = Answer { at: last.at + Duration::from_mins(5), ..last };
        prop_assert_eq!(active.update(&last, "me_0").iter().filter(|it| it.scope == Scope::ThisVm).count(), believed.len());
        prop_assert_eq!(active.changes().count(), 0);
    }
}
