//! The operation that a request asks for, and its target.

use axum::http::Method;
use percent_encoding::percent_decode_str;

use super::operation::Operation;
use super::refusal::{INVALID_URI, Refusal};
use super::request::Key;

/// The service of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Blob,
    Queue,
}

/// The operation and target of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) operation: Operation,
    pub(super) key: Key,
    /// The message's id, or the blob's name.
    pub(super) item: Option<String>,
}

impl Route {
    /// Returns the target's name for fault rules.
    pub(super) fn resource(&self) -> String {
        match (&self.item, self.operation) {
            (Some(blob), operation) if operation != Operation::Update && operation != Operation::Delete => {
                format!("{}/{blob}", self.key.name)
            }
            _ => self.key.name.clone(),
        }
    }
}

/// Parses `/ACCOUNT/QUEUE/messages/ID` or `/ACCOUNT/CONTAINER/BLOB`, where a blob's name may
/// contain slashes, escaped or not.
pub(super) fn route(
    service: Service,
    method: &Method,
    path: &str,
    query: &[(String, String)],
) -> Result<Route, Refusal> {
    let decoded = |part: &str| {
        percent_decode_str(part).decode_utf8().map(std::borrow::Cow::into_owned).map_err(|_| INVALID_URI)
    };
    let mut parts = path.strip_prefix('/').ok_or(INVALID_URI)?.splitn(3, '/');
    let account = decoded(parts.next().unwrap_or_default())?;
    let name = decoded(parts.next().unwrap_or_default())?;
    let rest = parts.next().filter(|rest| !rest.is_empty());
    let (operation, item) = if name.is_empty() {
        (Operation::Other, None)
    } else {
        match service {
            Service::Queue => {
                let (operation, id) = queue_operation(method, rest, query);
                (operation, id.map(decoded).transpose()?)
            }
            Service::Blob => {
                let item = rest.map(decoded).transpose()?;
                (blob_operation(method, item.is_some(), query), item)
            }
        }
    };
    Ok(Route { operation, key: Key { account, name }, item })
}

fn value<'q>(query: &'q [(String, String)], name: &str) -> &'q str {
    query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

fn queue_operation<'p>(
    method: &Method,
    rest: Option<&'p str>,
    query: &[(String, String)],
) -> (Operation, Option<&'p str>) {
    let comp = value(query, "comp");
    let peek = value(query, "peekonly") == "true";
    let operation = match (method.as_str(), rest, comp) {
        ("PUT", None, "") => Operation::QueueCreate,
        ("PUT", None, "metadata") => Operation::QueueMetadata,
        ("GET" | "HEAD", None, "metadata") => Operation::QueueProperties,
        ("DELETE", None, "") => Operation::QueueDelete,
        ("POST", Some("messages"), "") => Operation::Send,
        ("GET", Some("messages"), "") if peek => Operation::Peek,
        ("GET", Some("messages"), "") => Operation::Receive,
        ("DELETE", Some("messages"), "") => Operation::Clear,
        (method, Some(rest), "") => {
            let id = rest.strip_prefix("messages/").filter(|id| !id.is_empty() && !id.contains('/'));
            let operation = match (method, id) {
                ("PUT", Some(_)) => Operation::Update,
                ("DELETE", Some(_)) => Operation::Delete,
                _ => Operation::Other,
            };
            return (operation, id);
        }
        _ => Operation::Other,
    };
    (operation, None)
}

