//! The queue service: its queues, and its requests.

mod calls;
mod messages;
mod receipt;

use std::collections::{BTreeMap, HashMap};

pub(super) use calls::answer;

use super::request::Key;
use messages::Messages;

/// All queues of all accounts.
#[derive(Debug, Default)]
pub(super) struct Queues(HashMap<Key, Queue>);

#[derive(Debug, Default)]
struct Queue {
    metadata: BTreeMap<String, String>,
    messages: Messages,
}
