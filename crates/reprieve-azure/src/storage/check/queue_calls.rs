//! The calls to one queue that a check makes, each bounded, with times to live of their own.

use std::time::Duration;

use azure_core::http::headers::HeaderName;
use azure_storage_queue::QueueClient;
use azure_storage_queue::models::{
    PeekedMessage, QueueClientGetPropertiesResultHeaders as _, QueueClientPeekMessagesOptions,
    QueueClientReceiveMessagesOptions, QueueClientSendMessageOptions, QueueMessage,
};
use reprieve_core::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::super::access::Access;
use super::super::blob::absent_is_gone;
use super::super::effort::temporary;
use super::super::failure::{Target, bounded, failure};
use super::super::text;
use super::{Effort, TRY_MAX};

/// What a message of a check says, should anybody see one.
const BODY: &[u8] = br#"{"reprieve":"a message of `reprieve doctor`; it may be deleted"}"#;

/// A queue that is there, or is to be.
pub(super) struct Calls {
    client: QueueClient,
    name: String,
}

/// What holds a message.
pub(super) struct Held {
    id: String,
    pop: String,
}

impl Calls {
    pub(super) fn new(access: &Access, name: &str) -> Result<Self> {
        Ok(Self { client: access.queue(name)?, name: name.to_owned() })
    }

    fn target(&self) -> Target<'_> {
        Target::Queue(&self.name)
    }

    /// Makes a call, and once more when that may help.
    async fn call<T, F: Future<Output = azure_core::Result<T>>>(
        &self,
        operation: &'static str,
        mut call: impl FnMut() -> F,
    ) -> Result<T> {
        let each = Effort::CHECK.each;
        Effort::CHECK
            .repeat(operation, TRY_MAX, temporary, || bounded(operation, self.target(), each, call()))
            .await
    }

    pub(super) async fn create(&self) -> Result<()> {
        self.call("create a queue", || self.client.create(None)).await.map(drop)
    }

    /// Removes the queue; once, in the time that is left.
    pub(super) async fn remove(&self, limit: Duration) -> Result<()> {
        const OPERATION: &str = "delete a queue";
        let removed = bounded(OPERATION, self.target(), limit, self.client.delete(None)).await;
        absent_is_gone(removed.map(drop))
    }

    /// Sends a message that is invisible for `hidden` seconds and gone after `lives`.
    pub(super) async fn send(&self, hidden: i32, lives: i32) -> Result<Held> {
        const OPERATION: &str = "send a message";
        let sent = self.call(OPERATION, || async {
            let options = QueueClientSendMessageOptions {
                message_time_to_live: Some(lives),
                visibility_timeout: Some(hidden),
                ..Default::default()
            };
            let message = QueueMessage { message_text: text::of_body(BODY) };
            self.client.send_message(message.try_into()?, Some(options)).await?.into_model()
        });
        let sent = sent.await?.items.into_iter().flatten().next();
        held(OPERATION, sent.and_then(|sent| Some((sent.message_id?, sent.pop_receipt?))))
    }

    /// Receives a message, if there is one.
    pub(super) async fn receive(&self, lease: i32) -> Result<Option<Held>> {
        const OPERATION: &str = "receive messages";
        let received = self.call(OPERATION, || async {
            let options =
                QueueClientReceiveMessagesOptions { visibility_timeout: Some(lease), ..Default::default() };
            self.client.receive_messages(Some(options)).await?.into_model()
        });
        let received = received.await?.items.into_iter().flatten().next();
        Ok(received.and_then(|one| Some(Held { id: one.message_id?, pop: one.pop_receipt? })))
    }

    /// Makes the message invisible for so many seconds from now. Once: a second try would have an old receipt.
    pub(super) async fn update(&self, held: &Held, hidden: i32) -> Result<Held> {
        const OPERATION: &str = "renew a lease";
        let updated = self.client.update_message(&held.id, &held.pop, hidden, None);
        let updated = bounded(OPERATION, self.target(), Effort::CHECK.each, updated).await?;
        let pop = updated.headers().get_optional_string(&HeaderName::from_static("x-ms-popreceipt"));
        self::held(OPERATION, pop.map(|pop| (held.id.clone(), pop)))
    }

    pub(super) async fn delete(&self, held: &Held) -> Result<()> {
        self.call("delete a message", || self.client.delete_message(&held.id, &held.pop, None))
            .await
            .map(drop)
    }

    pub(super) async fn peek(&self, max: i32) -> Result<Vec<PeekedMessage>> {
        let peeked = self.call("peek at messages", || async {
            let options =
                QueueClientPeekMessagesOptions { number_of_messages: Some(max), ..Default::default() };
            self.client.peek_messages(Some(options)).await?.into_model()
        });
        Ok(peeked.await?.items.unwrap_or_default())
    }

    pub(super) async fn count(&self) -> Result<u64> {
        const OPERATION: &str = "count messages";
        let found = self.call(OPERATION, || self.client.get_properties(None)).await?;
        let count =
            found.approximate_messages_count().map_err(|error| failure(OPERATION, self.target(), error))?;
        Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
    }
}

impl Held {
    /// A receipt of a message that is not there: whoever may not touch messages is told that first.
    pub(super) fn of_nothing() -> Self {
        Self { id: Uuid::now_v7().to_string(), pop: "AgAAAAMAAAAAAAAAAAAAAAAAAAA=".to_owned() }
    }
}

/// Whether a call with [`Held::of_nothing`] may be made: its message is missing, which is no refusal.
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

fn held(operation: &'static str, named: Option<(String, String)>) -> Result<Held> {
    let (id, pop) = named.ok_or_else(|| {
        Error::new(ErrorKind::Internal, operation, "the service's answer names no message or no receipt")
    })?;
    Ok(Held { id, pop })
}
