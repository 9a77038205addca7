//! Every form of a change, for events as the platform sends them.

use std::time::UNIX_EPOCH;

use reprieve_azure::scheduled_events::document::Document;
use reprieve_azure::scheduled_events::{ActiveEvents, Answer, ApiVersion};

use super::super::exec::Shell;
use super::*;

/// Half a second before 14 minutes and 59 seconds before the `NotBefore` below.
const NOTICED: &str = "2026-04-11T22:11:58.5Z";

fn at(time: &str) -> SystemTime {
    time.parse::<Timestamp>().expect("a time").into()
}

/// The reports of the changes from nothing to the first document, from that to the second, and so
/// on.
fn changes(vm: &str, documents: &[&str]) -> Vec<ChangeReport> {
    let mut active = ActiveEvents::default();
    let changes = documents.iter().flat_map(|events| {
        let document = format!(r#"{{"DocumentIncarnation":1,"Events":[{events}]}}"#);
        let document = Document::read(document.as_bytes()).expect("a document");
        let answer = Answer { wall: at(NOTICED), ..Answer::now(document, ApiVersion::NEWEST) };
        active.update(&answer, vm)
    });
    changes.map(|change| ChangeReport::new(&change, vm)).collect()
}

const FREEZE: &str = r#"{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123","EventStatus":"Scheduled",
    "EventType":"Freeze","ResourceType":"VirtualMachine","Resources":["WestNO_0","WestNO_1"],
    "NotBefore":"Mon, 11 Apr 2026 22:26:58 GMT","Description":"Virtual machine is being paused.",
    "EventSource":"Platform","DurationInSeconds":5}"#;

const STARTED: &str = r#"{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123","EventStatus":"Started",
    "EventType":"Freeze","ResourceType":"VirtualMachine","Resources":["WestNO_0","WestNO_1"],
    "NotBefore":"","Description":"Virtual machine is being paused.",
    "EventSource":"Platform","DurationInSeconds":5}"#;

const PREEMPT: &str = r#"{"EventId":"c1bf8322","EventStatus":"Scheduled","EventType":"Preempt",
    "Resources":["vm-spot"],"NotBefore":"Sat, 11 Apr 2026 22:12:28 GMT","Description":"",
    "EventSource":"Platform","DurationInSeconds":-1}"#;

#[test]
fn a_life_is_a_line_for_each_change() {
    let lines = changes("westno_1", &[FREEZE, STARTED, ""])
        .iter()
        .map(|change| change.line(&TimeZone::UTC, false))
        .collect::<String>();
    let id = "C7061BAC-AFDC-4513-B24B-AA5F13A16123  WestNO_0,WestNO_1";
    let rest = "for 5s  Virtual machine is being paused.";
    let expected = format!(
        "2026-04-11 22:11:58  noticed    Freeze     Platform  {id}  in 14m 59s  {rest}\n\
         2026-04-11 22:11:58  started    Freeze     Platform  {id}  now  {rest}\n\
         2026-04-11 22:11:58  completed  Freeze     Platform  {id}  ended  {rest}\n"
    );
    assert_eq!(lines, expected);
}

#[test]
fn an_event_that_is_put_off_has_changed() {
    let put_off = FREEZE.replace("22:26:58", "23:30:00");
    let changes = changes("westno_0", &[FREEZE, &put_off, &put_off]);
    assert_eq!(
        changes.iter().map(|change| change.what).collect::<Vec<_>>(),
        [ChangeKind::Noticed, ChangeKind::Changed]
    );
    assert!(changes[1].line(&TimeZone::UTC, false).contains("  in 1h 18m  "), "{changes:?}");
}

#[test]
fn times_are_those_of_the_zone() {
    let zone = TimeZone::fixed(jiff::tz::offset(2));
    let [preempt] = &changes("vm-spot", &[PREEMPT])[..] else { panic!("one change") };
    let line =
        "2026-04-12 00:11:58  noticed    Preempt    Platform  c1bf8322  vm-spot  in 29s  for unknown time\n";
    assert_eq!(preempt.line(&zone, false), line);
}

#[test]
fn a_line_names_the_scope_where_other_vms_are_included() {
    let lines: Vec<_> = changes("vm-spot", &[&format!("{FREEZE},{PREEMPT}")])
        .iter()
        .map(|change| change.line(&TimeZone::UTC, true))
        .collect();
    assert!(lines[0].contains("  noticed    this  Preempt    "), "{lines:?}");
    assert!(lines[1].contains("  noticed    rest  Freeze     "), "{lines:?}");
}

