//! A typical loop on the official SDK: receive 32 messages, then delete each in its own task.

use std::sync::Arc;

use anyhow::{Context, Result};
use azure_core::http::{ClientOptions, RetryOptions, Transport};
use azure_storage_queue::models::{QueueClientReceiveMessagesOptions, ReceivedMessage};
use azure_storage_queue::{QueueClient, QueueClientOptions};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::{BATCH, HELD_SECONDS, Loop, PAUSE, http, say};

pub(super) async fn run(what: &Loop) -> Result<()> {
    let options = QueueClientOptions {
        client_options: ClientOptions {
            transport: Some(Transport::new(Arc::new(http()?))),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        },
        ..QueueClientOptions::default()
    };
    let queue = Arc::new(QueueClient::new(what.queue.clone(), None, Some(options))?);
    let slots = Arc::new(Semaphore::new(usize::try_from(what.in_flight)?));
    loop {
        // Wait for a whole batch's slots first, so that no received message waits while its lease
        // runs.
        let room = Arc::clone(&slots).acquire_many_owned(BATCH.min(what.in_flight)).await?;
        let messages = receive(&queue).await?;
        if messages.is_empty() {
            drop(room);
            sleep(PAUSE).await;
            continue;
        }
        let mut room = room;
        for message in messages {
            let slot = room.split(1).context("more messages came than were asked for")?;
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                if let Err(error) = done(&queue, message).await {
                    say(&format!("a message was not deleted: {error:#}"));
                }
                drop(slot);
            });
        }
    }
}

async fn receive(queue: &QueueClient) -> Result<Vec<ReceivedMessage>> {
    let options = QueueClientReceiveMessagesOptions {
        number_of_messages: Some(BATCH.try_into()?),
        visibility_timeout: Some(HELD_SECONDS),
        ..QueueClientReceiveMessagesOptions::default()
    };
    let received = queue.receive_messages(Some(options)).await?.into_model()?;
    Ok(received.items.unwrap_or_default())
}

async fn done(queue: &QueueClient, message: ReceivedMessage) -> Result<()> {
    let id = message.message_id.context("a message without an id")?;
    let receipt = message.pop_receipt.context("a message without a receipt")?;
    queue.delete_message(&id, &receipt, None).await?;
    Ok(())
}
