//! Identifiers of jobs, messages, workers and blobs, and the fence that orders the owners of one
//! job.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::chance;
use crate::error::{Error, ErrorKind, Result};
use crate::hash::ContentHash;

/// The longest job id, in bytes. Event ids of other systems may be longer; see [`JobId::of_event`].
pub const JOB_ID_BYTES_MAX: usize = 128;

/// How many hexadecimal digits the id of a child has for its parent, and for itself.
const CHILDREN_HASH_DIGITS: usize = 16;
const CHILD_HASH_DIGITS: usize = 24;

/// The longest blob name, in bytes: Blob Storage's limit of 1,024 characters, less room for a
/// prefix.
/// <https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata>
pub const BLOB_NAME_BYTES_MAX: usize = 900;

/// The id of a job, from the moment at which it is enqueued: the `id` of its CloudEvents envelope.
///
/// For an event of another system it is derived from the event's `source` and `id`.
///
/// It is part of the names of the job's objects in the store. It is therefore restricted to
/// `A-Z a-z 0-9 . _ -`, starts with a letter or digit, and has at most [`JOB_ID_BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(Arc<str>);

impl JobId {
    /// Creates a unique id that sorts by time (UUID version 7).
    #[must_use]
    pub fn unique() -> Self {
        Self(chance::id().to_string().into())
    }

