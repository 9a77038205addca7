//! Sequences of documents, and what each says that the one before did not.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use reprieve_core::clock::wall_now;

use super::*;
use crate::scheduled_events::document::{EventStatus, Incarnation};

/// Feeds the documents to a fresh `Standing` of the VM `me_0` and compares what is told, one line per document.
#[track_caller]
fn check(steps: &[(&str, &[&str])]) {
    let mut standing = Standing::default();
    for (number, (document, expected)) in steps.iter().enumerate() {
        let document = Document::read(document.as_bytes()).expect(document);
        let told: Vec<_> = standing.update(&document, "me_0", Instant::now()).iter().map(brief).collect();
        assert_eq!(told, *expected, "document {number}: {document:?}");
    }
}

fn brief(change: &Change) -> String {
    match change {
        Change::Answered => "answered".to_owned(),
        Change::Noticed(notice) => {
            let at = if notice.not_before.is_some() { " at" } else { "" };
            format!("{} {} {:?}{at}", notice.id, notice.kind.as_str(), notice.phase)
        }
        Change::Over(id, ending) => format!("{id} {ending:?}"),
    }
}

const NOTHING: &str = r#"{"DocumentIncarnation":1,"Events":[]}"#;
const SCHEDULED: &str = r#"{"DocumentIncarnation":2,"Events":[{"EventId":"A","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["me_0"],"NotBefore":"Mon, 11 Apr 2022 22:26:58 GMT"}]}"#;
const SOONER: &str = r#"{"DocumentIncarnation":3,"Events":[{"EventId":"A","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["me_0"],"NotBefore":"Mon, 11 Apr 2022 22:26:50 GMT"}]}"#;
const STARTED: &str = r#"{"DocumentIncarnation":4,"Events":[{"EventId":"A","EventStatus":"Started","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["me_0"],"NotBefore":""}]}"#;

#[test]
fn an_event_is_told_when_it_comes_when_it_starts_and_when_it_is_over() {
    check(&[
        (NOTHING, &[]),
        (SCHEDULED, &["a Preempt Scheduled at"]),
        (SCHEDULED, &[]),
        (STARTED, &["a Preempt Started"]),
        (STARTED, &[]),
        (NOTHING, &["a Completed"]),
        (NOTHING, &[]),
    ]);
}

#[test]
fn the_published_live_migration_is_told_to_both_of_its_vms_and_to_no_other() {
    // The published sequence of four documents: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#example-responses
    let event = |status: &str, not_before: &str| {
        format!(
            r#"{{"DocumentIncarnation":2,"Events":[{{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123","EventStatus":"{status}","EventType":"Freeze","ResourceType":"VirtualMachine","Resources":["WestNO_0","WestNO_1"],"NotBefore":"{not_before}","Description":"Virtual machine is being paused because of a memory-preserving Live Migration operation.","EventSource":"Platform","DurationInSeconds":5}}]}}"#
        )
    };
    let documents = [
        NOTHING.to_owned(),
        event("Scheduled", "Mon, 11 Apr 2022 22:26:58 GMT"),
        event("Started", ""),
        NOTHING.to_owned(),
    ];
    let told = |name| {
        let mut standing = Standing::default();
        let all = documents.iter().flat_map(|body| {
            standing.update(&Document::read(body.as_bytes()).expect(body), name, Instant::now())
        });
        all.map(|change| brief(&change)).collect::<Vec<_>>()
    };
    let id = "c7061bac-afdc-4513-b24b-aa5f13a16123";
    let whole =
        [format!("{id} Freeze Scheduled at"), format!("{id} Freeze Started"), format!("{id} Completed")];
    assert_eq!(told("WestNO_0"), whole);
    assert_eq!(told("westno_1"), whole);
    assert_eq!(told("WestNO_10"), [""; 0]);
}

#[test]
fn an_event_that_vanishes_before_it_starts_is_withdrawn() {
    check(&[(SCHEDULED, &["a Preempt Scheduled at"]), (NOTHING, &["a Withdrawn"])]);
}

#[test]
fn an_event_may_start_without_having_been_scheduled() {
    check(&[(STARTED, &["a Preempt Started"]), (NOTHING, &["a Completed"])]);
}

#[test]
fn another_not_before_is_told() {
    check(&[(SCHEDULED, &["a Preempt Scheduled at"]), (SOONER, &["a Preempt Scheduled at"]), (SOONER, &[])]);
}

#[test]
fn an_event_that_comes_back_is_told_again() {
    check(&[
        (SCHEDULED, &["a Preempt Scheduled at"]),
        (NOTHING, &["a Withdrawn"]),
        (SCHEDULED, &["a Preempt Scheduled at"]),
    ]);
}

