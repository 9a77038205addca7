//! What every answer tells besides what was asked for.

use axum::http::HeaderMap;
use axum::http::header::{HeaderName, HeaderValue};
use uuid::Uuid;

use super::answer::Answer;

/// The version that is told where none is asked for.
const VERSION: HeaderValue = HeaderValue::from_static("2026-04-06");

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-ms-version");

/// The headers of a request that its answer repeats, and the id it is given. The Date header is the HTTP library's.
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
