//! Decides about a message if its job has a record: the first matching rule decides.

use super::{Record, Status};
use crate::ids::MessageId;

/// A delivery, as input for [`judge`].
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    /// The message.
    pub message: &'a MessageId,
    /// Its dequeue count.
    pub count: u32,
    /// The generation in its body.
    pub generation: u32,
    /// When the message was sent, by the clock that also timestamps records.
    pub inserted_unix_ms: Option<i64>,
}

/// The decision about a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a message that is judged and not handled returns only when its lease ends"]
pub enum Verdict {
    /// The delivery claims the job, under this generation.
    Claim(u32),
    /// The delivery finishes the settlement that the record states: the owner's process died in the
    /// middle of it, or the job was cancelled.
    Finish,
    /// The message is deleted, for this reason.
    Delete(&'static str),
    /// Another message of the job is being worked on, unless it died with its owner.
    AnotherIsRunning,
    /// The job was moved to another queue, and its message there is not finished.
    MovedAway,
    /// The delivery is not the newest of its message: it stops and settles nothing.
    Stop,
}

/// Judges a delivery by the record of its job. `modified_unix_ms` is when the record was written,
/// by the store's clock. The caller has already checked that the job has no result, of any
/// generation: a result settles every message.
pub fn judge(record: &Record, modified_unix_ms: i64, claimant: &Claimant<'_>) -> Verdict {
    let owner = &record.owner;
    if owner.message == *claimant.message {
        return match &record.status {
            Status::Done | Status::Cancelled if claimant.generation > record.generation => Verdict::Finish,
            // The message was redriven in place, where its dequeue count may start again.
            _ if claimant.generation > record.generation => Verdict::Claim(claimant.generation),
            // Its receipt is void, and its writes would be those of an earlier owner.
            _ if claimant.count < owner.count => Verdict::Stop,
            Status::Done | Status::Cancelled | Status::DeadLettered { .. } | Status::Escalated { .. } => {
                Verdict::Finish
            }
            Status::Enqueued | Status::Running | Status::Waiting { .. } if claimant.count > owner.count => {
                Verdict::Claim(record.generation.max(claimant.generation))
            }
            Status::Enqueued | Status::Running | Status::Waiting { .. } => Verdict::Stop,
        };
    }
    match &record.status {
        Status::Done => return Verdict::Delete("another message of the job finished it"),
        Status::Cancelled => return Verdict::Finish,
        Status::Enqueued
        | Status::Running
        | Status::Waiting { .. }
        | Status::DeadLettered { .. }
        | Status::Escalated { .. } => {}
    }
    if claimant.generation > record.generation {
        return Verdict::Claim(claimant.generation);
    }
    if claimant.generation < record.generation {
        return Verdict::Delete("the job was redriven since this message was sent");
    }
    match &record.status {
        Status::Enqueued => Verdict::Claim(record.generation),
        Status::Escalated { .. } => Verdict::MovedAway,
        Status::DeadLettered { .. } => {
            // Both times are from one clock, which may have whole seconds. If they are equal, the
            // message counts as sent later, so that no job is lost.
            if claimant.inserted_unix_ms.is_some_and(|inserted| inserted < modified_unix_ms) {
                Verdict::Delete("the message was sent before another message of the job was dead-lettered")
            } else {
                Verdict::Claim(record.generation.saturating_add(1))
            }
        }
        Status::Running | Status::Waiting { .. } | Status::Done | Status::Cancelled => {
            Verdict::AnotherIsRunning
        }
    }
}
