//! The directories of an account with a hierarchical namespace: each is a blob without content, which the
//! first blob in it creates, and which stays when it is empty.
//!
//! The error is documented; that empty ones can be deleted was seen in users' reports only.
//! <https://learn.microsoft.com/azure/storage/blobs/data-lake-storage-namespace>

use super::Stamp;
use super::container::{Blob, Container, Properties};
use super::content::Content;
use crate::storage::refusal::{DIRECTORY_NOT_EMPTY, RESOURCE_TYPE_MISMATCH, Refusal};

/// The metadata of a directory.
const IS_DIRECTORY: &str = "hdi_isfolder";

/// Creates the directories of a blob.
pub(super) fn create_for(container: &mut Container, blob: &str, stamp: &Stamp) {
    for (at, _) in blob.match_indices('/') {
        container.blobs.entry(blob[..at].to_owned()).or_insert_with(|| Blob {
            content: Content::of(Vec::new()),
            properties: Properties::default(),
            metadata: [(IS_DIRECTORY.to_owned(), "true".to_owned())].into(),
            created: stamp.modified,
            stamp: stamp.clone(),
        });
    }
}

/// Refuses to replace a directory by a blob, and to write a blob below another one.
pub(super) fn check_write(container: &Container, name: &str) -> Result<(), Refusal> {
    let is_blob = |parent: &str| container.blobs.contains_key(parent) && !is_directory(container, parent);
    let is_below_a_blob = name.match_indices('/').any(|(at, _)| is_blob(&name[..at]));
    if is_below_a_blob || is_directory(container, name) { Err(RESOURCE_TYPE_MISMATCH) } else { Ok(()) }
}

/// Refuses to delete a directory with content.
pub(super) fn check_delete(container: &Container, name: &str) -> Result<(), Refusal> {
    let within = format!("{name}/");
    let first_within = container.blobs.range(within.clone()..).next();
    let is_empty = first_within.is_none_or(|(name, _)| !name.starts_with(&within));
    if is_directory(container, name) && !is_empty { Err(DIRECTORY_NOT_EMPTY) } else { Ok(()) }
}

fn is_directory(container: &Container, name: &str) -> bool {
    container.blobs.get(name).is_some_and(|blob| blob.metadata.contains_key(IS_DIRECTORY))
}
