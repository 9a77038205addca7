//! Stores message bodies that are too long for a message as blobs.

use std::time::Duration;

use reprieve_core::Result;
use uuid::Uuid;

use super::text::{Reference, Said, of_body, of_reference, read};
use crate::storage::blob::{Container, RESERVED, When};

/// The container of the long bodies.
#[derive(Debug)]
pub(crate) struct Overflow(Container);

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
pub(crate) struct Placed {
    pub(crate) text: String,
    pub(crate) blob: Option<String>,
}

impl Overflow {
    pub(crate) fn new(container: Container) -> Self {
        Self(container)
    }

    /// Encodes `body` as a message's text; writes a long body to a blob first.
    pub(crate) async fn place(&self, operation: &'static str, body: &[u8]) -> Result<Placed> {
        if let Some(text) = of_body(body) {
            return Ok(Placed { text, blob: None });
        }
        let blob = format!("{}{}", prefix(), Uuid::now_v7().simple());
        self.0.write(operation, &blob, body.to_vec(), None, &When::Always).await?;
        Ok(Placed { text: of_reference(&blob, None), blob: Some(blob) })
    }

    /// Reads the body of the message with this text, within `limit`.
    pub(crate) async fn fetch(&self, operation: &'static str, text: &str, limit: Duration) -> Fetched {
        match read(text) {
            Said::Body(body) => Fetched::Body(body, None),
            // A message must not cause any other blob to be read or deleted.
            Said::In(reference) if is_ours(&reference.blob) => {
                match self.0.read_within(operation, &reference.blob, limit).await {
                    Ok(Some(read)) => Fetched::Body(read.bytes, Some(reference.blob)),
                    Ok(None) => {
                        let reason = self.gone(&reference.blob);
                        Fetched::Unreadable(reference, reason)
                    }
                    Err(error) => {
                        let reason = format!("the message's long body can't be read: {}", error.message());
                        Fetched::Unreadable(reference, reason)
                    }
                }
            }
            Said::In(_) => Fetched::Body(text.as_bytes().to_vec(), None),
        }
    }

    fn gone(&self, blob: &str) -> String {
        let container = self.0.name();
        format!(
            "the message's long body is gone: there is no blob {blob} in the container {container}; use the container \
             that the sender used, or enqueue the job again"
        )
    }

    /// Deletes a body that is no longer needed. A failure is harmless and only logged.
    pub(crate) async fn forget(&self, blob: Option<&str>) {
        if let Some(blob) = blob
            && let Err(error) = self.0.delete("remove a long body", blob).await
        {
            tracing::warn!(%error, blob, "could not remove the long body of a settled message");
        }
    }
}

fn prefix() -> String {
    format!("{RESERVED}messages/")
}

fn is_ours(blob: &str) -> bool {
    blob.strip_prefix(&prefix()).is_some_and(|id| Uuid::try_parse(id).is_ok())
}
