//! One container: its blobs by name, and uncommitted blocks.

use std::collections::{BTreeMap, HashMap};

use axum::http::HeaderMap;

use super::Stamp;
use super::blocks::Uncommitted;
use super::content::Content;
use crate::storage::answer::Answer;
use crate::storage::moment::Moment;
use crate::storage::refusal::{BLOB_NOT_FOUND, Refusal};

#[derive(Debug)]
pub(crate) struct Container {
    pub(super) stamp: Stamp,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) blobs: BTreeMap<String, Blob>,
    /// Blocks of blobs that may not exist yet: uncommitted blocks alone are not a blob.
    pub(super) uncommitted: HashMap<String, Uncommitted>,
}

#[derive(Debug)]
pub(crate) struct Blob {
    pub(super) content: Content,
    pub(super) properties: Properties,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) created: Moment,
    pub(super) stamp: Stamp,
}

/// A blob's content properties, in the order of [`PROPERTIES`]; empty for a missing one.
#[derive(Debug, Default)]
pub(crate) struct Properties([String; PROPERTIES.len()]);

/// The properties' headers in an answer, which are also their elements in a list. In a request they
/// begin with `x-ms-blob-`.
const PROPERTIES: [&str; 5] =
    ["Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Cache-Control"];

impl Container {
    pub(super) fn new(stamp: Stamp, metadata: BTreeMap<String, String>) -> Self {
        Self { stamp, metadata, blobs: BTreeMap::new(), uncommitted: HashMap::new() }
    }

    pub(super) fn blob(&self, name: &str) -> Result<&Blob, Refusal> {
        self.blobs.get(name).ok_or(BLOB_NOT_FOUND)
    }

    pub(super) fn etag_of(&self, name: &str) -> Option<&str> {
        self.blobs.get(name).map(|blob| blob.stamp.etag.as_str())
    }
}

impl Properties {
    /// Returns the properties in a request; `body_type` replaces a missing blob type.
    pub(super) fn of(headers: &HeaderMap, body_type: Option<&str>) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut properties = PROPERTIES
            .map(|name| text(&format!("x-ms-blob-{}", name.to_ascii_lowercase())).unwrap_or_default());
        if properties[0].is_empty() {
            body_type.unwrap_or("application/octet-stream").clone_into(&mut properties[0]);
        }
        Self(properties)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let given = PROPERTIES.into_iter().zip(self.0.iter().map(String::as_str));
        given.filter(|(_, value)| !value.is_empty())
    }
}

impl Blob {
    /// Returns an answer with the headers of this blob.
    pub(super) fn described(&self, status: u16) -> Answer {
        let answer = stamped(status, &self.stamp)
            .header("accept-ranges", "bytes")
            .header("x-ms-blob-type", "BlockBlob")
            .header("x-ms-creation-time", &self.created.http_date())
            .header("x-ms-lease-state", "available")
            .header("x-ms-lease-status", "unlocked")
            .header("x-ms-server-encrypted", "true")
            .metadata(&self.metadata);
        self.properties.iter().fold(answer, |answer, (name, value)| answer.header(name, value))
    }
}

/// Returns an answer with the headers of this stamp.
pub(super) fn stamped(status: u16, stamp: &Stamp) -> Answer {
    Answer::empty(status).header("etag", &stamp.etag).header("last-modified", &stamp.modified.http_date())
}
