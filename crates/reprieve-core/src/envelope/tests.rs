//! Bodies that are parsed, written again, or rejected.

use base64::Engine as _;

use super::*;
use crate::ids::WorkerId;
use crate::record::EndKind;

/// A note about how delivery `count` ended.
fn end(count: u32, kind: EndKind) -> End {
    let (message, worker, why) = (MessageId::new("7"), WorkerId::new("w"), "\"why\" é\n".to_owned());
    End {
        message,
        count,
        kind,
        worker,
        at_unix_ms: 5,
        why,
        unsaved_steps: count,
        ran_ms: u64::from(count),
        blocked: count.is_multiple_of(3),
        excused: count.is_multiple_of(5),
        moved: count.is_multiple_of(2),
    }
}

fn read(body: &str) -> Result<Envelope, String> {
    Envelope::read(body.as_bytes(), &MessageId::new("7"), None)
}

#[test]
fn a_written_envelope_is_read_again_with_its_notes() {
    let job = JobId::parse("j1").unwrap();
    let mut sent = Envelope::new(job.clone(), "resize", Data::Inline(to_raw_value(&[1, 2]).unwrap()));
    sent.notes.generation = 3;
    sent.notes.ends = vec![end(1, EndKind::Failed), end(2, EndKind::Interrupted)];
    sent.notes.deferrals = [(Misfit::Shape, 17), (Misfit::Unreadable, 18)]
        .map(|(misfit, since_unix_ms)| Deferral { misfit, since_unix_ms })
        .into();
    let got = Envelope::read(&sent.to_body(), &MessageId::new("7"), None).unwrap();
    assert_eq!((got.job, got.kind.as_str()), (job, "resize"));
    assert_eq!(got.notes, sent.notes);
    assert!(matches!(got.data, Data::Inline(data) if data.get() == "[1,2]"));
}

