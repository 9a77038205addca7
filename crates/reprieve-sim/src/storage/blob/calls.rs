//! The requests to the blob service and their answers.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api>

use super::blocks::Uncommitted;
use super::conditions::Condition;
use super::container::{Blob, Container, Properties, stamped};
use super::content::{Block, Content};
use super::{Containers, Stamp, directories, list, range};
use crate::storage::answer::Answer;
use crate::storage::moment::Moment;
use crate::storage::names;
use crate::storage::operation::Operation;
use crate::storage::refusal::{
    BLOB_NOT_FOUND, CONTAINER_ALREADY_EXISTS, CONTAINER_NOT_FOUND, INVALID_URI, MISSING_HEADER,
    MISSING_QUERY, Refusal,
};
use crate::storage::request::Request;

/// Headers that request features which the double lacks. It refuses such a request, because
/// ignoring the header would be worse.
const UNKNOWN_HEADERS: [&str; 4] =
    ["x-ms-lease-id", "x-ms-copy-source", "x-ms-structured-body", "x-ms-encryption-key"];

pub(crate) fn answer(containers: &mut Containers, request: &Request, now: Moment) -> Result<Answer, Refusal> {
    if let Some(unknown) = UNKNOWN_HEADERS.into_iter().find(|name| request.headers.contains_key(*name)) {
        return Err(Refusal::not_implemented(unknown));
    }
    names::check(&request.key.name)?;
    let condition = Condition::of(&request.headers)?;
    match request.operation {
        Operation::ContainerCreate => return create(containers, request, now),
        Operation::ContainerDelete => {
            let gone = containers.by_key.remove(&request.key);
            return gone.map(|_| Answer::empty(202)).ok_or(CONTAINER_NOT_FOUND);
        }
        _ => {}
    }
    let (keeps_copies, has_directories) = (containers.keeps_copies, containers.has_directories);
    let stamps = &mut containers.stamps;
    let container = containers.by_key.get_mut(&request.key).ok_or(CONTAINER_NOT_FOUND)?;
    if has_directories {
        let blob = request.item.as_deref().unwrap_or_default();
        match request.operation {
            Operation::BlobPut | Operation::BlockList => {
                directories::check_write(container, blob)?;
                directories::create_for(container, blob, &stamps.next(now));
            }
            Operation::BlobDelete => directories::check_delete(container, blob)?,
            _ => {}
        }
    }
    let stamp = || stamps.next(now);
    let answer = match request.operation {
        Operation::ContainerProperties => Ok(container_properties(container)),
        Operation::BlobList => list::answer(container, request),
        Operation::BlobPut => put(container, request, &condition, stamp),
        Operation::BlockPut => put_block(container, request),
        Operation::BlockList => commit(container, request, &condition, stamp),
        Operation::BlobGet => get(container, request, &condition),
        Operation::BlobProperties => properties(container, request, &condition),
        Operation::BlobMetadata => set_metadata(container, request, &condition, stamp),
        Operation::BlobDelete => delete(container, request, &condition),
        _ => Err(Refusal::not_implemented("this request to the blob service")),
    };
    if keeps_copies { answer.map(|answer| with_copies(answer, request.operation)) } else { answer }
}

/// Adds the headers of an account with versioning and soft delete. The copies themselves are not kept.
fn with_copies(answer: Answer, operation: Operation) -> Answer {
    match operation {
        Operation::BlobPut | Operation::BlockList => {
            answer.header("x-ms-version-id", "2026-11-23T00:00:00.0000000Z")
        }
        Operation::BlobDelete => answer.header("x-ms-delete-type-permanent", "false"),
        _ => answer,
    }
}

fn create(containers: &mut Containers, request: &Request, now: Moment) -> Result<Answer, Refusal> {
    if containers.by_key.contains_key(&request.key) {
        return Err(CONTAINER_ALREADY_EXISTS);
    }
    let container = Container::new(containers.stamps.next(now), request.metadata()?);
    let answer = stamped(201, &container.stamp);
    containers.by_key.insert(request.key.clone(), container);
    Ok(answer)
}

fn container_properties(container: &Container) -> Answer {
    stamped(200, &container.stamp)
        .header("x-ms-lease-state", "available")
        .header("x-ms-lease-status", "unlocked")
        .header("x-ms-has-immutability-policy", "false")
        .header("x-ms-has-legal-hold", "false")
        .metadata(&container.metadata)
}

