//! The requests to the queue service and their answers.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/queue-service-rest-api>

use std::time::Duration;

use uuid::Uuid;

use super::messages::{Message, NotOwned};
use super::receipt::Receipt;
use super::{Queue, Queues};
use crate::storage::answer::Answer;
use crate::storage::moment::{Moment, never};
use crate::storage::names;
use crate::storage::operation::Operation;
use crate::storage::refusal::{
    BODY_TOO_LARGE, INVALID_QUERY, INVALID_XML, MESSAGE_NOT_FOUND, MISSING_QUERY, QUEUE_ALREADY_EXISTS,
    QUEUE_NOT_FOUND, Refusal, UNWRITABLE,
};
use crate::storage::request::Request;
use crate::storage::xml::{self, Xml};

/// The longest text of a message, in bytes of UTF-8.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The most messages that one request returns.
const BATCH_MAX: i64 = 32;
/// Seven days: the longest time for which a message is hidden, and its default lifetime.
const WEEK_SECONDS: i64 = 604_800;
/// The default time for which a received message is hidden.
const VISIBILITY_SECONDS: i64 = 30;

pub(crate) fn answer(queues: &mut Queues, request: &Request, now: Moment) -> Result<Answer, Refusal> {
    names::check(&request.key.name)?;
    match request.operation {
        Operation::QueueCreate => return create(queues, request),
        Operation::QueueDelete => {
            return queues.0.remove(&request.key).map(|_| Answer::empty(204)).ok_or(QUEUE_NOT_FOUND);
        }
        _ => {}
    }
    let queue = queues.0.get_mut(&request.key).ok_or(QUEUE_NOT_FOUND)?;
    match request.operation {
        Operation::QueueProperties => Ok(properties(queue, now)),
        Operation::QueueMetadata => {
            queue.metadata = request.metadata()?;
            Ok(Answer::empty(204))
        }
        Operation::Send => send(queue, request, now),
        Operation::Receive => receive(queue, request, now),
        Operation::Peek => peek(queue, request, now),
        Operation::Update => update(queue, request, now),
        Operation::Delete => {
            let (id, receipt) = owned(request)?;
            queue.messages.delete(id, receipt, now)?;
            Ok(Answer::empty(204))
        }
        Operation::Clear => {
            queue.messages = super::Messages::default();
            Ok(Answer::empty(204))
        }
        _ => Err(Refusal::not_implemented("this request to the queue service")),
    }
}

fn create(queues: &mut Queues, request: &Request) -> Result<Answer, Refusal> {
    let metadata = request.metadata()?;
    match queues.0.get(&request.key) {
        Some(queue) if queue.metadata == metadata => Ok(Answer::empty(204)),
        Some(_) => Err(QUEUE_ALREADY_EXISTS),
        None => {
            queues.0.insert(request.key.clone(), Queue { metadata, ..Queue::default() });
            Ok(Answer::empty(201))
        }
    }
}

fn properties(queue: &mut Queue, now: Moment) -> Answer {
    Answer::empty(200)
        .header("x-ms-approximate-messages-count", &queue.messages.count(now).to_string())
        .metadata(&queue.metadata)
}

fn send(queue: &mut Queue, request: &Request, now: Moment) -> Result<Answer, Refusal> {
    let text = text(request)?.ok_or(INVALID_XML)?;
    let hidden_for = request.integer("visibilitytimeout", 0..=WEEK_SECONDS)?.unwrap_or(0);
    let lives_for = match request.integer("messagettl", -1..=i64::from(i32::MAX))?.unwrap_or(WEEK_SECONDS) {
        -1 => None,
        // The service documents that a message must outlive its first visibility timeout.
        seconds if seconds > hidden_for => Some(seconds_of(seconds)),
        _ => return Err(INVALID_QUERY),
    };
    let message = queue.messages.put(&text, seconds_of(hidden_for), lives_for, now);
    let list = list(&[message], |xml, message| owner_fields(identity(xml, message), message));
    Ok(Answer::xml(201, list))
}

fn receive(queue: &mut Queue, request: &Request, now: Moment) -> Result<Answer, Refusal> {
    let limit = batch(request)?;
    let hide_for = request.integer("visibilitytimeout", 1..=WEEK_SECONDS)?.unwrap_or(VISIBILITY_SECONDS);
    let received = queue.messages.receive(limit, seconds_of(hide_for), now);
    list_with_texts(&received, |xml, message| content(owner_fields(identity(xml, message), message), message))
}

