//! The poison queue: moves messages there as dead letters, and reads them.
//!
//! A dead letter is readable by any tool. A body that is a JSON object, as every job's is, gets one
//! more member at its end, `reprievereason`. Any other body is stored as base64 in a JSON envelope.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{FutureExt, StreamExt, stream};
use reprieve_core::clock::unix_millis;
use reprieve_core::ports::{DeadLetter, DeadLettered, Delivery, Receipt, Unreadable};
use reprieve_core::{Error, ErrorKind, MessageId, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::BODIES_AT_ONCE;
use super::body::{self, Bodies, Encoded, Fetched, LONG_BODY_MAX, TEXT_BYTES_MAX};
use super::calls::{BATCH_MAX, QueueCalls, Received};
use super::receipt::ReceiptParts;
use crate::storage::call::{is_parent, may_be_applied};

/// How long a dead letter stays invisible in the poison queue unless its message is deleted
/// earlier. If the delete fails because another owner has the message, the dead letter is deleted
/// again before any client has seen it.
const HIDDEN: Duration = Duration::from_secs(60);

/// The limit for reading one dead letter's long body when a person lists dead letters.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// A queue's poison queue, with the container of its long bodies.
pub(super) struct PoisonQueue {
    queue: QueueCalls,
    bodies: Bodies,
}

impl PoisonQueue {
    pub(super) fn new(queue: QueueCalls, bodies: Bodies) -> Self {
        Self { queue, bodies }
    }

    /// The calls to the queue itself.
    pub(super) const fn queue(&self) -> &QueueCalls {
        &self.queue
    }

    /// Moves a message of the queue `from` here.
    ///
    /// Puts the dead letter first, invisible; then deletes the message; then makes the dead letter
    /// visible. A worker that dies in between leaves the message, its dead letter, or both. If the
    /// delete certainly failed, for example because another owner has the message, the dead letter
    /// is deleted again. If the answer to the put is lost, there may be two dead letters.
    pub(super) async fn dead_letter(
        &self,
        from: &QueueCalls,
        receipt: &Receipt,
        body: &[u8],
        letter: &DeadLetter,
    ) -> Result<()> {
        const OPERATION: &str = "dead-letter a message";
        let message = ReceiptParts::read(receipt)?;
        let Encoded { text, blob } = self.bodies.encode(OPERATION, &encode(body, &letter.reason)).await?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::TooLarge,
                OPERATION,
                "the dead letter is too long for a message",
            ));
        }
        let sent = match self.queue.put(OPERATION, &text, HIDDEN).await {
            Ok(sent) => sent,
            Err(error) => {
                if !may_be_applied(&error) {
                    self.bodies.remove(blob.as_deref()).await;
                }
                return Err(error);
            }
        };
        let put = ReceiptParts::of(&sent.id, &sent.pop);
        if let Err(error) = from.delete(OPERATION, &message).await {
            if error.kind() != ErrorKind::TimedOut {
                match self.queue.delete(OPERATION, &put).await {
                    Ok(()) => self.bodies.remove(blob.as_deref()).await,
                    Err(error) => {
                        tracing::warn!(%error, "failed to delete a dead letter whose message was not deleted; its job may also continue elsewhere");
                    }
                }
            }
            return Err(error);
        }
        if message.unreadable_since.is_none() {
            // A dead letter that only refers to the long body still needs it.
            self.bodies.remove(message.blob).await;
        }
        if let Err(error) = self.queue.update(OPERATION, &put, Duration::ZERO, None).await {
            tracing::debug!(%error, "failed to make a dead letter visible; it becomes visible within a minute");
        }
        Ok(())
    }

    /// Peeks at the oldest dead letters.
    pub(super) async fn peek(&self, max: usize) -> Result<Vec<DeadLettered>> {
        const OPERATION: &str = "look at the poison queue";
        if max == 0 {
            return Ok(Vec::new());
        }
        let peeked = match self.queue.peek(OPERATION, max.min(BATCH_MAX)).await {
            Err(error) if is_missing_queue(&error) => return Ok(Vec::new()),
            peeked => peeked?,
        };
        let mut letters = Vec::with_capacity(peeked.len());
        for message in peeked {
            let text = message.message_text.unwrap_or_default();
            let Opened { body, reason, unreadable, .. } = self.open(OPERATION, &text, LOOK_MAX).await;
            let id = MessageId::new(message.message_id.unwrap_or_default());
            if let Some(why) = unreadable {
                tracing::warn!(message_id = %id, why, "failed to read the body of a dead letter");
            }
            letters.push(DeadLettered { id, body, reason });
        }
        Ok(letters)
    }

    /// Receives dead letters, without their reasons.
    pub(super) async fn receive(&self, max: usize, lease: Duration) -> Result<Vec<Delivery>> {
        let received = match self.queue.receive("receive dead letters", max, lease).await {
            Err(error) if is_missing_queue(&error) => return Ok(Vec::new()),
            received => received?,
        };
        let deliveries: Vec<_> = received.into_iter().map(|one| self.delivery(one).boxed()).collect();
        Ok(stream::iter(deliveries).buffered(BODIES_AT_ONCE).collect().await)
    }

    async fn delivery(&self, received: Received) -> Delivery {
        let letter = self.open("read a dead letter", &received.text, LONG_BODY_MAX).await;
        let since_unix_ms = unix_millis();
        let unreadable = letter.unreadable.map(|reason| Unreadable { reason, since_unix_ms });
        Delivery { unreadable, ..received.delivery(letter.body, letter.blob.as_deref()) }
    }

    /// Deletes a received dead letter.
    pub(super) async fn remove(&self, receipt: &Receipt) -> Result<()> {
        let letter = ReceiptParts::read(receipt)?;
        self.queue.delete("remove a dead letter", &letter).await?;
        self.bodies.remove(letter.blob).await;
        Ok(())
    }

    /// Makes a received dead letter visible again.
    pub(super) async fn release(&self, receipt: &Receipt) -> Result<()> {
        let letter = ReceiptParts::read(receipt)?;
        self.queue.update("return a dead letter", &letter, Duration::ZERO, None).await.map(drop)
    }

    /// Reads a dead letter from a message's text. If the message was dead-lettered because its long
    /// body could not be read, the dead letter contains the message's own text, and the long body
    /// is read once more.
    async fn open(&self, operation: &'static str, text: &str, limit: Duration) -> Opened {
        let (letter, blob) = match self.bodies.fetch(operation, text, limit).await {
            Fetched::Body(letter, blob) => (letter, blob),
            Fetched::Unreadable(_, reason) => {
                let body = text.as_bytes().to_vec();
                return Opened { body, reason: None, blob: None, unreadable: Some(reason) };
            }
        };
        let (body, reason) = match decode(&letter) {
            Some((body, reason)) => (body, Some(reason)),
            None => (letter, None),
        };
        let Some(reference) = std::str::from_utf8(&body).ok().filter(|text| body::is_reference(text)) else {
            return Opened { body, reason, blob, unreadable: None };
        };
        match self.bodies.fetch(operation, reference, limit).await {
            Fetched::Body(body, blob) => Opened { body, reason, blob, unreadable: None },
            Fetched::Unreadable(_, why) => Opened { body, reason, blob: None, unreadable: Some(why) },
        }
    }
}

