//! Sequences of documents, and the changes that each document causes.

use std::time::UNIX_EPOCH;

use reprieve_core::clock::wall_now;
use reprieve_core::ports::{Change, Ending};
use reprieve_core::{Initiator, Notice};

use super::*;
use crate::scheduled_events::document::Document;

mod sequences;

fn clock(answer: &Answer) -> ServiceClock {
    ServiceClock::of(answer, jiff::SignedDuration::ZERO)
}

fn answer(body: &str, version: ApiVersion) -> Answer {
    Answer::now(Document::read_as(version, body.as_bytes()).expect(body), version)
}

/// Applies the documents to fresh `ActiveEvents` of the VM `me_0` and compares the changes, one line
/// per document.
#[track_caller]
fn check(steps: &[(&str, &[&str])]) {
    let steps: Vec<_> = steps.iter().map(|(body, reported)| (ApiVersion::NEWEST, *body, *reported)).collect();
    check_in(&steps);
}

/// Does the same in several versions, one after the other: documents come every ten seconds.
#[track_caller]
fn check_in(steps: &[(ApiVersion, &str, &[&str])]) {
    check_every(Duration::from_secs(10), steps);
}

#[track_caller]
fn check_every(interval: Duration, steps: &[(ApiVersion, &str, &[&str])]) {
    let (mut active, mut at) = (ActiveEvents::default(), Instant::now());
    for (number, (version, body, expected)) in steps.iter().enumerate() {
        at += interval;
        let answer = Answer { at, ..answer(body, *version) };
        let reported: Vec<_> = active.update(&answer, "me_0").iter().map(brief).collect();
        assert_eq!(reported, *expected, "document {number}: {body}");
    }
}

fn brief(change: &EventChange) -> String {
    let at = if change.not_before.is_some() { " at" } else { "" };
    let rest = if change.scope == Scope::OtherVms { "rest: " } else { "" };
    format!("{rest}{} {} {}{at}", change.id(), change.event.event_type.as_str(), change.kind.as_str())
}

const NOTHING: &str = r#"{"DocumentIncarnation":1,"Events":[]}"#;
const SCHEDULED: &str = r#"{"DocumentIncarnation":2,"Events":[{"EventId":"A","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["me_0"],"NotBefore":"Mon, 11 Apr 2022 22:26:58 GMT"}]}"#;
const SOONER: &str = r#"{"DocumentIncarnation":3,"Events":[{"EventId":"A","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["me_0"],"NotBefore":"Mon, 11 Apr 2022 22:26:50 GMT"}]}"#;
const STARTED: &str = r#"{"DocumentIncarnation":4,"Events":[{"EventId":"A","EventStatus":"Started","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["me_0"],"NotBefore":""}]}"#;

#[test]
fn an_event_is_reported_when_it_is_noticed_starts_and_ends() {
    check(&[
        (NOTHING, &[]),
        (SCHEDULED, &["a Preempt noticed at"]),
        (SCHEDULED, &[]),
        (STARTED, &["a Preempt started"]),
        (STARTED, &[]),
        (NOTHING, &["a Preempt completed"]),
        (NOTHING, &[]),
    ]);
}

#[test]
fn the_published_live_migration_is_reported_to_its_two_vms_and_separately_to_others() {
    // The published sequence of four documents: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#example-responses
    let event = |incarnation: u8, status: &str, not_before: &str| {
        format!(
            r#"{{"DocumentIncarnation":{incarnation},"Events":[{{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123","EventStatus":"{status}","EventType":"Freeze","ResourceType":"VirtualMachine","Resources":["WestNO_0","WestNO_1"],"NotBefore":"{not_before}","Description":"Virtual machine is being paused because of a memory-preserving Live Migration operation.","EventSource":"Platform","DurationInSeconds":5}}]}}"#
        )
    };
    let documents = [
        NOTHING.to_owned(),
        event(2, "Scheduled", "Mon, 11 Apr 2022 22:26:58 GMT"),
        event(3, "Started", ""),
        NOTHING.replace('1', "4"),
    ];
    let reported = |name| {
        let mut active = ActiveEvents::default();
        let all =
            documents.iter().flat_map(|body| active.update(&answer(body, ApiVersion::V2020_07_01), name));
        all.map(|change| brief(&change)).collect::<Vec<_>>()
    };
    let id = "c7061bac-afdc-4513-b24b-aa5f13a16123";
    let whole =
        [format!("{id} Freeze noticed at"), format!("{id} Freeze started"), format!("{id} Freeze completed")];
    assert_eq!(reported("WestNO_0"), whole);
    assert_eq!(reported("westno_1"), whole);
    assert_eq!(reported("WestNO_10"), whole.map(|line| format!("rest: {line}")));
}

