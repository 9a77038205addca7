//! A check's calls to one queue: a store's calls, repeated where that may help, with a limited time
//! to live for messages.

use std::time::Duration;

use azure_storage_queue::models::PeekedMessage;
use reprieve_core::{ErrorKind, QueueName, Result};
use uuid::Uuid;

use crate::storage::call::{Access, Effort, temporary};
use crate::storage::queue::{self, Messages, of_body};

/// The body of a check's message, for people who find one.
const BODY: &[u8] = br#"{"reprieve":"a message of `reprieve doctor`; it may be deleted"}"#;

/// A queue that exists or will be created.
pub(super) struct Calls(Messages);

/// The message id and pop receipt of a leased message.
pub(super) struct Held {
    id: String,
    pop: String,
}

impl Calls {
    pub(super) fn new(access: &Access, name: &QueueName) -> Result<Self> {
        Messages::new(access, name.clone(), Effort::CHECK).map(Self)
    }

    /// Makes a call, and repeats it where that may help.
    async fn call<T, F: Future<Output = Result<T>>>(
        &self,
        operation: &'static str,
        call: impl FnMut() -> F,
    ) -> Result<T> {
        Effort::CHECK.repeat(operation, Effort::CHECK.whole_try(), temporary, call).await
    }

    pub(super) async fn create(&self) -> Result<()> {
        self.0.create().await
    }

    /// Deletes the queue, with one call, within `limit`.
    pub(super) async fn remove(&self, limit: Duration) -> Result<()> {
        self.0.destroy_within(limit).await
    }

    /// Sends a message that is invisible for `hidden` and expires after `lives` seconds.
    pub(super) async fn send(&self, hidden: Duration, lives: i32) -> Result<Held> {
        const OPERATION: &str = "send a message";
        let text = of_body(BODY).unwrap_or_default();
        let sent = self.call(OPERATION, || self.0.put_for(OPERATION, &text, hidden, lives)).await?;
        Ok(Held { id: sent.id, pop: sent.pop })
    }

    /// Receives a message, if there is one.
    pub(super) async fn receive(&self, lease: Duration) -> Result<Option<Held>> {
        const OPERATION: &str = "receive messages";
        let received = self.call(OPERATION, || self.0.receive(OPERATION, 1, lease)).await?;
        let one = received.into_iter().next();
        Ok(one.and_then(|one| Some(Held { id: one.message_id?, pop: one.pop_receipt? })))
    }

    /// Makes the message invisible for `hidden` from now. Not repeated: a second try would have an
    /// old receipt.
    pub(super) async fn update(&self, held: &Held, hidden: Duration) -> Result<Held> {
        let pop = self.0.update("renew a lease", &held.as_receipt(), hidden, None).await?;
        Ok(Held { id: held.id.clone(), pop })
    }

    pub(super) async fn delete(&self, held: &Held) -> Result<()> {
        const OPERATION: &str = "delete a message";
        self.call(OPERATION, || async { self.0.delete(OPERATION, &held.as_receipt()).await }).await
    }

    pub(super) async fn peek(&self, max: usize) -> Result<Vec<PeekedMessage>> {
        self.0.peek("peek at messages", max).await
    }

    pub(super) async fn count(&self) -> Result<u64> {
        self.0.count().await
    }
}

impl Held {
    fn as_receipt(&self) -> queue::Held<'_> {
        queue::Held::of(&self.id, &self.pop)
    }

    /// A receipt of a message that does not exist. The service checks permissions before it looks
    /// for the message.
    pub(super) fn of_nothing() -> Self {
        Self { id: Uuid::now_v7().to_string(), pop: "AgAAAAMAAAAAAAAAAAAAAAAAAAA=".to_owned() }
    }
}

/// Whether a call with [`Held::of_nothing`] is permitted: then the service reports a missing
/// message instead of a refusal.
pub(super) fn allowed<T>(answer: Result<T>) -> Result<()> {
    match answer {
        Err(error)
            if matches!(error.kind(), ErrorKind::LeaseLost | ErrorKind::NotFound | ErrorKind::Invalid) =>
        {
            Ok(())
        }
        answer => answer.map(drop),
    }
}