#[test]
fn a_notice_is_told_before_the_ending_that_came_with_it() {
    let other = SCHEDULED.replace(r#""A""#, r#""0""#);
    check(&[(SCHEDULED, &["a Preempt Scheduled at"]), (&other, &["0 Preempt Scheduled at", "a Withdrawn"])]);
}

#[test]
fn an_incarnation_that_starts_again_or_stays_hides_nothing() {
    let same = SCHEDULED.replace(r#"Incarnation":2"#, r#"Incarnation":1"#);
    let lower = STARTED.replace(r#"Incarnation":4"#, r#"Incarnation":0"#);
    check(&[(NOTHING, &[]), (&same, &["a Preempt Scheduled at"]), (&lower, &["a Preempt Started"])]);
}

#[test]
fn an_id_in_another_case_is_the_same_event() {
    check(&[
        (SCHEDULED, &["a Preempt Scheduled at"]),
        (&STARTED.replace(r#""A""#, r#""a""#), &["a Preempt Started"]),
    ]);
}

#[test]
fn an_id_that_is_given_twice_does_not_change_at_every_poll() {
    let (_, one) = SCHEDULED.split_once('[').expect("events");
    let (_, two) = STARTED.split_once('[').expect("events");
    let both = format!(r#"{{"Events":[{},{}"#, one.trim_end_matches("]}"), two);
    check(&[(&both, &["a Preempt Started"]), (&both, &[])]);
}

#[test]
fn a_not_before_that_is_blank_or_unreadable_leaves_the_event_to_begin_at_once() {
    let with = |text: &str| SCHEDULED.replace("Mon, 11 Apr 2022 22:26:58 GMT", text);
    check(&[(&with(""), &["a Preempt Scheduled"])]);
    check(&[(&with("in a while"), &["a Preempt Scheduled"])]);
}

#[test]
fn a_status_that_is_unknown_is_not_yet_started() {
    let advisory = SCHEDULED.replace(r#""Scheduled""#, r#""Advisory""#);
    check(&[(&advisory, &["a Preempt Scheduled at"]), (NOTHING, &["a Withdrawn"])]);
}

#[tokio::test(start_paused = true)]
async fn not_before_becomes_the_moment_the_wall_clock_will_show_it() {
    let in_30_s = NotBefore::write(wall_now() + Duration::from_secs(30)).expect("a date");
    let document = SCHEDULED.replace("Mon, 11 Apr 2022 22:26:58 GMT", &in_30_s);
    let now = Instant::now();
    let changes =
        Standing::default().update(&Document::read(document.as_bytes()).expect("a document"), "ME_0", now);
    let [Change::Noticed(notice)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(notice.received, now);
    let ahead = notice.not_before.expect("a time") - now;
    // The written time has whole seconds.
    assert!(ahead > Duration::from_secs(28) && ahead <= Duration::from_secs(30), "{ahead:?}");
}

#[test]
fn only_an_event_of_this_vm_alone_is_approved() {
    let mut standing = Standing::default();
    let id = NoticeId::new("a");
    assert_eq!(standing.approval(&id).expect("nothing to approve"), None);

    let mut update = |body: &str| {
        let _: Vec<Change> =
            standing.update(&Document::read(body.as_bytes()).expect(body), "me_0", Instant::now());
        standing.approval(&id).map(|found| found.map(str::to_owned)).map_err(|error| error.kind())
    };
    assert_eq!(update(SCHEDULED), Ok(Some("A".to_owned())));
    assert_eq!(update(&SCHEDULED.replace(r#"["me_0"]"#, r#"["me_0","me_1"]"#)), Err(ErrorKind::Invalid));
    assert_eq!(update(&SCHEDULED.replace(r#"["me_0"]"#, "[]")), Err(ErrorKind::Invalid));
    assert_eq!(update(NOTHING), Ok(None));
}

/// Events among a few ids, types, states and VMs, so that sequences meet every transition.
fn some_event() -> impl Strategy<Value = Event> {
    let status = prop_oneof![Just(EventStatus::Scheduled), Just(EventStatus::Started)];
    let kind = prop_oneof![Just(EventType::Preempt), Just(EventType::Freeze)];
    let vms = proptest::sample::subsequence(vec!["me_0".to_owned(), "me_1".to_owned()], 1..=2);
    ("[A-C]", status, kind, vms, prop_oneof![Just(""), Just("Mon, 11 Apr 2022 22:26:58 GMT")]).prop_map(
        |(event_id, event_status, event_type, resources, not_before)| Event {
            event_id,
            event_status,
            event_type,
            resources,
            not_before: not_before.to_owned(),
            ..Event::default()
        },
    )
}

proptest! {
    #[test]
    fn whoever_follows_the_changes_knows_what_the_last_document_says(
        documents in proptest::collection::vec(proptest::collection::vec(some_event(), 0..4), 1..12)
    ) {
        let mut standing = Standing::default();
        let mut known: BTreeMap<NoticeId, Notice> = BTreeMap::new();
        for events in documents {
            let document = Document { document_incarnation: Incarnation::default(), events };
            for change in standing.update(&document, "me_0", Instant::now()) {
                match change {
                    Change::Answered => prop_assert!(false, "only the watcher answers"),
                    Change::Noticed(notice) => { known.insert(notice.id.clone(), notice); }
                    Change::Over(id, ending) => {
                        let over = known.remove(&id).expect("only what stood is over");
                        prop_assert_eq!(ending == Ending::Completed, over.phase == Phase::Started);
                    }
                }
            }
            let said: BTreeMap<NoticeId, &Event> =
                document.events.iter().filter(|event| event.concerns("me_0")).map(|event| (event.notice_id(), event)).collect();
            prop_assert!(known.keys().eq(said.keys()));
            for (id, event) in said {
                prop_assert_eq!(&known[&id].kind, &event.event_type.kind());
                prop_assert_eq!(known[&id].phase, event.event_status.phase());
            }
            prop_assert_eq!(standing.update(&document, "me_0", Instant::now()), vec![], "the same document again");
        }
    }
}