#[test]
fn an_event_that_vanishes_before_it_starts_is_withdrawn() {
    check(&[(SCHEDULED, &["a Preempt noticed at"]), (NOTHING, &["a Preempt withdrawn"])]);
}

#[test]
fn an_event_may_start_without_having_been_scheduled() {
    check(&[(STARTED, &["a Preempt started"]), (NOTHING, &["a Preempt completed"])]);
}

#[test]
fn a_changed_event_is_reported() {
    let first = ("a Preempt noticed at", "a Preempt changed at");
    for (from, to) in [
        ("26:58", "26:50"),
        (r#"["me_0"]"#, r#"["me_0","me_1"]"#),
        (r#"Type":"Virtual"#, r#"Status2":1,"DurationInSeconds":9,"ResourceType":"Virtual"#),
        (r#"Type":"Preempt"#, r#"Type":"Preempt","EventSource":"User"#),
    ] {
        let changed = SCHEDULED.replace(from, to);
        assert_ne!(changed, SCHEDULED);
        check(&[(SCHEDULED, &[first.0]), (&changed, &[first.1]), (&changed, &[])]);
    }
    check(&[(STARTED, &["a Preempt started"]), (SOONER, &["a Preempt changed at"])]);
}

#[test]
fn an_event_that_returns_is_reported_again() {
    check(&[
        (SCHEDULED, &["a Preempt noticed at"]),
        (NOTHING, &["a Preempt withdrawn"]),
        (SCHEDULED, &["a Preempt noticed at"]),
    ]);
}

#[test]
fn a_notice_is_reported_before_an_ending_in_the_same_document() {
    let other = SCHEDULED.replace(r#""A""#, r#""0""#);
    check(&[
        (SCHEDULED, &["a Preempt noticed at"]),
        (&other, &["0 Preempt noticed at", "a Preempt withdrawn"]),
    ]);
}

#[test]
fn an_event_that_stops_naming_this_vm_ends_for_it_and_is_new_for_others() {
    let elsewhere = SCHEDULED.replace("me_0", "me_1");
    check(&[
        (SCHEDULED, &["a Preempt noticed at"]),
        (&elsewhere, &["rest: a Preempt noticed at", "a Preempt withdrawn"]),
        (SCHEDULED, &["a Preempt noticed at", "rest: a Preempt withdrawn"]),
    ]);
}

#[test]
fn an_incarnation_that_starts_again_or_stays_hides_nothing() {
    let same = SCHEDULED.replace(r#"Incarnation":2"#, r#"Incarnation":1"#);
    let lower = STARTED.replace(r#"Incarnation":4"#, r#"Incarnation":0"#);
    check(&[(NOTHING, &[]), (&same, &["a Preempt noticed at"]), (&lower, &["a Preempt started"])]);
}

#[test]
fn an_id_in_another_case_is_the_same_event() {
    let lower = SCHEDULED.replace(r#""A""#, r#""a""#);
    check(&[(SCHEDULED, &["a Preempt noticed at"]), (&lower, &[]), (STARTED, &["a Preempt started"])]);
}

#[test]
fn an_id_that_is_given_twice_does_not_change_at_every_poll() {
    let (_, one) = SCHEDULED.split_once('[').expect("events");
    let (_, two) = STARTED.split_once('[').expect("events");
    let both = format!(r#"{{"Events":[{},{}"#, one.trim_end_matches("]}"), two);
    check(&[(&both, &["a Preempt started"]), (&both, &[])]);
}

#[test]
fn an_event_without_an_id_keeps_its_name() {
    let nameless = |body: &str| body.replace(r#""EventId":"A","#, "");
    check(&[
        (&nameless(SCHEDULED), &["preempt-without-id Preempt noticed at"]),
        (&nameless(SOONER), &["preempt-without-id Preempt changed at"]),
        (&nameless(STARTED), &["preempt-without-id Preempt started"]),
        (NOTHING, &["preempt-without-id Preempt completed"]),
    ]);
}

#[test]
fn an_answer_that_was_requested_before_an_event_was_listed_takes_nothing_back() {
    use ApiVersion::{V2020_07_01, V2024_07_09};
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let mut active = ActiveEvents::default();
    let mut update = |version, body, sent, received| {
        let answer = Answer { sent: at(sent), at: at(received), ..answer(body, version) };
        active.update(&answer, "me_0").iter().map(brief).collect::<Vec<_>>()
    };
    assert_eq!(update(V2020_07_01, SCHEDULED, 10, 10), ["a Preempt noticed at"]);
    assert_eq!(update(V2020_07_01, NOTHING, 9, 16), [""; 0], "of its own version");
    assert_eq!(update(V2024_07_09, NOTHING, 9, 30), [""; 0], "of the other version");
    assert_eq!(update(V2020_07_01, NOTHING, 29, 30), ["a Preempt withdrawn"]);
    assert_eq!(update(V2020_07_01, SCHEDULED, 28, 31), [""; 0], "and none brings it back");
}

#[test]
fn a_not_before_that_is_blank_or_unreadable_leaves_the_event_to_begin_at_once() {
    let with = |text: &str| SCHEDULED.replace("Mon, 11 Apr 2022 22:26:58 GMT", text);
    check(&[(&with(""), &["a Preempt noticed"])]);
    check(&[(&with("in a while"), &["a Preempt noticed"])]);
}

#[test]
fn a_status_that_is_unknown_is_not_yet_started() {
    let advisory = SCHEDULED.replace(r#""Scheduled""#, r#""Advisory""#);
    check(&[(&advisory, &["a Preempt noticed at"]), (NOTHING, &["a Preempt withdrawn"])]);
}

#[test]
fn an_older_version_that_omits_a_type_withdraws_no_event_of_it() {
    use ApiVersion::{V2017_03_01, V2017_11_01, V2020_07_01};
    check_in(&[
        (V2020_07_01, SCHEDULED, &["a Preempt noticed at"]),
        (V2017_03_01, NOTHING, &[]),
        (V2017_11_01, SCHEDULED, &[]),
        (V2017_11_01, NOTHING, &["a Preempt withdrawn"]),
    ]);
    // A service may include a type before the version that is documented to add it. Then a missing
    // event means that it has ended.
    check_in(&[
        (V2017_03_01, SCHEDULED, &["a Preempt noticed at"]),
        (V2017_03_01, NOTHING, &["a Preempt withdrawn"]),
    ]);
}

#[test]
fn an_event_is_active_while_one_of_two_versions_lists_it() {
    use ApiVersion::{V2020_07_01 as OLD, V2024_07_09 as NEW};
    let second = Duration::from_secs(1);
    // One is ahead of the other, at the beginning and at the end.
    check_every(
        second,
        &[
            (NEW, NOTHING, &[]),
            (OLD, SCHEDULED, &["a Preempt noticed at"]),
            (NEW, NOTHING, &[]),
            (OLD, STARTED, &["a Preempt started"]),
            (NEW, SCHEDULED, &[]),
            (NEW, STARTED, &[]),
            (OLD, NOTHING, &[]),
            (NEW, STARTED, &[]),
            (OLD, NOTHING, &[]),
            (NEW, NOTHING, &["a Preempt completed"]),
        ],
    );
    // The one that listed it last is silent.
    for (silent, other) in [(NEW, OLD), (OLD, NEW)] {
        check_every(
            2 * second,
            &[
                (silent, SCHEDULED, &["a Preempt noticed at"]),
                (other, NOTHING, &[]),
                (other, NOTHING, &[]),
                (other, NOTHING, &[]),
                (other, NOTHING, &[]),
                (other, NOTHING, &["a Preempt withdrawn"]),
            ],
        );
    }
    // It is silent, and the other one has news.
    check_every(
        2 * second,
        &[
            (NEW, SCHEDULED, &["a Preempt noticed at"]),
            (OLD, SOONER, &[]),
            (OLD, SOONER, &[]),
            (OLD, SOONER, &[]),
            (OLD, SOONER, &[]),
            (OLD, SOONER, &["a Preempt changed at"]),
        ],
    );
}

#[test]
fn a_slow_answer_from_before_the_end_of_an_event_does_not_announce_it_again() {
    use ApiVersion::{V2020_07_01 as SLOW, V2024_07_09 as FAST};
    let (mut active, began) = (ActiveEvents::default(), Instant::now());
    let mut answered = |version, body, sent: u64, at: u64| {
        let second = |seconds| began + Duration::from_secs(seconds);
        let answer = Answer { sent: second(sent), at: second(at), ..answer(body, version) };
        active.update(&answer, "me_0").iter().map(brief).collect::<Vec<_>>()
    };
    assert_eq!(answered(SLOW, SCHEDULED, 0, 0), ["a Preempt noticed at"]);
    assert_eq!(answered(FAST, NOTHING, 9, 9), [""; 0]);
    assert_eq!(answered(FAST, NOTHING, 10, 10), ["a Preempt withdrawn"]);
    assert_eq!(answered(SLOW, SCHEDULED, 8, 14), [""; 0], "it shows the time before");
    assert_eq!(answered(SLOW, SCHEDULED, 11, 17), ["a Preempt noticed at"], "it is announced again");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_stays_hidden_ends_after_two_hours() {
    let mut active = ActiveEvents::default();
    let reported = active.update(&answer(SCHEDULED, ApiVersion::NEWEST), "me_0");
    assert_eq!(reported.len(), 1);
    tokio::time::advance(HIDDEN_MAX.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(active.update(&answer(NOTHING, ApiVersion::V2017_03_01), "me_0"), []);
    tokio::time::advance(Duration::from_secs(1)).await;
    let reported = active.update(&answer(NOTHING, ApiVersion::V2017_03_01), "me_0");
    assert_eq!(reported.iter().map(brief).collect::<Vec<_>>(), ["a Preempt withdrawn"]);
}

#[test]
fn fields_that_an_older_version_leaves_out_are_kept() {
    let whole = SCHEDULED.replace(
        r#""NotBefore"#,
        r#""DurationInSeconds":9,"EventSource":"User","Description":"words","NotBefore"#,
    );
    let mut active = ActiveEvents::default();
    assert_eq!(active.update(&answer(&whole, ApiVersion::V2020_07_01), "me_0").len(), 1);
    assert_eq!(active.update(&answer(SCHEDULED, ApiVersion::V2019_01_01), "me_0"), []);
    let event = active.changes().next().expect("an event").event;
    assert_eq!(
        (event.duration(), event.event_source.as_str(), event.description.as_str()),
        (Some(Duration::from_secs(9)), "User", "words")
    );
    // A version that has these fields reports their absence as a change.
    assert_eq!(active.update(&answer(SCHEDULED, ApiVersion::V2020_07_01), "me_0").len(), 1);
}

#[test]
fn the_first_versions_names_are_compared_and_shown_without_their_underscore() {
    let underscored = SCHEDULED.replace("Preempt", "Reboot").replace(r#"["me_0"]"#, r#"["_me_0","_me_1"]"#);
    let mut active = ActiveEvents::default();
    let reported = active.update(&answer(&underscored, ApiVersion::V2017_03_01), "me_0");
    assert_eq!(
        (reported[0].scope, &reported[0].event.resources[..]),
        (Scope::ThisVm, &["me_0".to_owned(), "me_1".to_owned()][..])
    );
    let later =
        active.update(&answer(&underscored.replace("\"_me", "\"me"), ApiVersion::V2017_08_01), "me_0");
    assert_eq!(later, [], "the same event in the next version");
}

#[tokio::test(start_paused = true)]
async fn a_worker_gets_this_vms_events_with_monotonic_deadlines() {
    let in_30_s = NotBefore::write(wall_now() + Duration::from_secs(30)).expect("a date");
    let body = SCHEDULED
        .replace("Mon, 11 Apr 2022 22:26:58 GMT", &in_30_s)
        .replace(r#"["me_0"]"#, r#"["me_1","me_0"],"DurationInSeconds":-1,"EventSource":"User""#);
    let mut active = ActiveEvents::default();
    let now = answer(&body, ApiVersion::NEWEST);
    let reported: Vec<_> =
        active.update(&now, "ME_0").iter().filter_map(|it| it.for_worker("ME_0", clock(&now))).collect();
    let [Change::Noticed(notice)] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!(notice.received, now.at);
    assert_eq!((notice.duration, notice.initiator), (None, Initiator::User));
    assert_eq!((notice.machine.as_str(), notice.resources.len()), ("me_0", 2));
    let ahead = notice.not_before.expect("a time") - now.at;
    // The written time has whole seconds.
    assert!(ahead > Duration::from_secs(28) && ahead <= Duration::from_secs(30), "{ahead:?}");

    let over = active.update(&answer(NOTHING, ApiVersion::NEWEST), "ME_0");
    let over = over[0].for_worker("ME_0", clock(&now));
    assert_eq!(over, Some(Change::Over(NoticeId::new("a"), Ending::Withdrawn)));
    let elsewhere = active.update(&answer(&SCHEDULED.replace("me_0", "me_1"), ApiVersion::NEWEST), "ME_0");
    assert_eq!(elsewhere[0].for_worker("ME_0", clock(&now)), None);
}

/// For a type that is known a missing time is the same; one that is not known would be advice.
#[tokio::test(start_paused = true)]
async fn a_worker_takes_a_time_that_can_not_be_read_for_the_present() {
    for (text, is_now) in [("in a while", true), ("", false)] {
        let body = SCHEDULED.replace("Mon, 11 Apr 2022 22:26:58 GMT", text).replace("Preempt", "Surprise");
        let (mut active, now) = (ActiveEvents::default(), answer(&body, ApiVersion::NEWEST));
        let change = active.update(&now, "me_0")[0].for_worker("me_0", clock(&now));
        let Some(Change::Noticed(notice)) = change else { panic!("{change:?}") };
        assert_eq!(notice.not_before, is_now.then_some(now.at), "{text:?}");
    }
}

#[test]
fn an_event_of_this_vm_may_be_approved_and_an_advice_or_anothers_never() {
    let mut active = ActiveEvents::default();
    let id = NoticeId::new("a");
    assert_eq!(active.approval(&id).expect("nothing to approve"), None);

    let mut update = |body: &str| {
        let _: Vec<EventChange> = active.update(&answer(body, ApiVersion::NEWEST), "me_0");
        active.approval(&id).map(|found| found.map(str::to_owned)).map_err(|error| error.kind())
    };
    assert_eq!(update(SCHEDULED), Ok(Some("A".to_owned())));
    assert_eq!(update(&SCHEDULED.replace(r#"["me_0"]"#, r#"["me_0","me_1"]"#)), Ok(Some("A".to_owned())));
    assert_eq!(update(&SCHEDULED.replace("Preempt", "SpotRebalanceRecommendation")), Err(ErrorKind::Invalid));
    assert_eq!(update(&SCHEDULED.replace("me_0", "me_1")), Err(ErrorKind::Invalid));
    assert_eq!(update(NOTHING), Ok(None));
}

#[test]
fn a_change_is_serialized_in_the_services_words_with_times_that_other_programs_read() {
    let mut active = ActiveEvents::default();
    let mut now = answer(SCHEDULED, ApiVersion::V2019_04_01);
    now.wall = UNIX_EPOCH + Duration::from_secs(1_649_715_900);
    let change = &active.update(&now, "me_0")[0];
    assert_eq!(
        serde_json::to_string(change).expect("JSON"),
        r#"{"what":"noticed","whose":"this","event":{"EventId":"A","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["me_0"],"NotBefore":"Mon, 11 Apr 2022 22:26:58 GMT","Description":"","EventSource":""},"not_before":"2022-04-11T22:26:58Z","version":"2019-04-01","at":"2022-04-11T22:25:00Z"}"#
    );
    let started = &active.update(&answer(STARTED, ApiVersion::V2019_04_01), "me_0")[0];
    let json = serde_json::to_value(started).expect("JSON");
    assert_eq!((&json["what"], json["not_before"].is_null()), (&"started".into(), true));
}