#[test]
fn attributes_of_others_survive_a_rewrite() {
    let body =
        r#"{"specversion":"1.0","type":"k","id":"a","source":"/s","traceparent":"00-ab-cd-01","x":1.50}"#;
    let mut got = read(body).unwrap();
    got.notes.ends = vec![end(1, EndKind::Vanished)];
    let rewritten = String::from_utf8(got.to_body()).unwrap();
    for kept in [r#""traceparent":"00-ab-cd-01""#, r#""source":"/s""#, r#""x":1.50"#] {
        assert!(rewritten.contains(kept), "{kept} is gone from {rewritten}");
    }
    assert_eq!(read(&rewritten).unwrap().notes, got.notes);
    // An attribute of an event may be a string, but not an array.
    assert!(rewritten.contains(r#""reprieveends":"[{"#), "{rewritten}");
}

#[test]
fn notes_that_were_dropped_are_not_carried_along() {
    let mut noted = read(r#"{"specversion":"1.0","type":"k","id":"a"}"#).unwrap();
    noted.notes.ends = vec![end(4, EndKind::Failed)];
    noted.notes.deferrals = vec![Deferral { misfit: Misfit::Unknown, since_unix_ms: 1 }];
    let body = noted.to_body();
    for generation in [0, 1] {
        let mut got = Envelope::read(&body, &MessageId::new("7"), None).unwrap();
        got.notes = Notes { generation, ..Notes::default() };
        let again = Envelope::read(&got.to_body(), &MessageId::new("7"), None).unwrap();
        assert_eq!(again.notes, got.notes);
    }
}

#[test]
fn a_copy_is_the_same_job_under_its_generation_whatever_its_message_is_called() {
    let with_id = r#"{"specversion":"1.0","type":"k","id":"a","source":"/s","reprieveends":"[]","x":1.50}"#;
    let without = r#"{"specversion":"1.0","type":"k","x":1.50}"#;
    for (body, default_kind) in [(with_id, None), (without, None), ("[1,2]", Some("k")), (BLOB_CREATED, None)]
    {
        let mut sent = Envelope::read(body.as_bytes(), &MessageId::new("first"), default_kind).unwrap();
        sent.notes.ends = vec![end(1, EndKind::Failed)];
        let copy = sent.to_copy(1);
        let got = Envelope::read(&copy, &MessageId::new("another"), None).unwrap();
        assert_eq!((&got.job, got.notes.generation, got.notes.ends.len()), (&sent.job, 1, 0), "{body}");
        let again = Envelope::read(&got.to_copy(2), &MessageId::new("a-third"), None).unwrap();
        assert_eq!((&again.job, again.notes.generation), (&sent.job, 2), "{body}");
        assert_eq!(args(&again), args(&sent));
    }
}

#[test]
fn bare_json_is_taken_where_the_queue_has_a_default_kind() {
    let got = Envelope::read(b" {\"a\":1} ", &MessageId::new("7"), Some("k")).unwrap();
    assert_eq!((got.kind.as_str(), got.job.as_str()), ("k", "m7"));
    assert!(matches!(got.data, Data::Inline(data) if data.get() == r#"{"a":1}"#));
}

#[test]
fn data_base64_may_be_wrapped_and_in_the_alphabet_of_urls() {
    let data = r#"{"what":"???>>>~~~"}"#;
    for encoded in [
        base64::engine::general_purpose::STANDARD.encode(data),
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(data),
        base64::engine::general_purpose::STANDARD.encode(data).replace("Ij", "I\\nj"),
    ] {
        let body =
            format!(r#"{{"specversion":"1.0","type":"k","id":"1","source":"/s","data_base64":"{encoded}"}}"#);
        let got = Envelope::read(body.as_bytes(), &MessageId::new("1"), None).expect(&encoded);
        assert_eq!(args(&got)["what"], "???>>>~~~", "{encoded}");
    }
}

#[test]
fn base64_is_taken_for_what_it_holds() {
    let inner = r#"{"specversion":"1.0","type":"k","id":"a"}"#;
    let body = base64::engine::general_purpose::STANDARD.encode(inner);
    assert_eq!(read(&body).unwrap().kind, "k");
    // Some encoders leave out the padding.
    assert!(body.ends_with('='), "{body}");
    assert_eq!(read(body.trim_end_matches('=')).unwrap().kind, "k");
    // Or write it for URLs.
    let inner = r#"{"specversion":"1.0","type":"k","id":"a","data":"???>>>~~~ÿÿ"}"#;
    let standard = base64::engine::general_purpose::STANDARD.encode(inner);
    let for_urls = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(inner);
    assert!(standard.contains('/') && for_urls.contains(['-', '_']), "{standard} {for_urls}");
    assert_eq!(read(&for_urls).unwrap().kind, "k");
}

#[test]
fn events_are_distinguished_by_source_and_id_together() {
    let job = |source: &str, id: &str| {
        let body = serde_json::json!({"specversion": "1.0", "type": "k", "id": id, "source": source});
        read(&body.to_string()).unwrap().job
    };
    assert_eq!(job("/a", "1"), job("/a", "1"));
    assert_ne!(job("/a", "1"), job("/b", "1"));
    assert_ne!(job("/a", "../../etc/passwd"), job("/a", "1"));
    assert_eq!(job("reprieve", "j1").as_str(), "j1");
}

#[test]
fn an_event_without_an_id_is_named_after_its_message() {
    assert_eq!(read(r#"{"specversion":"1.0","type":"k"}"#).unwrap().job.as_str(), "m7");
}

#[test]
fn an_unreadable_body_has_a_reason() {
    for (body, reason) in [
        ("", "neither JSON nor base64"),
        ("hello there", "neither JSON nor base64"),
        ("{", "neither JSON nor base64"),
        ("17", "neither a CloudEvents envelope"),
        (r#"{"a":1}"#, "neither a CloudEvents envelope"),
        (r#"{"specversion":"0.3","type":"k"}"#, "only CloudEvents specversion 1.0"),
        (r#"{"specversion":"1.0"}"#, "no `type`"),
        (r#"{"specversion":"1.0","type":3}"#, "`type` must be a string"),
        (r#"{"specversion":"1.0","type":"k","type":"l"}"#, "an attribute twice"),
        (r#"{"specversion":"1.0","type":"k","reprievegeneration":-1}"#, "`reprievegeneration` must be"),
        (r#"{"specversion":"1.0","type":"k","reprieveends":"[1]"}"#, "`reprieveends` must be"),
        (r#"{"specversion":"1.0","type":"k","reprievedeferred":"x 1"}"#, "`reprievedeferred` must be"),
        (r#"{"specversion":"1.0","type":"k","dataref":"../x"}"#, "`dataref` must be"),
        (r#"{"specversion":"1.0","type":"k","data_base64":"AA=="}"#, "not base64 of JSON"),
    ] {
        let refused = read(body).unwrap_err();
        assert!(refused.contains(reason), "{body:?} gave {refused:?}");
    }
}

/// An event for a created blob, as Event Grid sends it to a Storage queue.
const BLOB_CREATED: &str = r#"{
  "topic": "/subscriptions/4a5b/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/pictures",
  "subject": "/blobServices/default/containers/in/blobs/cat.jpg",
  "eventType": "Microsoft.Storage.BlobCreated",
  "id": "831e1650-001e-001b-66ab-eeb76e069631",
  "data": {
    "api": "PutBlockList",
    "contentLength": 524288,
    "url": "https://pictures.blob.core.windows.net/in/cat.jpg",
    "sequencer": "00000000000004420000000000028963"
  },
  "dataVersion": "",
  "metadataVersion": "1",
  "eventTime": "2026-06-26T18:41:00.9584103Z"
}"#;

/// The same event, as Event Grid sends it in the CloudEvents schema.
const BLOB_CREATED_AS_CLOUD_EVENT: &str = r#"{
  "specversion": "1.0",
  "source": "/subscriptions/4a5b/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/pictures",
  "subject": "/blobServices/default/containers/in/blobs/cat.jpg",
  "type": "Microsoft.Storage.BlobCreated",
  "time": "2026-06-26T18:41:00.9584103Z",
  "id": "831e1650-001e-001b-66ab-eeb76e069631",
  "data": {
    "api": "PutBlockList",
    "contentLength": 524288,
    "url": "https://pictures.blob.core.windows.net/in/cat.jpg",
    "sequencer": "00000000000004420000000000028963"
  }
}"#;

fn base64(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.encode(bytes).into_bytes()
}

fn utf16(text: &str, mark: bool, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    let units = mark.then_some(0xfeff).into_iter().chain(text.encode_utf16());
    units.flat_map(bytes).collect()
}

fn value(json: &str) -> serde_json::Value {
    serde_json::from_str(json).unwrap()
}

fn args(envelope: &Envelope) -> serde_json::Value {
    match &envelope.data {
        Data::Inline(args) => value(args.get()),
        Data::Blob(name) => panic!("{name} is a blob"),
    }
}

#[test]
fn an_event_is_the_same_job_in_every_form_in_which_it_may_come() {
    let grid_in_array = format!("[{BLOB_CREATED}]");
    let wrapped: Vec<u8> = base64(BLOB_CREATED).chunks(76).collect::<Vec<_>>().join(&b"\r\n"[..]);
    let forms: [(&str, Vec<u8>); 9] = [
        ("Event Grid schema", BLOB_CREATED.into()),
        ("in base64", base64(BLOB_CREATED)),
        ("in wrapped base64", wrapped),
        ("in an array", grid_in_array.clone().into()),
        ("in an array in base64", base64(grid_in_array)),
        ("with a byte order mark", [&b"\xef\xbb\xbf"[..], BLOB_CREATED.as_bytes()].concat()),
        (
            "with a byte order mark in base64",
            base64([&b"\xef\xbb\xbf"[..], BLOB_CREATED.as_bytes()].concat()),
        ),
        ("CloudEvents schema", BLOB_CREATED_AS_CLOUD_EVENT.into()),
        ("CloudEvents schema in an array", format!(" [ {BLOB_CREATED_AS_CLOUD_EVENT} ] ").into()),
    ];
    let expected =
        Envelope::read(BLOB_CREATED_AS_CLOUD_EVENT.as_bytes(), &MessageId::new("7"), None).unwrap();
    for (form, body) in forms {
        // The default kind applies only to bodies without a kind.
        for default_kind in [None, Some("other")] {
            let got = Envelope::read(&body, &MessageId::new("8"), default_kind).unwrap();
            assert_eq!(got.job, expected.job, "{form}");
            assert_eq!(got.kind, "Microsoft.Storage.BlobCreated", "{form}");
            assert_eq!(args(&got)["contentLength"], 524_288, "{form}");
        }
    }
}

#[test]
fn a_foreign_message_that_goes_back_keeps_all_it_had_and_is_the_same_job() {
    let array = format!("[{BLOB_CREATED}]");
    let with_mark = format!("\u{feff}{BLOB_CREATED_AS_CLOUD_EVENT}");
    let encoded =
        r#"{"specversion":"1.0","type":"k","id":"1","source":"/s","data_base64":"eyJhIjoxfQ==","x":1.50}"#;
    for (body, kept) in [
        (BLOB_CREATED.as_bytes().to_vec(), Some(BLOB_CREATED)),
        (base64(BLOB_CREATED), Some(BLOB_CREATED)),
        (array.into_bytes(), Some(BLOB_CREATED)),
        (with_mark.into_bytes(), Some(BLOB_CREATED_AS_CLOUD_EVENT)),
        (encoded.as_bytes().to_vec(), Some(encoded)),
        (br#"{"a":[1,2,3]}"#.to_vec(), None),
        (b"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]".to_vec(), None),
        (base64("\"just text\""), None),
    ] {
        let mut got = Envelope::read(&body, &MessageId::new("work-3.a-guid"), Some("fallback")).unwrap();
        for round in 1..4 {
            got.notes.generation = round;
            got.notes.ends = vec![end(round, EndKind::Interrupted)];
            let sent = got.to_body();
            // It may return under another id, as from a poison queue.
            let again = Envelope::read(&sent, &MessageId::new("another"), None).unwrap();
            assert_eq!((&again.job, &again.kind, args(&again)), (&got.job, &got.kind, args(&got)));
            assert_eq!(again.notes, got.notes);
            if let Some(kept) = kept {
                let (sent, kept) = (value(std::str::from_utf8(&sent).unwrap()), value(kept));
                for (name, before) in kept.as_object().unwrap() {
                    assert_eq!(&sent[name], before, "{name}");
                }
                assert_eq!(sent.as_object().unwrap().len(), kept.as_object().unwrap().len() + 2);
            }
            got = again;
        }
    }
}

#[test]
fn encoded_data_is_taken_where_it_is_json() {
    let event = |content_type: &str, data: &[u8]| {
        let data = String::from_utf8(base64(data)).unwrap();
        format!(
            r#"{{"specversion":"1.0","type":"k","id":"1","source":"/s",{content_type}"data_base64":"{data}"}}"#
        )
    };
    for content_type in [
        "",
        r#""datacontenttype":"application/json","#,
        r#""datacontenttype":"Application/JSON; charset=utf-8","#,
        r#""datacontenttype":"application/geo+json","#,
    ] {
        let got = read(&event(content_type, br#"{"a":1}"#)).unwrap();
        assert_eq!(args(&got), serde_json::json!({"a": 1}), "{content_type}");
    }
    let xml = read(&event(r#""datacontenttype":"text/xml","#, b"<a/>")).unwrap_err();
    assert!(xml.contains(r#""text/xml" and not JSON"#), "{xml}");
    let none = read(&event("", b"\x00\x01")).unwrap_err();
    assert!(none.contains("not base64 of JSON"), "{none}");
}

#[test]
fn json_that_only_resembles_an_event_is_arguments_where_there_is_a_default_kind() {
    for body in [
        r#"{"id":1,"subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z"}"#,
        r#"{"id":"1","subject":"s","eventType":"t"}"#,
        r#"{"eventType":"t","data":{}}"#,
        "[]",
        "[[]]",
        r#"[{"a":1}]"#,
        r#"[{"a":1},{"specversion":"1.0","type":"k"}]"#,
        // As many values as an event has attributes, in their order.
        r#"["1.0","a","s","t","c",1,"d","e",1,2,3,4,"t","s","e","e"]"#,
        "17",
        "null",
    ] {
        let got = Envelope::read(body.as_bytes(), &MessageId::new("7"), Some("k")).unwrap();
        assert_eq!((got.kind.as_str(), args(&got)), ("k", value(body)));
        let refused = Envelope::read(body.as_bytes(), &MessageId::new("7"), None).unwrap_err();
        assert!(refused.contains("neither a CloudEvents envelope"), "{refused}");
    }
}

#[test]
fn a_body_that_is_no_single_utf8_event_is_refused_with_advice() {
    let both = format!("[{BLOB_CREATED},{BLOB_CREATED_AS_CLOUD_EVENT}]");
    for (body, reason) in [
        (both.clone().into_bytes(), "an array of 2 events; send each in a message of its own"),
        (base64(both), "an array of 2 events"),
        (utf16(BLOB_CREATED, true, u16::to_le_bytes), "the body is UTF-16 text; send it as UTF-8"),
        (utf16(BLOB_CREATED, true, u16::to_be_bytes), "the body is UTF-16 text"),
        (utf16(BLOB_CREATED, false, u16::to_le_bytes), "the body is UTF-16 text"),
        (utf16(BLOB_CREATED, false, u16::to_be_bytes), "the body is UTF-16 text"),
        (
            base64(utf16(BLOB_CREATED, false, u16::to_le_bytes)),
            "base64 of UTF-16 text; encode it as UTF-8 first",
        ),
        (base64("no JSON"), "neither JSON nor base64 of JSON"),
        (b"\xff\xfe of an odd length".to_vec(), "neither JSON nor base64 of JSON"),
        (b"[{\"specversion\":\"1.0\"}]".to_vec(), "no `type`"),
    ] {
        for default_kind in [None, Some("k")] {
            let refused = Envelope::read(&body, &MessageId::new("7"), default_kind).unwrap_err();
            assert!(refused.contains(reason), "{refused:?} does not say {reason:?}");
        }
    }
}