/// Returns the name of the request's blob.
fn name(request: &Request) -> Result<&str, Refusal> {
    request.item.as_deref().ok_or(INVALID_URI)
}

fn put(
    container: &mut Container,
    request: &Request,
    condition: &Condition,
    stamp: impl FnOnce() -> Stamp,
) -> Result<Answer, Refusal> {
    match request.header("x-ms-blob-type") {
        Some("BlockBlob") => {}
        Some(other) => return Err(Refusal::not_implemented(other)),
        None => return Err(MISSING_HEADER),
    }
    condition.check_put(container.etag_of(name(request)?))?;
    let content = Content::of(vec![Block::new(String::new(), request.body.clone())]);
    let properties = Properties::of(&request.headers, request.header("content-type"));
    replace(container, request, content, properties, stamp())
}

fn commit(
    container: &mut Container,
    request: &Request,
    condition: &Condition,
    stamp: impl FnOnce() -> Stamp,
) -> Result<Answer, Refusal> {
    let name = name(request)?;
    condition.check_put(container.etag_of(name))?;
    let none = Uncommitted::default();
    let uncommitted = container.uncommitted.get(name).unwrap_or(&none);
    let content = uncommitted.commit(&request.body, container.blobs.get(name).map(|blob| &blob.content))?;
    // The body of this request is a list, so its type is not the blob's.
    let properties = Properties::of(&request.headers, None);
    replace(container, request, content, properties, stamp())
}

/// Replaces a blob, with the request's metadata and without its uncommitted blocks.
fn replace(
    container: &mut Container,
    request: &Request,
    content: Content,
    properties: Properties,
    stamp: Stamp,
) -> Result<Answer, Refusal> {
    let name = name(request)?;
    let metadata = request.metadata()?;
    let answer = stamped(201, &stamp).header("x-ms-request-server-encrypted", "true");
    let created = container.blobs.get(name).map_or(stamp.modified, |blob| blob.created);
    container.uncommitted.remove(name);
    container.blobs.insert(name.to_owned(), Blob { content, properties, metadata, created, stamp });
    Ok(answer)
}

fn put_block(container: &mut Container, request: &Request) -> Result<Answer, Refusal> {
    let (name, id) = (name(request)?, request.query("blockid").ok_or(MISSING_QUERY)?);
    container.uncommitted.entry(name.to_owned()).or_default().put(id, request.body.clone())?;
    Ok(Answer::empty(201).header("x-ms-request-server-encrypted", "true"))
}

fn get(container: &Container, request: &Request, condition: &Condition) -> Result<Answer, Refusal> {
    let blob = container.blob(name(request)?)?;
    condition.check_read(&blob.stamp.etag)?;
    let bytes = blob.content.bytes();
    let asked = request.header("x-ms-range").or_else(|| request.header("range"));
    let (status, part) = match range::parse(asked, bytes)? {
        Some(part) => (206, part),
        None => (200, 0..bytes),
    };
    let mut answer = blob.described(status);
    if status == 206 {
        answer = answer.header("content-range", &format!("bytes {}-{}/{bytes}", part.start, part.end - 1));
    }
    answer.body = blob.content.slice(part);
    Ok(answer)
}

fn properties(container: &Container, request: &Request, condition: &Condition) -> Result<Answer, Refusal> {
    let blob = container.blob(name(request)?)?;
    condition.check_read(&blob.stamp.etag)?;
    Ok(blob.described(200).header("content-length", &blob.content.bytes().to_string()))
}

fn set_metadata(
    container: &mut Container,
    request: &Request,
    condition: &Condition,
    stamp: impl FnOnce() -> Stamp,
) -> Result<Answer, Refusal> {
    let name = name(request)?;
    condition.check_write(container.etag_of(name))?;
    let blob = container.blobs.get_mut(name).ok_or(BLOB_NOT_FOUND)?;
    blob.metadata = request.metadata()?;
    blob.stamp = stamp();
    Ok(stamped(200, &blob.stamp).header("x-ms-request-server-encrypted", "true"))
}

fn delete(container: &mut Container, request: &Request, condition: &Condition) -> Result<Answer, Refusal> {
    let name = name(request)?;
    condition.check_write(container.etag_of(name))?;
    container.blobs.remove(name).ok_or(BLOB_NOT_FOUND)?;
    Ok(Answer::empty(202).header("x-ms-delete-type-permanent", "true"))
}
