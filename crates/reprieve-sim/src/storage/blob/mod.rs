//! The blob service: its containers and blobs, and what each request does to them.

mod blocks;
mod calls;
mod conditions;
mod container;
mod content;
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
}

/// Gives out `ETag`s: as the service's they are made of the time, and no two are the same.
#[derive(Debug, Default)]
struct Stamps {
    last: u64,
}

/// Which version of a blob or container it is, and since when.
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
