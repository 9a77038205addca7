//! The blob service: its containers and blobs, and its requests.

mod blocks;
mod calls;
mod conditions;
mod container;
mod content;
mod directories;
mod list;
mod range;

use std::collections::HashMap;

pub(super) use calls::answer;

use super::moment::Moment;
use super::request::Key;
use container::Container;

/// All containers of all accounts.
#[derive(Debug, Default)]
pub(super) struct Containers {
    by_key: HashMap<Key, Container>,
    stamps: Stamps,
    /// Answers as an account with versioning and soft delete.
    keeps_copies: bool,
    /// Answers as an account with a hierarchical namespace.
    has_directories: bool,
}

impl Containers {
    pub(super) fn new(keeps_copies: bool, has_directories: bool) -> Self {
        Self { keeps_copies, has_directories, ..Self::default() }
    }
}

/// Creates `ETag`s. Like the service's, they are derived from the time and unique.
#[derive(Debug, Default)]
struct Stamps {
    last: u64,
}

/// The version of a blob or container, and its time.
#[derive(Debug, Clone)]
struct Stamp {
    etag: String,
    modified: Moment,
}

impl Stamps {
    fn next(&mut self, now: Moment) -> Stamp {
        self.last = now.ticks().max(self.last + 1);
        Stamp { etag: format!("\"0x{:X}\"", self.last), modified: now }
    }
}