    /// The id for an event of another system. The same `source` and `id`, which together identify
    /// an event, give the same job id; whatever they contain, it is safe as a path segment (UUID
    /// version 5).
    #[must_use]
    pub fn of_event(source: &str, id: &str) -> Self {
        let name = format!("{source}\n{id}");
        Self(uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, name.as_bytes()).to_string().into())
    }

    /// The id of a job that `parent` enqueues: the same for the same `what`. All children of one parent,
    /// and no others, begin with [`children_of`](Self::children_of).
    pub(crate) fn of_child(parent: &Self, what: &str) -> Self {
        let hash = ContentHash::of(format!("{parent}\n{what}").as_bytes()).to_string();
        Self(format!("{}{}", Self::children_of(parent), &hash[..CHILD_HASH_DIGITS]).into())
    }

    /// What the ids of all children of one parent, and hardly any others, begin with; empty for an id of
    /// another form.
    pub(crate) fn family(&self) -> &str {
        let end = CHILDREN_HASH_DIGITS + 1;
        let is_child = self.0.len() == end + CHILD_HASH_DIGITS
            && self
                .0
                .bytes()
                .enumerate()
                .all(|(at, byte)| if at + 1 == end { byte == b'.' } else { byte.is_ascii_hexdigit() });
        if is_child { &self.0[..end] } else { "" }
    }

    /// The beginning of the ids of a parent's children. It has the same length for every parent, also one
    /// that is a child itself.
    pub(crate) fn children_of(parent: &Self) -> String {
        let hash = ContentHash::of(parent.0.as_bytes()).to_string();
        format!("{}.", &hash[..CHILDREN_HASH_DIGITS])
    }

    /// Validates `id`.
    pub fn parse(id: impl AsRef<str>) -> Result<Self> {
        let id = id.as_ref();
        let ok = !id.is_empty()
            && id.len() <= JOB_ID_BYTES_MAX
            && id.starts_with(|c: char| c.is_ascii_alphanumeric())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if ok {
            Ok(Self(id.into()))
        } else {
            Err(Error::new(
                ErrorKind::Invalid,
                "read a job id",
                format!("use 1 to {JOB_ID_BYTES_MAX} of A-Z a-z 0-9 . _ - and start with a letter or digit"),
            ))
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for JobId {
    type Error = Error;
    fn try_from(id: String) -> Result<Self> {
        Self::parse(id)
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The queue's id of a message. It changes when the message moves to another queue; a [`JobId`]
/// does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(String);

impl MessageId {
    /// Wraps the queue's own id.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of one payload of a job: `<generation>.<message id>.<dequeue count>-<sequence>`, so
/// that no two writes, by one owner or by two, use the same name. At most 240 bytes of
/// `A-Z a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PayloadName(String);

impl PayloadName {
    /// The name of the payload of write number `sequence` by delivery `dequeue_count` of `message`.
    #[must_use]
    pub fn new(generation: u32, message: &MessageId, dequeue_count: u32, sequence: u64) -> Self {
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        let message: String = message.as_str().chars().map(safe).take(160).collect();
        Self(format!("{generation}.{message}.{dequeue_count}-{sequence}"))
    }

    /// The number of the write that made the payload.
    pub(crate) fn sequence(&self) -> Option<u64> {
        self.0.rsplit_once('-')?.1.parse().ok()
    }

    /// Validates `name`.
    pub fn parse(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if (1..=240).contains(&name.len()) && name.bytes().all(safe) && !name.starts_with('.') {
            return Ok(Self(name));
        }
        Err(Error::new(
            ErrorKind::Invalid,
            "read a payload's name",
            "use 1 to 240 of A-Z a-z 0-9 . _ - and do not start with a dot",
        ))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PayloadName {
    type Error = Error;
    fn try_from(name: String) -> Result<Self> {
        Self::parse(name)
    }
}

impl From<PayloadName> for String {
    fn from(name: PayloadName) -> Self {
        name.0
    }
}

impl fmt::Display for PayloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of one run of a worker process, in logs, reports and records.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// Creates an id that is unique to this run.
    #[must_use]
    pub fn unique() -> Self {
        Self(chance::id().simple().to_string().into())
    }

    /// Wraps an id that [`unique`](Self::unique) created.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into().into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for WorkerId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<WorkerId> for String {
    fn from(id: WorkerId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Orders the owners of one job: a later owner has a greater fence.
///
/// It consists of a generation and the queue's dequeue count. A redrive raises the generation,
/// because a redriven message starts at dequeue count 1 again; so does a claim by another message
/// of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(u64);

impl Fence {
    /// The fence of delivery number `dequeue_count` in `generation`.
    #[must_use]
    pub const fn new(generation: u32, dequeue_count: u32) -> Self {
        Self(((generation as u64) << 32) | dequeue_count as u64)
    }

    /// How often the job was redriven or taken over before this delivery.
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The fence as one number, for a store to keep.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The fence that [`as_u64`](Self::as_u64) returned as a number.
    #[must_use]
    pub const fn from_u64(fence: u64) -> Self {
        Self(fence)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// The writer of an output: one owner of one job. Only fences of the same job can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Writer {
    /// The job.
    pub job: JobId,
    /// The owner's fence.
    pub fence: Fence,
}

/// The name of an input or output blob: segments joined by `/`, such as `thumbnails/2026/cat.jpg`.
///
/// At most [`BLOB_NAME_BYTES_MAX`] bytes. No segment is empty, ends in a dot or is longer than 240
/// bytes, and no name contains a backslash, a colon or a control character. So a name is valid both
/// in Blob Storage and as a path below a directory, and never leaves that directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobName(String);

impl BlobName {
    /// Validates `name`.
    pub fn parse(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let bad = |c: char| c.is_control() || matches!(c, '\\' | ':');
        let segment_ok = |s: &str| !s.is_empty() && !s.ends_with('.') && s.len() <= 240;
        if name.len() <= BLOB_NAME_BYTES_MAX && !name.contains(bad) && name.split('/').all(segment_ok) {
            Ok(Self(name))
        } else {
            Err(Error::new(
                ErrorKind::Invalid,
                "read a blob name",
                format!(
                    "{name:?} must be segments joined by /, none empty, ending in a dot or over 240 bytes, with no \
                     backslash, colon or control character, {BLOB_NAME_BYTES_MAX} bytes in all"
                ),
            ))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name is passed where a text is expected, as to [`JobContext::input`](crate::JobContext::input).
impl Deref for BlobName {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for BlobName {
    type Error = Error;
    fn try_from(name: String) -> Result<Self> {
        Self::parse(name)
    }
}

impl From<BlobName> for String {
    fn from(name: BlobName) -> Self {
        name.0
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, ok: bool) {
        assert_eq!(BlobName::parse(name).is_ok(), ok, "{name:?}");
    }

    #[test]
    fn blob_names_never_leave_their_directory() {
        for bad in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\\b", "c:a", "a\nb", "a\0b", "a."]
        {
            check(bad, false);
        }
        for good in ["a", "a/b", "a b.jpg", "..a", "été/猫.png", ".hidden"] {
            check(good, true);
        }
        check(&"x".repeat(241), false);
        check(&"x/".repeat(500), false);
    }

    #[test]
    fn a_later_delivery_and_a_later_generation_have_greater_fences() {
        assert!(Fence::new(0, 2) > Fence::new(0, 1));
        assert!(Fence::new(1, 1) > Fence::new(0, u32::MAX));
        assert_eq!(Fence::from_u64(Fence::new(3, 4).as_u64()).to_string(), "3.4");
    }

    #[test]
    fn job_ids_are_safe_as_path_segments() {
        for bad in ["", ".", "..", ".a", "a/b", "a b", "é", &"x".repeat(129)] {
            assert!(JobId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(JobId::parse("order-17.v2_b").is_ok());
        assert!(JobId::parse(JobId::unique().as_str()).is_ok());
    }
}
