//! The format of dead letters: the body and the reason, readable by any tool.
//!
//! A body that is a JSON object, as every job's is, gets one more member at its end,
//! `reprievereason`. Any other body is stored as base64 in a JSON envelope.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The text before the reason, at the end of an object.
const MEMBER: &str = "\"reprievereason\":";

/// The type of the envelope for a body that is no JSON object.
const TYPE: &str = "reprieve.dead-letter";

#[derive(Serialize, Deserialize)]
struct Wrapped<'a> {
    r#type: &'a str,
    data_base64: String,
    reprievereason: String,
}

/// Encodes `body` and `reason` as a dead letter.
pub(crate) fn write(body: &[u8], reason: &str) -> Vec<u8> {
    // A string always has a JSON form.
    let quoted = serde_json::to_string(reason).unwrap_or_default();
    // An object that already has such a member can't get another.
    if let Some((open, empty)) = object(body).filter(|(open, _)| !open.contains(MEMBER)) {
        let comma = if empty { "" } else { "," };
        return format!("{open}{comma}{MEMBER}{quoted}}}").into_bytes();
    }
    let wrapped =
        Wrapped { r#type: TYPE, data_base64: STANDARD.encode(body), reprievereason: reason.to_owned() };
    serde_json::to_vec(&wrapped).unwrap_or_default()
}

/// Decodes the body and the reason of a dead letter; `None` for a message of another format.
pub(crate) fn read(letter: &[u8]) -> Option<(Vec<u8>, String)> {
    if let Ok(wrapped) = serde_json::from_slice::<Wrapped<'_>>(letter)
        && wrapped.r#type == TYPE
    {
        return Some((STANDARD.decode(wrapped.data_base64).ok()?, wrapped.reprievereason));
    }
    let text = std::str::from_utf8(letter).ok()?;
    let (open, quoted) = text.rsplit_once(MEMBER)?;
    let reason = serde_json::from_str(quoted.strip_suffix('}')?).ok()?;
    let open = open.strip_suffix(',').unwrap_or(open);
    let body = format!("{open}}}").into_bytes();
    object(&body).is_some().then_some((body, reason))
}

/// A JSON object without its closing brace, and whether it is empty. The brace must be the body's
/// last byte.
fn object(body: &[u8]) -> Option<(&str, bool)> {
    let text = std::str::from_utf8(body).ok()?;
    let value: &RawValue = serde_json::from_str(text).ok()?;
    let first = value.get().strip_prefix('{')?.trim_ascii_start();
    Some((text.strip_suffix('}')?, first == "}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(body: &[u8], reason: &str, readable: bool) {
        let letter = write(body, reason);
        assert_eq!(read(&letter), Some((body.to_vec(), reason.to_owned())), "{body:?}");
        let json: serde_json::Value = serde_json::from_slice(&letter).unwrap();
        assert_eq!(json["reprievereason"], reason);
        let same_form = body.strip_suffix(b"}").is_some_and(|open| letter.starts_with(open));
        assert_eq!(same_form, readable, "{}", String::from_utf8_lossy(&letter));
    }

    #[test]
    fn a_job_keeps_its_form_and_gets_a_reason() {
        for body in
            [r#"{"specversion":"1.0","type":"k","id":"a","data":{"x":"}"}}"#, "{}", "{ }", "{\n \"a\": 1\n}"]
        {
            check(body.as_bytes(), "no job is called \"k\"\n", true);
        }
    }

    #[test]
    fn anything_else_is_wrapped_and_comes_back_byte_for_byte() {
        let twice = write(b"{\"a\":1}", "first");
        for body in
            [&b""[..], b"hello", b"[1]", b"17", b"\"}\"", b"{\"a\":1", b"{\"a\":1} ", b"\xff{}", b"{}}"]
        {
            check(body, "it is no JSON object", false);
        }
        assert_eq!(read(&write(&twice, "second")), Some((twice, "second".to_owned())));
    }

    #[test]
    fn what_others_put_into_a_poison_queue_has_no_reason() {
        for letter in [&b"hello"[..], b"{\"a\":1}", b"", b"{\"reprievereason\":1}"] {
            assert_eq!(read(letter), None);
        }
    }

    proptest! {
        #[test]
        fn any_letter_is_read_as_it_was_written(body: Vec<u8>, reason: String) {
            prop_assert_eq!(read(&write(&body, &reason)), Some((body, reason)));
        }
    }
}