fn blob_operation(method: &Method, of_a_blob: bool, query: &[(String, String)]) -> Operation {
    if ["snapshot", "versionid"].iter().any(|name| !value(query, name).is_empty()) {
        return Operation::Other;
    }
    match (method.as_str(), of_a_blob, value(query, "restype"), value(query, "comp")) {
        ("PUT", false, "container", "") => Operation::ContainerCreate,
        ("DELETE", false, "container", "") => Operation::ContainerDelete,
        ("GET" | "HEAD", false, "container", "" | "metadata") => Operation::ContainerProperties,
        ("GET", false, "container", "list") => Operation::BlobList,
        ("PUT", true, "", "") => Operation::BlobPut,
        ("PUT", true, "", "block") => Operation::BlockPut,
        ("PUT", true, "", "blocklist") => Operation::BlockList,
        ("PUT", true, "", "metadata") => Operation::BlobMetadata,
        ("GET", true, "", "") => Operation::BlobGet,
        ("HEAD", true, "", "" | "metadata") => Operation::BlobProperties,
        ("DELETE", true, "", "") => Operation::BlobDelete,
        _ => Operation::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(service: Service, request: &str, operation: Operation, name: &str, item: Option<&str>) {
        let (method, target) = request.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let route = route(service, &method.parse().unwrap(), path, &query).unwrap();
        let key = Key { account: "acc".into(), name: name.into() };
        assert_eq!(route, Route { operation, key, item: item.map(str::to_owned) }, "{request}");
    }

    #[test]
    fn queue_requests_are_distinguished() {
        use Operation::*;
        for (request, operation, item) in [
            ("PUT /acc/q", QueueCreate, None),
            ("DELETE /acc/q?timeout=5", QueueDelete, None),
            ("GET /acc/q?comp=metadata", QueueProperties, None),
            ("PUT /acc/q?comp=metadata", QueueMetadata, None),
            ("POST /acc/q/messages?messagettl=-1", Send, None),
            ("GET /acc/q/messages?numofmessages=32", Receive, None),
            ("GET /acc/q/messages?peekonly=true", Peek, None),
            ("DELETE /acc/q/messages", Clear, None),
            ("PUT /acc/q/messages/1%2D2?popreceipt=a%2B", Update, Some("1-2")),
            ("DELETE /acc/q/messages/1-2?popreceipt=a", Delete, Some("1-2")),
            ("GET /acc/q/messages/1-2", Other, Some("1-2")),
            ("GET /acc/q?comp=acl", Other, None),
            ("PUT /acc/q/other", Other, None),
        ] {
            check(Service::Queue, request, operation, "q", item);
        }
        check(Service::Queue, "GET /acc?comp=list", Other, "", None);
    }

    #[test]
    fn blob_requests_are_distinguished() {
        use Operation::*;
        for (request, operation, item) in [
            ("PUT /acc/c?restype=container", ContainerCreate, None),
            ("DELETE /acc/c?restype=container", ContainerDelete, None),
            ("GET /acc/c?restype=container", ContainerProperties, None),
            ("GET /acc/c?comp=list&restype=container&prefix=a", BlobList, None),
            ("PUT /acc/c/a/b.txt", BlobPut, Some("a/b.txt")),
            ("PUT /acc/c/a%2Fb%20%C3%A9?comp=block&blockid=QQ==", BlockPut, Some("a/b é")),
            ("PUT /acc/c/a?comp=blocklist", BlockList, Some("a")),
            ("PUT /acc/c/a?comp=metadata", BlobMetadata, Some("a")),
            ("GET /acc/c/a", BlobGet, Some("a")),
            ("HEAD /acc/c/a", BlobProperties, Some("a")),
            ("DELETE /acc/c/a", BlobDelete, Some("a")),
            ("GET /acc/c/a?snapshot=2026", Other, Some("a")),
            ("PUT /acc/c/a?comp=lease", Other, Some("a")),
        ] {
            check(Service::Blob, request, operation, "c", item);
        }
    }

    #[test]
    fn rules_know_blobs_by_container_and_name_and_messages_by_queue() {
        let route = |operation, item: &str| {
            let key = Key { account: "acc".into(), name: "name".into() };
            Route { operation, key, item: Some(item.to_owned()) }.resource()
        };
        assert_eq!(route(Operation::BlobGet, "a/b"), "name/a/b");
        assert_eq!(route(Operation::Update, "id"), "name");
    }
}
