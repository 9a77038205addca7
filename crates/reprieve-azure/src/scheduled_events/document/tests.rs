//! Documents as they have been published or captured, verbatim.

use super::*;

const PREEMPT: &str = r#"{"DocumentIncarnation":1,"Events":[{"EventId":"C1BF8322-4CBF-4FC4-9C45-B40CF3106D0E","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["vm-spot"],"NotBefore":"Tue, 09 Aug 2022 17:07:32 GMT","Description":"","EventSource":"Platform","DurationInSeconds":-1}]}"#;

#[track_caller]
fn only_event(body: &str) -> Event {
    let mut document = Document::read(body.as_bytes()).expect(body);
    assert_eq!(document.events.len(), 1);
    document.events.remove(0)
}

#[test]
fn a_preempt_is_read_whole_and_written_as_it_was() {
    let event = only_event(PREEMPT);
    assert_eq!(event.event_id, "C1BF8322-4CBF-4FC4-9C45-B40CF3106D0E");
    assert_eq!(event.event_status, EventStatus::Scheduled);
    assert_eq!(event.event_type, EventType::Preempt);
    assert_eq!(event.resources, ["vm-spot"]);
    assert_eq!(event.not_before, "Tue, 09 Aug 2022 17:07:32 GMT");
    assert_eq!(event.duration_in_seconds, Some(-1));
    let document = Document::read(PREEMPT.as_bytes()).expect("a document");
    assert_eq!(serde_json::to_string(&document).expect("JSON"), PREEMPT);
}

#[test]
fn a_document_of_an_older_api_version_lacks_the_later_fields() {
    let event = only_event(
        r#"{"DocumentIncarnation":1,"Events":[{"EventId":"A123BC45-1234-5678-AB90-ABCDEF123456","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["myspotvm"],"NotBefore":"Tue, 16 Mar 2021 00:58:46 GMT","Description":"","EventSource":"Platform"}]}"#,
    );
    assert_eq!(event.event_type, EventType::Preempt);
    assert_eq!(event.duration_in_seconds, None);
}

#[test]
fn keys_may_be_in_any_order_and_a_started_event_has_a_blank_not_before() {
    let event = only_event(
        r#"{"DocumentIncarnation":16,"Events":[{"Description":"Host server is undergoing maintenance.","DurationInSeconds":30,"EventId":"465D3B0F-…","EventSource":"Platform","EventStatus":"Started","EventType":"Freeze","NotBefore":"","ResourceType":"VirtualMachine","Resources":["spot-node-34525998-vmss_6"]}]}"#,
    );
    assert_eq!(event.event_status, EventStatus::Started);
    assert_eq!(event.event_type, EventType::Freeze);
    assert_eq!(event.not_before, "");
}

#[test]
fn unknown_fields_types_and_statuses_are_kept_or_passed_over() {
    let event = only_event(
        r#"{"DocumentIncarnation":"7","Extra":{},"Events":[{"EventId":"x","EventStatus":"Advisory","EventType":"Surprise","Resources":["a"],"New":[1]}]}"#,
    );
    assert_eq!(event.event_status, EventStatus::Other("Advisory".to_owned()));
    assert_eq!(event.event_type.kind(), NoticeKind::Other("Surprise".to_owned()));
}

#[test]
fn a_field_of_another_type_does_not_cost_the_event() {
    let event = only_event(
        r#"{"Events":[{"EventId":12,"EventType":"Preempt","EventStatus":null,"Resources":"vm_0","NotBefore":null,"DurationInSeconds":"9"}]}"#,
    );
    assert_eq!(event.notice_id().as_str(), "12");
    assert!(event.concerns("VM_0") && !event.concerns("vm_1"));
    assert_eq!(event.not_before, "");
    assert_eq!(event.duration_in_seconds, Some(9));
}

#[test]
fn an_event_of_which_only_the_type_is_known_concerns_everybody() {
    let event = only_event(r#"{"Events":[{"EventType":"Preempt"}]}"#);
    assert!(event.concerns("any_0"));
    assert_eq!(event.notice_id().as_str(), "preempt-without-id");
}

#[test]
fn what_is_no_document_is_refused_and_never_taken_for_no_events() {
    for (body, kind) in [
        ("", ErrorKind::Unavailable),
        (" \r\n", ErrorKind::Unavailable),
        ("null", ErrorKind::Corrupt),
        ("{}", ErrorKind::Corrupt),
        ("[]", ErrorKind::Corrupt),
        (r#"{"DocumentIncarnation":1}"#, ErrorKind::Corrupt),
        (r#"{"DocumentIncarnation":1,"Events":null}"#, ErrorKind::Corrupt),
        (r#"{"DocumentIncarnation":1,"Events":[null]}"#, ErrorKind::Corrupt),
        ("<html>Bad Gateway</html>", ErrorKind::Corrupt),
        (&PREEMPT[..200], ErrorKind::Corrupt),
    ] {
        assert_eq!(Document::read(body.as_bytes()).expect_err(body).kind(), kind, "{body}");
    }
    assert_eq!(Document::read(br#"{"DocumentIncarnation":4,"Events":[]}"#).expect("a document").events, []);
}