#[test]
fn words_of_others_cannot_drive_the_terminal_or_break_the_line() {
    let event = PREEMPT.replace(r#""Description":"""#, r#""Description":"a\u001b[2J\nb""#);
    let line = changes("vm-spot", &[&event])[0].line(&TimeZone::UTC, false);
    assert!(line.ends_with("  a\u{fffd}[2J\u{fffd}b\n"), "{line:?}");
}

#[test]
fn json_has_every_field_also_those_that_say_nothing() {
    let json = |change: &ChangeReport| serde_json::to_value(change).expect("JSON");
    let [noticed, started, completed] = &changes("westno_1", &[FREEZE, STARTED, ""])[..] else {
        panic!("three")
    };
    let expected = serde_json::json!({
        "at": "2026-04-11T22:11:58.5Z", "what": "noticed", "whose": "this", "vm": "westno_1",
        "id": "C7061BAC-AFDC-4513-B24B-AA5F13A16123", "type": "Freeze", "status": "Scheduled", "source": "Platform",
        "resources": ["WestNO_0", "WestNO_1"], "not_before": "2026-04-11T22:26:58Z", "seconds_left": 899,
        "duration_seconds": 5, "description": "Virtual machine is being paused.",
        "api_version": "2024-07-09"
    });
    assert_eq!(json(noticed), expected);
    let time = |change: &ChangeReport| {
        [&json(change)["not_before"], &json(change)["seconds_left"]].map(ToString::to_string)
    };
    assert_eq!(time(started), ["null", "0"]);
    assert_eq!(time(completed), ["null", "null"]);
    assert_eq!(json(&changes("vm-spot", &[PREEMPT])[0])["duration_seconds"], serde_json::Value::Null);
}

#[test]
fn a_command_finds_all_of_it_in_its_environment() {
    let noticed = changes("westno_1", &[FREEZE]).remove(0).with_time_left_at(at("2026-04-11T22:26:00Z"));
    let variables = noticed.environment().expect("JSON");
    let value = |name| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str());
    for (name, expected) in [
        ("REPRIEVE_EVENT", "noticed"),
        ("REPRIEVE_EVENT_ID", "C7061BAC-AFDC-4513-B24B-AA5F13A16123"),
        ("REPRIEVE_EVENT_TYPE", "Freeze"),
        ("REPRIEVE_EVENT_STATUS", "Scheduled"),
        ("REPRIEVE_EVENT_SOURCE", "Platform"),
        ("REPRIEVE_EVENT_RESOURCES", "WestNO_0,WestNO_1"),
        ("REPRIEVE_EVENT_NOT_BEFORE", "2026-04-11T22:26:58Z"),
        ("REPRIEVE_EVENT_SECONDS_LEFT", "58"),
        ("REPRIEVE_EVENT_DURATION_SECONDS", "5"),
        ("REPRIEVE_EVENT_DESCRIPTION", "Virtual machine is being paused."),
        ("REPRIEVE_EVENT_VM", "westno_1"),
        ("REPRIEVE_EVENT_WHOSE", "this"),
    ] {
        assert_eq!(value(name), Some(expected), "{name}");
    }
    let json: serde_json::Value =
        serde_json::from_str(value("REPRIEVE_EVENT_JSON").expect("JSON")).expect("JSON");
    assert_eq!((&json["seconds_left"], &json["id"]), (&58.into(), &noticed.id.as_str().into()));
    assert_eq!(variables.len(), 13);
    // Everything that the help lists is there.
    for (name, _) in &variables {
        assert!(super::super::watch::AFTER_HELP.contains(&format!("  {name} ")), "{name} is not in the help");
    }
}

#[test]
fn an_ended_event_and_a_late_event_have_no_time_left() {
    let noticed = changes("westno_1", &[FREEZE]).remove(0).with_time_left_at(at("2026-04-12T00:00:00Z"));
    assert_eq!(noticed.seconds_left, Some(0));
    let withdrawn = changes("westno_1", &[FREEZE, ""]).remove(1);
    assert_eq!((withdrawn.what, withdrawn.seconds_left), (ChangeKind::Withdrawn, None));
    let variables = withdrawn.environment().expect("JSON");
    let blank: Vec<_> =
        variables.iter().filter(|(_, value)| value.is_empty()).map(|(name, _)| *name).collect();
    assert_eq!(blank, ["REPRIEVE_EVENT_NOT_BEFORE", "REPRIEVE_EVENT_SECONDS_LEFT"]);
}

#[test]
fn no_word_of_others_keeps_a_command_from_being_started() {
    let event = PREEMPT.replace(r#""Description":"""#, r#""Description":"a\u0000b""#);
    let variables = changes("vm-spot", &[&event])[0].environment().expect("JSON");
    assert!(variables.iter().all(|(_, value)| !value.contains('\0')), "{variables:?}");
    assert!(variables.contains(&("REPRIEVE_EVENT_DESCRIPTION", "a\u{fffd}b".to_owned())));
}

#[tokio::test]
async fn an_event_longer_than_the_environment_is_passed_as_far_as_it_fits() {
    // All as long as they may be, and longer.
    let long = "x".repeat(VARIABLE_BYTES_MAX - 40);
    let event = PREEMPT.replace("c1bf8322", &long).replace("vm-spot", &long);
    let event = event
        .replace(r#""Description":"""#, &format!(r#""EventSource":"{long}","Description":"{long}{long}""#));
    let variables = changes(&long, &[&event])[0].environment().expect("JSON");
    let blank: Vec<_> =
        variables.iter().filter(|(_, value)| value.is_empty()).map(|(name, _)| *name).collect();
    let unknown = "REPRIEVE_EVENT_DURATION_SECONDS";
    assert_eq!(blank, [unknown, "REPRIEVE_EVENT_DESCRIPTION", "REPRIEVE_EVENT_JSON"]);
    let mut shell = Shell::start("exit 0", variables).expect("it is started");
    assert_eq!(shell.wait().await, Ok(()));
}

#[test]
fn an_event_without_an_id_has_a_name_all_the_same() {
    let event = PREEMPT.replace("c1bf8322", "");
    assert_eq!(changes("vm-spot", &[&event])[0].name(), "noticed Preempt preempt-without-id");
}

#[test]
fn a_time_that_no_calendar_has_is_none() {
    assert!(timestamp(UNIX_EPOCH - Duration::from_secs(1 << 40)).is_none());
}
