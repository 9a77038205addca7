//! Dead letters: moving a message to the poison queue, and reading it there.

use std::time::Duration;

use reprieve_core::ports::{DeadLetter, DeadLettered, Receipt};
use reprieve_core::{Error, ErrorKind, MessageId, Result};

use super::overflow::{Fetched, Placed};
use super::poison;
use super::receipt::Held;
use super::text::{self, TEXT_BYTES_MAX};
use super::{AzureQueue, BATCH_MAX, may_be_applied};
use crate::storage::call::is_parent;

/// How long a dead letter stays invisible in the poison queue unless its message is deleted
/// earlier. If the delete fails because another owner has the message, the dead letter is deleted
/// again before any client has seen it.
const HIDDEN: Duration = Duration::from_secs(60);

/// The limit for reading one dead letter's long body when a person lists dead letters.
const LOOK_MAX: Duration = Duration::from_secs(30);

impl AzureQueue {
    /// Puts the dead letter first, invisible; then deletes the message; then makes the dead letter
    /// visible. A worker that dies in between leaves the message, its dead letter, or both. If the
    /// delete certainly failed, for example because another owner has the message, the dead letter
    /// is deleted again. If the answer to the put is lost, there may be two dead letters.
    pub(super) async fn bury(&self, receipt: &Receipt, body: &[u8], letter: &DeadLetter) -> Result<()> {
        const OPERATION: &str = "dead-letter a message";
        let held = Held::read(receipt)?;
        let Placed { text, blob } =
            self.overflow.place(OPERATION, &poison::write(body, &letter.reason)).await?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, OPERATION, "the letter is too long for a message"));
        }
        let sent = match self.poison.put(OPERATION, &text, HIDDEN).await {
            Ok(sent) => sent,
            Err(error) => {
                if !may_be_applied(&error) {
                    self.overflow.forget(blob.as_deref()).await;
                }
                return Err(error);
            }
        };
        let put = Held::of(&sent.id, &sent.pop);
        if let Err(error) = self.main.delete(OPERATION, &held).await {
            if error.kind() != ErrorKind::TimedOut {
                match self.poison.delete(OPERATION, &put).await {
                    Ok(()) => self.overflow.forget(blob.as_deref()).await,
                    Err(error) => {
                        tracing::warn!(%error, "could not take a dead letter back; its job goes on elsewhere");
                    }
                }
            }
            return Err(error);
        }
        if held.unreadable_since.is_none() {
            // A dead letter that only refers to the long body still needs it.
            self.overflow.forget(held.overflow).await;
        }
        if let Err(error) = self.poison.update(OPERATION, &put, Duration::ZERO, None).await {
            tracing::debug!(%error, "a dead letter shows only in a minute");
        }
        Ok(())
    }

    /// Peeks at the oldest dead letters.
    pub(super) async fn letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        const OPERATION: &str = "look at the poison queue";
        if max == 0 {
            return Ok(Vec::new());
        }
        let peeked = match self.poison.peek(OPERATION, max.min(BATCH_MAX)).await {
            Err(error) if is_missing_queue(&error) => return Ok(Vec::new()),
            peeked => peeked?,
        };
        let mut letters = Vec::with_capacity(peeked.len());
        for message in peeked {
            let text = message.message_text.unwrap_or_default();
            let Letter { body, reason, unreadable, .. } = self.open_letter(OPERATION, &text, LOOK_MAX).await;
            let id = MessageId::new(message.message_id.unwrap_or_default());
            if let Some(why) = unreadable {
                tracing::warn!(message_id = %id, why, "the body of a dead letter can't be read");
            }
            letters.push(DeadLettered { id, body, reason });
        }
        Ok(letters)
    }

    /// Reads a dead letter from a message's text. If the message was dead-lettered because its long
    /// body could not be read, the dead letter contains the message's own text, and the long body
    /// is read once more.
    pub(super) async fn open_letter(&self, operation: &'static str, text: &str, limit: Duration) -> Letter {
        let (letter, blob) = match self.overflow.fetch(operation, text, limit).await {
            Fetched::Body(letter, blob) => (letter, blob),
            Fetched::Unreadable(_, reason) => {
                let body = text.as_bytes().to_vec();
                return Letter { body, reason: None, blob: None, unreadable: Some(reason) };
            }
        };
        let (body, reason) = match poison::read(&letter) {
            Some((body, reason)) => (body, Some(reason)),
            None => (letter, None),
        };
        let Some(reference) = std::str::from_utf8(&body).ok().filter(|text| text::is_reference(text)) else {
            return Letter { body, reason, blob, unreadable: None };
        };
        match self.overflow.fetch(operation, reference, limit).await {
            Fetched::Body(body, blob) => Letter { body, reason, blob, unreadable: None },
            Fetched::Unreadable(_, why) => Letter { body, reason, blob: None, unreadable: Some(why) },
        }
    }
}

/// A dead letter that was read.
pub(super) struct Letter {
    pub(super) body: Vec<u8>,
    pub(super) reason: Option<String>,
    /// The blob to delete with the dead letter.
    pub(super) blob: Option<String>,
    /// Why the body is the referring text instead of the one that was sent.
    pub(super) unreadable: Option<String>,
}

/// Whether the queue does not exist, so it has no dead letters.
pub(super) fn is_missing_queue(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && is_parent(error)
}
