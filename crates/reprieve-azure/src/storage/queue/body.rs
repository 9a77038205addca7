//! Message bodies: base64 in the message's text, or a blob that the text refers to.
//!
//! Text from other senders that is not base64 is the body itself. Text that is both base64 and
//! JSON, such as `1234`, is read as JSON, because no program means base64 by it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reprieve_core::Result;
use reprieve_core::envelope::BODY_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::storage::blob::{Container, RESERVED, When};

/// The limit for reading the long bodies of a batch.
pub(crate) const LONG_BODY_MAX: Duration = Duration::from_secs(3);

/// The container of the long bodies.
#[derive(Debug, Clone)]
pub(crate) struct Bodies(Container);

/// The body of a message, found by its text.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// The body, and the name of the blob that it was read from, if any.
    Body(Vec<u8>, Option<String>),
    /// The blob with the body can't be read, for this reason.
    Unreadable(Reference, String),
}

/// A message's text, and the blob that it refers to.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) text: String,
    pub(crate) blob: Option<String>,
}

impl Bodies {
    pub(crate) fn new(container: Container) -> Self {
        Self(container)
    }

    /// Encodes `body` as a message's text; writes a long body to a blob first.
    pub(crate) async fn encode(&self, operation: &'static str, body: &[u8]) -> Result<Encoded> {
        if let Some(text) = encode_body(body) {
            return Ok(Encoded { text, blob: None });
        }
        let blob = format!("{}{}", prefix(), Uuid::now_v7().simple());
        self.0.write(operation, &blob, body.to_vec(), None, &When::Always).await?;
        Ok(Encoded { text: encode_reference(&blob, None), blob: Some(blob) })
    }

    /// Reads the body of the message with this text, within `limit`.
    pub(crate) async fn fetch(&self, operation: &'static str, text: &str, limit: Duration) -> Fetched {
        match decode(text) {
            Decoded::Body(body) => Fetched::Body(body, None),
            // A message must not cause any other blob to be read or deleted.
            Decoded::Reference(reference) if is_long_body(&reference.blob) => {
                match self.0.read_within(operation, &reference.blob, limit, BODY_BYTES_MAX).await {
                    Ok(Some(read)) => Fetched::Body(read.bytes, Some(reference.blob)),
                    Ok(None) => {
                        let reason = self.missing(&reference.blob);
                        Fetched::Unreadable(reference, reason)
                    }
                    Err(error) => {
                        let reason = format!("the message's long body can't be read: {}", error.message());
                        Fetched::Unreadable(reference, reason)
                    }
                }
            }
            Decoded::Reference(_) => Fetched::Body(text.as_bytes().to_vec(), None),
        }
    }

    fn missing(&self, blob: &str) -> String {
        let container = self.0.name();
        format!(
            "the message's long body is missing: there is no blob {blob} in the container {container}; use the container \
             that the sender used, or enqueue the job again"
        )
    }

    /// Deletes the blob of a body that is no longer needed. A failure is harmless and only logged.
    pub(crate) async fn remove(&self, blob: Option<&str>) {
        if let Some(blob) = blob
            && let Err(error) = self.0.delete("remove a long body", blob).await
        {
            tracing::warn!(%error, blob, "failed to remove the long body of a settled message; the blob remains");
        }
    }
}

fn prefix() -> String {
    format!("{RESERVED}messages/")
}

fn is_long_body(blob: &str) -> bool {
    blob.strip_prefix(&prefix()).is_some_and(|id| Uuid::try_parse(id).is_ok())
}

/// The longest text of a message, in bytes.
/// <https://learn.microsoft.com/rest/api/storageservices/put-message>
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// A message's decoded text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// The body.
    Body(Vec<u8>),
    /// The body is in a blob.
    Reference(Reference),
}

/// The text of a message with its body in a blob.
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

/// The beginning of a [`Reference`], as [`encode_reference`] writes it.
const REFERENCE_BEGINS: &[u8] = b"{\"reprievebody\":";

/// Encodes `body`; `None` when it needs a blob, because it is too long or would be decoded
/// differently.
pub(crate) fn encode_body(body: &[u8]) -> Option<String> {
    let text = STANDARD.encode(body);
    let fits = text.len() <= TEXT_BYTES_MAX;
    (fits && matches!(decode(&text), Decoded::Body(decoded) if decoded == body)).then_some(text)
}

/// Encodes a reference to `blob`, with the time since when it can't be read.
pub(crate) fn encode_reference(blob: &str, unreadable_since: Option<i64>) -> String {
    // Strings and numbers always have a JSON form.
    let json = serde_json::to_vec(&Reference { blob: blob.to_owned(), unreadable_since }).unwrap_or_default();
    STANDARD.encode(json)
}

/// Whether this is the text of a message with its body in a blob.
pub(crate) fn is_reference(text: &str) -> bool {
    matches!(decode(text), Decoded::Reference(_))
}

/// Decodes a message's text.
pub(crate) fn decode(text: &str) -> Decoded {
    let body = match STANDARD.decode(text) {
        Ok(decoded) if is_json(text.as_bytes()) && !is_json(&decoded) => text.as_bytes().to_vec(),
        Ok(decoded) => decoded,
        Err(_) => text.as_bytes().to_vec(),
    };
    match reference(&body) {
        Some(reference) => Decoded::Reference(reference),
        None => Decoded::Body(body),
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
        fn any_body_is_decoded_as_it_was_encoded_or_goes_to_a_blob(body: Vec<u8>) {
            if let Some(text) = encode_body(&body) {
                prop_assert_eq!(decode(&text), Decoded::Body(body));
            }
        }
    }

    #[test]
    fn jobs_travel_as_base64() {
        let body = br#"{"specversion":"1.0","type":"k","id":"a"}"#;
        let text = encode_body(body).unwrap();
        assert!(text.starts_with("eyJ"), "{text}");
        assert_eq!(decode(&text), Decoded::Body(body.to_vec()));
    }

    #[test]
    fn plain_text_of_other_senders_is_the_body() {
        for text in [r#"{"a":1}"#, "1234", "null", "hello there", "", "äöü", "<QueueMessage>"] {
            assert_eq!(decode(text), Decoded::Body(text.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn a_body_that_is_too_long_or_would_be_misread_goes_to_a_blob() {
        assert!(encode_body(&vec![b'x'; 48 * 1024]).is_some());
        assert!(encode_body(&vec![b'x'; 48 * 1024 + 1]).is_none());
        // Its base64 is the number 1234.
        assert!(encode_body(&STANDARD.decode("1234").unwrap()).is_none());
        // It looks like a reference.
        assert!(encode_body(br#"{"reprievebody":"x"}"#).is_none());
        assert!(encode_body(br#"{"reprievebody":"x","reprieveunreadablesince":1}"#).is_none());
    }

    #[test]
    fn a_reference_is_decoded_as_one() {
        for unreadable_since in [None, Some(1_700_000_000_123)] {
            let reference = Reference { blob: ".reprieve/messages/1".to_owned(), unreadable_since };
            assert_eq!(
                decode(&encode_reference(&reference.blob, unreadable_since)),
                Decoded::Reference(reference)
            );
        }
    }
}