fn peek(queue: &mut Queue, request: &Request, now: Moment) -> Result<Answer, Refusal> {
    let peeked = queue.messages.peek(batch(request)?, now);
    list_with_texts(&peeked, |xml, message| content(identity(xml, message), message))
}

/// Updates a message. Without a body the text is kept; with an empty `MessageText` it is erased.
fn update(queue: &mut Queue, request: &Request, now: Moment) -> Result<Answer, Refusal> {
    let (id, receipt) = owned(request)?;
    let hide_for = request.integer("visibilitytimeout", 0..=WEEK_SECONDS)?.ok_or(MISSING_QUERY)?;
    let text = if request.body.is_empty() { None } else { text(request)? };
    let message = queue.messages.update(id, receipt, text.as_deref(), seconds_of(hide_for), now)?;
    Ok(Answer::empty(204)
        .header("x-ms-popreceipt", &message.receipt.text())
        .header("x-ms-time-next-visible", &message.visible.http_date()))
}

impl From<NotOwned> for Refusal {
    /// The service answers 404 for an old receipt, whether the message is gone or has another owner
    /// by now. Its documentation and Azurite say 400 `PopReceiptMismatch` for the latter.
    fn from(_: NotOwned) -> Self {
        MESSAGE_NOT_FOUND
    }
}

/// Returns the message and the receipt that a request names.
fn owned(request: &Request) -> Result<(Uuid, Receipt), Refusal> {
    let receipt = request.query("popreceipt").ok_or(MISSING_QUERY)?;
    // The status 400 for a malformed receipt is known; its code is not.
    let receipt = Receipt::parse(receipt).ok_or(INVALID_QUERY)?;
    let id = request.item.as_deref().and_then(|id| Uuid::try_parse(id).ok()).ok_or(MESSAGE_NOT_FOUND)?;
    Ok((id, receipt))
}

fn batch(request: &Request) -> Result<usize, Refusal> {
    let limit = request.integer("numofmessages", 1..=BATCH_MAX)?.unwrap_or(1);
    Ok(usize::try_from(limit).unwrap_or(1))
}

fn text(request: &Request) -> Result<Option<String>, Refusal> {
    let document = xml::read(&request.body)?;
    if document.root != "QueueMessage" {
        return Err(INVALID_XML);
    }
    let text = document.elements.into_iter().find(|(tag, _)| tag == "MessageText").map(|(_, text)| text);
    if text.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
        return Err(BODY_TOO_LARGE);
    }
    Ok(text)
}

/// Returns messages with their texts, or the error for a text that XML can't hold. By then a
/// receive has hidden all messages of the batch, the good ones too.
fn list_with_texts(
    messages: &[Message],
    write: impl for<'x> FnMut(&'x mut Xml, &Message) -> &'x mut Xml,
) -> Result<Answer, Refusal> {
    if messages.iter().all(|message| xml::can_hold(&message.text)) {
        Ok(Answer::xml(200, list(messages, write)))
    } else {
        Err(UNWRITABLE)
    }
}

fn list(messages: &[Message], mut write: impl for<'x> FnMut(&'x mut Xml, &Message) -> &'x mut Xml) -> String {
    let mut xml = Xml::new();
    xml.raw("<QueueMessagesList>");
    for message in messages {
        write(xml.raw("<QueueMessage>"), message).raw("</QueueMessage>");
    }
    xml.raw("</QueueMessagesList>");
    xml.finish()
}

fn identity<'x>(xml: &'x mut Xml, message: &Message) -> &'x mut Xml {
    xml.element("MessageId", &message.id.hyphenated().to_string())
        .element("InsertionTime", &message.inserted.http_date())
        .element("ExpirationTime", &message.expires.map_or_else(never, Moment::http_date))
}

fn owner_fields<'x>(xml: &'x mut Xml, message: &Message) -> &'x mut Xml {
    xml.element("PopReceipt", &message.receipt.text())
        .element("TimeNextVisible", &message.visible.http_date())
}

fn content<'x>(xml: &'x mut Xml, message: &Message) -> &'x mut Xml {
    xml.element("DequeueCount", &message.dequeue_count.to_string()).element("MessageText", &message.text)
}

fn seconds_of(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
