//! Published or captured documents, verbatim.

use std::time::UNIX_EPOCH;

use reprieve_core::NoticeKind;

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
fn an_event_with_only_a_type_concerns_every_vm() {
    let event = only_event(r#"{"Events":[{"EventType":"Preempt"}]}"#);
    assert!(event.concerns("any_0"));
    assert_eq!(event.notice_id().as_str(), "preempt-without-id");
}

#[test]
fn an_invalid_document_is_refused_and_never_means_no_events() {
    for (body, kind) in [
        ("", ErrorKind::Unavailable),
        (" \r\n", ErrorKind::Unavailable),
        ("null", ErrorKind::Corrupt),
        ("{}", ErrorKind::Corrupt),
        ("[]", ErrorKind::Corrupt),
        (r#"{"DocumentIncarnation":1}"#, ErrorKind::Corrupt),
        (r#"{"DocumentIncarnation":1,"Events":null}"#, ErrorKind::Corrupt),
        (r#"{"DocumentIncarnation":1,"Events":[null]}"#, ErrorKind::Corrupt),
        // serde can read the fields of a struct from a list.
        ("[1,[]]", ErrorKind::Corrupt),
        ("\u{feff}", ErrorKind::Unavailable),
        ("<html>Bad Gateway</html>", ErrorKind::Corrupt),
        (&PREEMPT[..200], ErrorKind::Corrupt),
    ] {
        assert_eq!(Document::read(body.as_bytes()).expect_err(body).kind(), kind, "{body}");
    }
    assert_eq!(Document::read(br#"{"DocumentIncarnation":4,"Events":[]}"#).expect("a document").events, []);
}

/// A document of each version. Those of 2019-08-01 and 2020-07-01 are published; the others have
/// the fields of their version.
const OF_EACH_VERSION: [(ApiVersion, &str); 8] = [
    (ApiVersion::V2017_03_01, include_str!("fixtures/2017-03-01.json")),
    (ApiVersion::V2017_08_01, include_str!("fixtures/2017-08-01.json")),
    (ApiVersion::V2017_11_01, include_str!("fixtures/2017-11-01.json")),
    (ApiVersion::V2019_01_01, include_str!("fixtures/2019-01-01.json")),
    (ApiVersion::V2019_04_01, include_str!("fixtures/2019-04-01.json")),
    (ApiVersion::V2019_08_01, include_str!("fixtures/2019-08-01.json")),
    (ApiVersion::V2020_07_01, include_str!("fixtures/2020-07-01.json")),
    (ApiVersion::V2024_07_09, include_str!("fixtures/2024-07-09.json")),
];

#[test]
fn the_document_of_each_version_is_read_whole() {
    let brief = |(version, body): (ApiVersion, &str)| {
        let document = Document::read_as(version, body.as_bytes()).expect(body);
        let event = &document.events[0];
        let NotBefore::At(at) = NotBefore::read(&event.not_before) else { panic!("{body}") };
        let at = at.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        format!(
            "{version} {} {} {} {at} {:?} {:?} {:?}",
            &event.event_id[..8],
            event.event_type.as_str(),
            event.resources.join(" "),
            event.description.get(..11).unwrap_or_default(),
            event.event_source,
            event.duration_in_seconds,
        )
    };
    assert_eq!(
        OF_EACH_VERSION.map(brief),
        [
            r#"2017-03-01 602d9444 Reboot FrontEnd_IN_0 BackEnd_IN_0 1474309787 "" "" None"#,
            r#"2017-08-01 602d9444 Redeploy FrontEnd_IN_0 BackEnd_IN_0 1474309787 "" "" None"#,
            r#"2017-11-01 A123BC45 Preempt myspotvm 1615856326 "" "" None"#,
            r#"2019-01-01 F1BF8322 Terminate aks-tompool-39923754-vmss_13 1613553123 "" "" None"#,
            r#"2019-04-01 c7061bac Freeze WestNO_0 WestNO_1 1649716018 "Host server" "" None"#,
            r#"2019-08-01 A123BC45 Preempt myspotvm 1615856326 "" "Platform" None"#,
            // The weekday is wrong, as published.
            r#"2020-07-01 C7061BAC Freeze WestNO_0 WestNO_1 1775946418 "Virtual mac" "Platform" Some(5)"#,
            r#"2024-07-09 5DD55B64 SpotRebalanceRecommendation vm-spot 1785562862 "" "Platform" Some(-1)"#,
        ]
    );
}

#[test]
fn each_version_has_its_documented_fields_and_types() {
    for (version, body) in OF_EACH_VERSION {
        let event = only_event(body);
        assert!(version.knows(&event.event_type), "{version}");
        assert_eq!(body.contains("Description"), version.has_description(), "{version}");
        assert_eq!(body.contains("EventSource"), version.has_source(), "{version}");
        assert_eq!(body.contains("DurationInSeconds"), version.has_duration(), "{version}");
        assert_eq!(event.resources[0].starts_with('_'), version.underscores(), "{version}");
    }
}

#[test]
fn only_the_first_version_loses_an_underscore_and_only_one() {
    let body = br#"{"Events":[{"Resources":["__a","b_0","_"]}]}"#;
    let read = |version| Document::read_as(version, body).expect("a document").events.remove(0).resources;
    assert_eq!(read(ApiVersion::V2017_03_01), ["_a", "b_0", "_"]);
    assert_eq!(read(ApiVersion::V2017_08_01), ["__a", "b_0", "_"]);
}

#[test]
fn an_event_with_only_blank_names_concerns_every_vm() {
    for resources in [r#""""#, "null", r#"[""]"#, r#"[" ",null]"#, "[]"] {
        let event = only_event(&format!(r#"{{"Events":[{{"Resources":{resources}}}]}}"#));
        assert!(event.concerns("any_0"), "{resources}");
    }
    assert!(!only_event(r#"{"Events":[{"Resources":["","vm_0"]}]}"#).concerns("any_0"));
}

#[test]
fn a_key_that_is_there_twice_a_mark_before_it_and_bytes_that_are_no_text_do_not_cost_the_notice() {
    let mut body = b"\xef\xbb\xbf{\"Events\":[{\"EventId\":\"a\",\"EventType\":\"Preempt\",\"EventId\":\"b\",\"Description\":\"".to_vec();
    body.extend(b"h\xf6te\"}],\"DocumentIncarnation\":1,\"DocumentIncarnation\":2}");
    let document = Document::read(&body).expect("a document");
    let event = &document.events[0];
    assert_eq!((event.event_id.as_str(), event.description.as_str()), ("b", "h\u{fffd}te"));
    assert_eq!(document.document_incarnation, Incarnation::from(2));
}

#[test]
fn durations_that_say_nothing_are_unknown_and_zero_is_none_at_all() {
    let duration =
        |text: &str| only_event(&format!(r#"{{"Events":[{{"DurationInSeconds":{text}}}]}}"#)).duration();
    assert_eq!(duration("9"), Some(Duration::from_secs(9)));
    assert_eq!(duration("0"), Some(Duration::ZERO));
    assert_eq!(duration("9223372036854775807"), Some(DURATION_MAX));
    for unknown in ["-1", "-9223372036854775808", "1e400", "9.5", "null", r#""soon""#, "99999999999999999999"]
    {
        let Ok(document) =
            Document::read(format!(r#"{{"Events":[{{"DurationInSeconds":{unknown}}}]}}"#).as_bytes())
        else {
            continue;
        };
        assert_eq!(document.events[0].duration(), None, "{unknown}");
    }
}

#[test]
fn an_incarnation_that_is_a_lower_number_is_a_reset_and_no_other_is() {
    let of = |text: &str| serde_json::from_str::<Incarnation>(text).expect(text);
    assert!(of("1").is_reset_from(&of("2")));
    for (now, before) in
        [("2", "1"), ("2", "2"), (r#""1""#, "2"), ("1", r#""2""#), ("null", "2"), ("-1", "2")]
    {
        assert!(!of(now).is_reset_from(&of(before)), "{now} after {before}");
    }
}

proptest::proptest! {
    #[test]
    fn no_body_makes_reading_panic(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        drop(Document::read_as(ApiVersion::V2017_03_01, &body));
    }

    #[test]
    fn no_field_of_another_type_costs_the_others(
        field in proptest::sample::select(vec!["EventId", "EventStatus", "ResourceType", "Resources", "NotBefore", "Description", "EventSource", "DurationInSeconds", "New"]),
        value in proptest::sample::select(vec!["null", "1", "-1.5", "true", "[]", "{}", r#""""#, r#"["a",null,[1]]"#, r#"{"a":[{}]}"#, r#""é\u0000""#]),
    ) {
        let event = only_event(&format!(r#"{{"Events":[{{"{field}":{value},"EventType":"Preempt"}}]}}"#));
        proptest::prop_assert_eq!(event.event_type, EventType::Preempt);
    }
}
