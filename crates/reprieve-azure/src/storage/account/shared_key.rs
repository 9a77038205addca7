//! Signs requests to the blob and queue services with an account's key.
//! <https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key>

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use azure_core::{
    credentials::Secret,
    hmac::hmac_sha256,
    time::{OffsetDateTime, to_rfc7231},
};
use reprieve_core::clock;
use reqwest::Request;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

/// The headers that are signed without their names, in this order. The length is inserted between
/// the second and the third. The date is inserted before the fifth and stays empty, because
/// `x-ms-date` contains it.
const SIGNED: [&str; 9] = [
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// An account's key.
pub(crate) struct SharedKey {
    account: String,
    key: Secret,
}

impl SharedKey {
    pub(crate) fn new(account: &str, key: Secret) -> Self {
        Self { account: account.to_owned(), key }
    }

    /// Dates and signs a request that is otherwise complete, including its `content-length`.
    pub(crate) fn sign(&self, request: &mut Request) -> azure_core::Result<()> {
        let date = to_rfc7231(&OffsetDateTime::from(clock::wall_now()));
        request.headers_mut().insert(HeaderName::from_static("x-ms-date"), header(date)?);
        let signature = hmac_sha256(&string_to_sign(&self.account, request), &self.key)?;
        let mut value = header(format!("SharedKey {}:{signature}", self.account))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
        Ok(())
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKey").field("account", &self.account).finish_non_exhaustive()
    }
}

fn header(text: String) -> azure_core::Result<HeaderValue> {
    HeaderValue::try_from(text)
        .map_err(|error| azure_core::Error::new(azure_core::error::ErrorKind::DataConversion, error))
}

/// The text to sign. `account` precedes the path even if the path, an emulator's, begins with it
/// again.
fn string_to_sign(account: &str, request: &Request) -> String {
    let get = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut text = String::with_capacity(512);
    let mut line = |part: &str| {
        text.push_str(part);
        text.push('\n');
    };
    line(request.method().as_str());
    for name in &SIGNED[..2] {
        line(get(name));
    }
    // Since version 2015-02-21 a length of 0 is signed as an empty string.
    line(Some(get("content-length")).filter(|length| *length != "0").unwrap_or(""));
    line(get(SIGNED[2]));
    line(get(SIGNED[3]));
    line("");
    for name in &SIGNED[4..] {
        line(get(name));
    }
    push_own_headers(&mut text, request);
    let _ = write!(text, "/{account}{}", request.url().path());
    push_query(&mut text, request);
    text
}

/// The service's own headers, sorted by name.
fn push_own_headers(text: &mut String, request: &Request) {
    let mut own: Vec<_> = request
        .headers()
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x-ms-"))
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("").trim()))
        .collect();
    own.sort_unstable();
    for (name, value) in own {
        let _ = writeln!(text, "{name}:{value}");
    }
}

/// The query's parameters, decoded and sorted by name; repeated ones are joined.
fn push_query(text: &mut String, request: &Request) {
    let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in request.url().query_pairs() {
        parameters.entry(name.to_ascii_lowercase()).or_default().push(value.into_owned());
    }
    for (name, mut values) in parameters {
        values.sort_unstable();
        let _ = write!(text, "\n{name}:{}", values.join(","));
    }
}
