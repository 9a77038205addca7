//! Escalation: a job that interruptions keep from moving on goes to a queue that calmer machines serve.

use std::sync::Arc;

use crate::ports::Queue;
use crate::record::Record;

/// Where jobs go that this worker's machines do not last long enough for, and when. See
/// [`WorkerBuilder::escalate`](super::WorkerBuilder::escalate).
#[derive(Debug, Clone)]
pub struct Escalation {
    /// The queue. Its store must have the same records, blobs and roster as the worker's.
    pub queue: Arc<dyn Queue>,
    /// The queue's name, for records and logs.
    pub name: String,
    /// After how many deliveries since the job last moved that an interruption or the death of their
    /// worker ended. At least 1.
    pub after: u32,
}

impl Escalation {
    /// The default of [`after`](Self::after).
    pub const AFTER: u32 = 3;

    /// The reason to move a claimed job, in one sentence; `None` when it stays. A job that was moved
    /// once stays where it is.
    pub(super) fn reason(&self, record: &Record) -> Option<String> {
        let account = &record.account;
        let died = account.vanished.saturating_add(account.vanished_unproved);
        let ended = account.unmoved.saturating_add(died);
        let is_due = ended >= self.after && record.escalated.is_none();
        is_due.then(|| {
            let interrupted = account.unmoved;
            format!(
                "{ended} deliveries ended before the job made progress: {interrupted} by an interruption, {died} \
                 by the death of their worker"
            )
        })
    }
}
