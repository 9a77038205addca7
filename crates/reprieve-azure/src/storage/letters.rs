//! Dead letters: how a message gets into the poison queue, and how it is looked at there.

use std::time::Duration;

use reprieve_core::ports::{DeadLetter, DeadLettered, Receipt};
use reprieve_core::{Error, ErrorKind, MessageId, Result};

use super::failure::is_parent;
use super::overflow::Placed;
use super::poison;
use super::queue::{AzureQueue, BATCH_MAX, may_be_applied};
use super::receipt::Held;
use super::text::TEXT_BYTES_MAX;

/// How long a dead letter stays invisible in the poison queue unless its message is deleted before: when the delete
/// turns out to be another owner's business, the letter is taken back and nobody has seen it.
const HIDDEN: Duration = Duration::from_secs(60);

impl AzureQueue {
    /// The letter is put first, invisible; then the message is deleted; then the letter is shown. Whoever dies in between
    /// leaves the message, its letter, or both; who finds that the message is no longer its own takes the letter back. Where
    /// the answer about the letter is lost, there may be two.
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
        let put = Held { id: &sent.id, pop: &sent.pop, overflow: None };
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
        self.overflow.forget(held.overflow).await;
        if let Err(error) = self.poison.update(OPERATION, &put, Duration::ZERO, None).await {
            tracing::debug!(%error, "a dead letter shows only in a minute");
        }
        Ok(())
    }

    /// The oldest letters, which stay.
    pub(super) async fn letters(&self, max: usize) -> Result<Vec<DeadLettered>> {
        const OPERATION: &str = "look at the poison queue";
        if max == 0 {
            return Ok(Vec::new());
        }
        let peeked = self.poison.peek(OPERATION, max.min(BATCH_MAX)).await;
        let peeked = match peeked {
            // Nothing was ever put there.
            Err(error) if error.kind() == ErrorKind::NotFound && is_parent(&error) => return Ok(Vec::new()),
            peeked => peeked?,
        };
        let mut letters = Vec::with_capacity(peeked.len());
        for message in peeked {
            let text = message.message_text.unwrap_or_default();
            let (letter, _) = self.overflow.fetch(OPERATION, &text).await?;
            let (body, reason) =
                poison::read(&letter).map_or((letter, None), |(body, reason)| (body, Some(reason)));
            letters.push(DeadLettered {
                id: MessageId::new(message.message_id.unwrap_or_default()),
                body,
                reason,
            });
        }
        Ok(letters)
    }
}
