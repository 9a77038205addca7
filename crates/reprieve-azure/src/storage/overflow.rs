//! Bodies that are too long for a message, as blobs.

use reprieve_core::Result;
use uuid::Uuid;

use super::blob::{Container, When};
use super::blobs::RESERVED;
use super::text::{Said, of_body, of_reference, read};

/// Where long bodies are.
#[derive(Debug)]
pub(crate) struct Overflow(Container);

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

    /// Makes the text that says `body`; a long body goes to a blob first.
    pub(crate) async fn place(&self, operation: &'static str, body: &[u8]) -> Result<Placed> {
        if let Some(text) = of_body(body) {
            return Ok(Placed { text, blob: None });
        }
        let blob = format!("{}{}", prefix(), Uuid::now_v7().simple());
        self.0.write(operation, &blob, body.to_vec(), None, &When::Always).await?;
        Ok(Placed { text: of_reference(&blob), blob: Some(blob) })
    }

    /// The body that `text` says, and the blob that it was in.
    ///
    /// # Errors
    /// As the store's own. A blob that is gone is no error: the text is the body then, for the poison queue to keep.
    pub(crate) async fn fetch(
        &self,
        operation: &'static str,
        text: &str,
    ) -> Result<(Vec<u8>, Option<String>)> {
        match read(text) {
            Said::Body(body) => Ok((body, None)),
            // Whoever can send messages must not be able to have any other blob read, or removed.
            Said::In(blob) if is_ours(&blob) => match self.0.read(operation, &blob).await? {
                Some(read) => Ok((read.bytes, Some(blob))),
                None => Ok((text.as_bytes().to_vec(), None)),
            },
            Said::In(_) => Ok((text.as_bytes().to_vec(), None)),
        }
    }

    /// Removes a body that is no longer needed. What can't be removed harms nobody.
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