/// A dead letter that was read.
struct Opened {
    body: Vec<u8>,
    reason: Option<String>,
    /// The blob to delete with the dead letter.
    blob: Option<String>,
    /// Why the body is the referring text instead of the one that was sent.
    unreadable: Option<String>,
}

/// Whether the queue does not exist, so it has no dead letters.
fn is_missing_queue(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && is_parent(error)
}

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
fn encode(body: &[u8], reason: &str) -> Vec<u8> {
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
fn decode(letter: &[u8]) -> Option<(Vec<u8>, String)> {
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
        let letter = encode(body, reason);
        assert_eq!(decode(&letter), Some((body.to_vec(), reason.to_owned())), "{body:?}");
        let json: serde_json::Value = serde_json::from_slice(&letter).unwrap();
        assert_eq!(json["reprievereason"], reason);
        let same_form = body.strip_suffix(b"}").is_some_and(|open| letter.starts_with(open));
        assert_eq!(same_form, readable, "{}", String::from_utf8_lossy(&letter));
    }

    #[test]
    fn a_json_object_keeps_its_form_and_gets_a_reason() {
        for body in
            [r#"{"specversion":"1.0","type":"k","id":"a","data":{"x":"}"}}"#, "{}", "{ }", "{\n \"a\": 1\n}"]
        {
            check(body.as_bytes(), "no job is called \"k\"\n", true);
        }
    }

    #[test]
    fn any_other_body_is_wrapped_and_decoded_byte_for_byte() {
        let twice = encode(b"{\"a\":1}", "first");
        for body in
            [&b""[..], b"hello", b"[1]", b"17", b"\"}\"", b"{\"a\":1", b"{\"a\":1} ", b"\xff{}", b"{}}"]
        {
            check(body, "it is no JSON object", false);
        }
        assert_eq!(decode(&encode(&twice, "second")), Some((twice, "second".to_owned())));
    }

    #[test]
    fn a_message_of_another_program_has_no_reason() {
        for letter in [&b"hello"[..], b"{\"a\":1}", b"", b"{\"reprievereason\":1}"] {
            assert_eq!(decode(letter), None);
        }
    }

    proptest! {
        #[test]
        fn any_dead_letter_is_decoded_as_it_was_encoded(body: Vec<u8>, reason: String) {
            prop_assert_eq!(decode(&encode(&body, &reason)), Some((body, reason)));
        }
    }
}
