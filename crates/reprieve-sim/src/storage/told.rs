//! The headers that every answer contains.

use axum::http::HeaderMap;
use axum::http::header::{HeaderName, HeaderValue};
use uuid::Uuid;

use super::answer::Answer;

/// The version header's value when the request names none.
const VERSION: HeaderValue = HeaderValue::from_static("2026-04-06");

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-ms-version");

/// The request's headers that its answer repeats, and the request's new id. The HTTP library adds
/// the Date header.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) request_id: Uuid,
    client_request_id: Option<HeaderValue>,
    version: HeaderValue,
}

impl Told {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self {
            request_id: uuid::Builder::from_random_bytes(rand::random()).into_uuid(),
            client_request_id: headers.get(CLIENT_REQUEST_ID).cloned(),
            version: headers.get(VERSION_HEADER).cloned().unwrap_or(VERSION),
        }
    }

    pub(super) fn add_to(self, answer: &mut Answer) {
        let headers = &mut answer.headers;
        if let Ok(id) = HeaderValue::try_from(self.request_id.hyphenated().to_string()) {
            headers.insert(REQUEST_ID, id);
        }
        headers.insert(VERSION_HEADER, self.version);
        if let Some(id) = self.client_request_id {
            headers.insert(CLIENT_REQUEST_ID, id);
        }
    }
}
