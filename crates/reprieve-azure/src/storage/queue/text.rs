//! Encodes bodies as the text of messages: base64, or a reference to a blob for a long one.
//!
//! Text from other senders that is not base64 is the body itself. Text that is both base64 and
//! JSON, such as `1234`, is read as JSON, because no program means base64 by it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest text of a message, in bytes.
/// <https://learn.microsoft.com/rest/api/storageservices/put-message>
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// A message's decoded text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The body.
    Body(Vec<u8>),
    /// The body is in a blob.
    In(Reference),
}

/// The text of a message whose body is in a blob.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    /// The blob's name.
    #[serde(rename = "reprievebody")]
    pub(crate) blob: String,
    /// Since when the blob can't be read, in milliseconds since the Unix epoch.
    #[serde(rename = "reprieveunreadablesince", default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreadable_since: Option<i64>,
}

/// The beginning of a [`Reference`], as [`of_reference`] writes it.
const REFERENCE_BEGINS: &[u8] = b"{\"reprievebody\":";

/// Encodes `body`; `None` when it needs a blob, because it is too long or would be decoded
/// differently.
pub(crate) fn of_body(body: &[u8]) -> Option<String> {
    let text = STANDARD.encode(body);
    let fits = text.len() <= TEXT_BYTES_MAX;
    (fits && matches!(read(&text), Said::Body(read) if read == body)).then_some(text)
}

/// Encodes a reference to `blob`, with the time since when it can't be read.
pub(crate) fn of_reference(blob: &str, unreadable_since: Option<i64>) -> String {
    // Strings and numbers always have a JSON form.
    let json = serde_json::to_vec(&Reference { blob: blob.to_owned(), unreadable_since }).unwrap_or_default();
    STANDARD.encode(json)
}

/// Whether this is the text of a message whose body is in a blob.
pub(crate) fn is_reference(text: &str) -> bool {
    matches!(read(text), Said::In(_))
}

/// Decodes a message's text.
pub(crate) fn read(text: &str) -> Said {
    let body = match STANDARD.decode(text) {
        Ok(decoded) if is_json(text.as_bytes()) && !is_json(&decoded) => text.as_bytes().to_vec(),
        Ok(decoded) => decoded,
        Err(_) => text.as_bytes().to_vec(),
    };
    match reference(&body) {
        Some(reference) => Said::In(reference),
        None => Said::Body(body),
    }
}

/// Parses the body as a reference. Hardly any message is one, so the beginning is compared first.
fn reference(body: &[u8]) -> Option<Reference> {
    body.starts_with(REFERENCE_BEGINS).then(|| serde_json::from_slice(body).ok()).flatten()
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_body_is_read_as_it_was_said_or_goes_to_a_blob(body: Vec<u8>) {
            if let Some(text) = of_body(&body) {
                prop_assert_eq!(read(&text), Said::Body(body));
            }
        }
    }

    #[test]
    fn jobs_travel_as_base64() {
        let body = br#"{"specversion":"1.0","type":"k","id":"a"}"#;
        let text = of_body(body).unwrap();
        assert!(text.starts_with("eyJ"), "{text}");
        assert_eq!(read(&text), Said::Body(body.to_vec()));
    }

    #[test]
    fn plain_text_of_others_is_taken_as_it_is() {
        for text in [r#"{"a":1}"#, "1234", "null", "hello there", "", "äöü", "<QueueMessage>"] {
            assert_eq!(read(text), Said::Body(text.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn what_is_too_long_or_would_be_misread_goes_to_a_blob() {
        assert!(of_body(&vec![b'x'; 48 * 1024]).is_some());
        assert!(of_body(&vec![b'x'; 48 * 1024 + 1]).is_none());
        // Its base64 is the number 1234.
        assert!(of_body(&STANDARD.decode("1234").unwrap()).is_none());
        // It looks like a reference.
        assert!(of_body(br#"{"reprievebody":"x"}"#).is_none());
        assert!(of_body(br#"{"reprievebody":"x","reprieveunreadablesince":1}"#).is_none());
    }

    #[test]
    fn a_reference_is_read_as_one() {
        for unreadable_since in [None, Some(1_700_000_000_123)] {
            let reference = Reference { blob: ".reprieve/messages/1".to_owned(), unreadable_since };
            assert_eq!(read(&of_reference(&reference.blob, unreadable_since)), Said::In(reference));
        }
    }
}
