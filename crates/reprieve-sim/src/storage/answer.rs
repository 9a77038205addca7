//! An answer, before it becomes bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Response, StatusCode};
use futures_util::{StreamExt, stream};

use uuid::Uuid;

use super::refusal::Refusal;
use super::xml::Xml;

/// An answer. Its body is in pieces, so that sending a large blob copies nothing.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<Bytes>,
    /// Whether it breaks off in the middle of its body.
    pub(super) truncated: bool,
}

impl Answer {
    pub(super) fn empty(status: u16) -> Self {
        Self { status, headers: HeaderMap::new(), body: Vec::new(), truncated: false }
    }

    pub(super) fn xml(status: u16, document: String) -> Self {
        let mut answer = Self::empty(status).header(CONTENT_TYPE.as_str(), "application/xml");
        answer.body.push(document.into());
        answer
    }

    pub(super) fn json(status: u16, document: Vec<u8>) -> Self {
        let mut answer = Self::empty(status).header(CONTENT_TYPE.as_str(), "application/json");
        answer.body.push(document.into());
        answer
    }

    /// Returns the answer to a refused request. A 304 has no body, and neither has an answer to
    /// HEAD.
    pub(super) fn refused(refusal: &Refusal, request_id: Uuid) -> Self {
        if refusal.code.is_empty() {
            return Self::empty(refusal.status);
        }
        if refusal.status == 304 {
            return Self::empty(304).header("x-ms-error-code", &refusal.code);
        }
        let mut xml = Xml::new();
        xml.raw("<Error>")
            .element("Code", &refusal.code)
            .element("Message", &format!("{}\nRequestId:{request_id}", refusal.message))
            .raw("</Error>");
        let answer = Self::xml(refusal.status, xml.finish()).header("x-ms-error-code", &refusal.code);
        if refusal.status != 401 {
            return answer;
        }
        let challenge = "Bearer authorization_uri=https://login.microsoftonline.com/common/oauth2/authorize resource_id=https://storage.azure.com";
        answer.header(WWW_AUTHENTICATE.as_str(), challenge)
    }

    /// Adds a header. An invalid one is left out; only the caller's own names and values can be
    /// invalid.
    #[must_use]
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            self.headers.insert(name, value);
        }
        self
    }

    #[must_use]
    pub(super) fn metadata(self, metadata: &BTreeMap<String, String>) -> Self {
        metadata.iter().fold(self, |answer, (name, value)| answer.header(&format!("x-ms-meta-{name}"), value))
    }

    pub(super) fn into_response(mut self) -> Response<Body> {
        if self.truncated {
            let whole = self.body.concat();
            self.headers.insert(CONTENT_LENGTH, whole.len().into());
            let half = Bytes::copy_from_slice(&whole[..whole.len() / 2]);
            return response(self.status, self.headers, broken_off_after(half));
        }
        let body = match &mut self.body[..] {
            [] => Body::empty(),
            [only] => Body::from(std::mem::take(only)),
            several => {
                let bytes: usize = several.iter().map(Bytes::len).sum();
                self.headers.insert(CONTENT_LENGTH, bytes.into());
                Body::from_stream(stream::iter(self.body.into_iter().map(Ok::<_, std::io::Error>)))
            }
        };
        response(self.status, self.headers, body)
    }
}

/// The version header's value when the request names none.
const VERSION: HeaderValue = HeaderValue::from_static("2026-04-06");

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-ms-version");

/// The request's headers that its answer repeats, and the request's new id. The HTTP library adds
/// the Date header.
#[derive(Debug)]
pub(super) struct CommonHeaders {
    pub(super) request_id: Uuid,
    client_request_id: Option<HeaderValue>,
    version: HeaderValue,
}

impl CommonHeaders {
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

fn broken_off_after(begins: Bytes) -> Body {
    let ends = stream::once(async {
        // Leaves time to send the beginning, which the close would otherwise drop.
        tokio::time::sleep(Duration::from_millis(10)).await;
        Err(std::io::Error::other("broken off on demand"))
    });
    Body::from_stream(stream::iter([Ok(begins)]).chain(ends))
}

fn response(status: u16, headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}
