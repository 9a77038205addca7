//! Asks the metadata service, once per call: no retries, no state.

use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};
use reqwest::{Method, Response, StatusCode, Url, redirect};

use super::{Compute, document::Document};

/// Where the metadata service is in every Azure VM: an address that leads to the host and no further.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>
pub const METADATA_URL: &str = "http://169.254.169.254";

/// The api-version of Scheduled Events, the newest that is documented.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#version-and-region-availability>
pub const SCHEDULED_EVENTS_API_VERSION: &str = "2020-07-01";

/// The api-version of the instance document. Scheduled Events has other versions: none of them is valid here. This one
/// has `priority` and `evictionPolicy`.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#supported-api-versions>
pub const INSTANCE_API_VERSION: &str = "2021-02-01";

/// How long a connection may take. The service is on the VM's own host; off Azure nothing may ever answer there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest answer that is read: a thousand events, or an instance document with the largest user data (64 KiB).
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How much of a refusal's own words are repeated.
const EXCERPT_CHARS_MAX: usize = 200;

/// Asks one metadata service. Cheap to clone; clones share their connections.
///
/// It speaks plain HTTP to the address it was given and to no other: proxies are bypassed, as
/// [Azure demands](https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#proxies), and redirects
/// refused.
///
/// # Errors
/// Each call fails with [`Unavailable`](ErrorKind::Unavailable) when the service can't be reached, breaks off or
/// answers 404, 410, 429 or 5xx, all of which pass; [`TimedOut`](ErrorKind::TimedOut) when there was no answer in time;
/// [`Invalid`](ErrorKind::Invalid) when it refuses the request (400 and others);
/// [`Corrupt`](ErrorKind::Corrupt) or [`TooLarge`](ErrorKind::TooLarge) when the answer is not what was asked for.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

impl Client {
    /// A client of the service at `base`, such as [`METADATA_URL`]; a path is kept, `/metadata/…` follows it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid), in one sentence, for what is not a plain `http://` address.
    pub fn new(base: &str) -> Result<Self> {
        let base = parse_base(base)?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("reprieve/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Internal, "set up the metadata client", root_cause(&error))
                    .with_source(error)
            })?;
        Ok(Self { http, base })
    }

    /// The address it asks.
    #[must_use]
    pub fn base(&self) -> &str {
        self.base.as_str()
    }

    /// The events that are scheduled or under way, waiting no longer than `within`.
    ///
    /// The first request ever made by a VM enables the service for it and may take
    /// [two minutes](https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events).
    pub async fn document(&self, within: Duration) -> Result<Document> {
        let url = self.url("scheduledevents", SCHEDULED_EVENTS_API_VERSION);
        Document::read(&self.ask("read the scheduled events", Method::GET, url, Vec::new(), within).await?)
    }

    /// Approves events, so that each may begin without waiting for its `NotBefore`, on every VM it names.
    ///
    /// Idempotent: the service answers 200 for an event that was approved before.
    pub async fn approve(&self, event_ids: &[&str], within: Duration) -> Result<()> {
        let requests: Vec<_> = event_ids.iter().map(|id| serde_json::json!({ "EventId": id })).collect();
        let body = serde_json::json!({ "StartRequests": requests }).to_string().into_bytes();
        let url = self.url("scheduledevents", SCHEDULED_EVENTS_API_VERSION);
        self.ask("approve an event", Method::POST, url, body, within).await.map(drop)
    }

    /// What this VM is called and where it runs.
    pub async fn compute(&self, within: Duration) -> Result<Compute> {
        let url = self.url("instance/compute", INSTANCE_API_VERSION);
        Compute::read(&self.ask("read this VM's name", Method::GET, url, Vec::new(), within).await?)
    }

    /// The api-versions of the instance document that the service knows, as it lists them: the oldest first.
    ///
    /// Scheduled Events has other versions, which nothing lists.
    pub async fn versions(&self, within: Duration) -> Result<Vec<String>> {
        const OPERATION: &str = "read the metadata service's versions";
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Versions {
            api_versions: Vec<String>,
        }
        let mut url = self.url("versions", "");
        url.set_query(None);
        let answer = self.ask(OPERATION, Method::GET, url, Vec::new(), within).await?;
        let versions = serde_json::from_slice::<Versions>(&answer).map_err(|error| {
            let message = format!("the answer is no list of versions: {error}");
            Error::new(ErrorKind::Corrupt, OPERATION, message).with_source(error)
        })?;
        Ok(versions.api_versions)
    }

    fn url(&self, endpoint: &str, api_version: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/metadata/{endpoint}", url.path().trim_end_matches('/')));
        url.query_pairs_mut().append_pair("api-version", api_version);
        url
    }

    /// Sends one request and returns the body of its answer if that is a success.
    async fn ask(
        &self,
        operation: &'static str,
        method: Method,
        url: Url,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>> {
        // Without this header every request is refused: it is how the service tells them from misdirected ones.
        let request = self.http.request(method, url).header("Metadata", "true").timeout(within).body(body);
        let mut answer = request.send().await.map_err(|error| self.no_answer(operation, within, error))?;
        let body = self.body_of(operation, within, &mut answer).await?;
        if answer.status().is_success() { Ok(body) } else { Err(refused(operation, answer.status(), &body)) }
    }

    async fn body_of(
        &self,
        operation: &'static str,
        within: Duration,
        answer: &mut Response,
    ) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) =
            answer.chunk().await.map_err(|error| self.no_answer(operation, within, error))?
        {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                let message = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
                return Err(Error::new(ErrorKind::TooLarge, operation, message));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    fn no_answer(&self, operation: &'static str, within: Duration, error: reqwest::Error) -> Error {
        let (kind, message) = if error.is_connect() {
            (ErrorKind::Unavailable, format!("{} can't be reached: {}", self.base, root_cause(&error)))
        } else if error.is_timeout() {
            (ErrorKind::TimedOut, format!("{} did not answer within {within:?}", self.base))
        } else {
            (ErrorKind::Unavailable, format!("{} broke off: {}", self.base, root_cause(&error)))
        };
        Error::new(kind, operation, message).with_source(error)
    }
}

/// What an answer other than success means.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#errors-and-debugging>
fn refused(operation: &'static str, status: StatusCode, body: &[u8]) -> Error {
    let (kind, hint) = match status {
        StatusCode::TOO_MANY_REQUESTS => {
            (ErrorKind::Unavailable, "; all processes of a VM share five requests per second")
        }
        StatusCode::GONE => (ErrorKind::Unavailable, "; the service is being updated, for up to 70 s"),
        StatusCode::NOT_FOUND => (ErrorKind::Unavailable, ""),
        status if status.is_server_error() => (ErrorKind::Unavailable, ""),
        status if status.is_redirection() => {
            (ErrorKind::Invalid, "; a metadata service never redirects, so check its address")
        }
        _ => (ErrorKind::Invalid, ""),
    };
    let words: String = String::from_utf8_lossy(body).trim().chars().take(EXCERPT_CHARS_MAX).collect();
    let words = if words.is_empty() { words } else { format!(" and {words:?}") };
    Error::new(kind, operation, format!("the metadata service answered {status}{words}{hint}"))
}

/// The innermost cause, which says what happened; the outer ones only say where.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn parse_base(base: &str) -> Result<Url> {
    let refuse = |why: &str| {
        let message = format!("{why}; give an address such as {METADATA_URL}");
        Err(Error::new(ErrorKind::Invalid, "use the metadata URL", message))
    };
    // What is refused for its credentials is not repeated.
    let Ok(url) = Url::parse(base.trim()) else { return refuse("it is not a whole URL") };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("it has a user name or password, which the service knows nothing of");
    }
    if url.scheme() != "http" {
        return refuse(&format!("its scheme is {:?}, but the service speaks http only", url.scheme()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse("it has a query or fragment, which would be sent to the service");
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn events_url(base: &str) -> String {
        Client::new(base).expect(base).url("scheduledevents", "2020-07-01").to_string()
    }

    #[test]
    fn a_base_may_have_a_path_and_end_in_a_slash() {
        let expected = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01";
        assert_eq!(events_url("http://169.254.169.254"), expected);
        assert_eq!(events_url(" http://169.254.169.254/ "), expected);
        let expected = "http://127.0.0.1:8169/vm/a_0/metadata/scheduledevents?api-version=2020-07-01";
        assert_eq!(events_url("http://127.0.0.1:8169/vm/a_0"), expected);
        assert_eq!(events_url("http://127.0.0.1:8169/vm/a_0/"), expected);
    }

    #[test]
    fn a_base_that_is_no_plain_http_address_is_refused_in_one_sentence() {
        for (base, why) in [
            ("", "not a whole URL"),
            ("169.254.169.254", "not a whole URL"),
            ("localhost:80", "scheme is \"localhost\""),
            ("https://169.254.169.254", "speaks http only"),
            ("http://user@host", "user name"),
            ("http://:hunter2@host", "password"),
            ("http://host?a=b", "query"),
            ("http://host#a", "fragment"),
            ("http://", "not a whole URL"),
        ] {
            let error = Client::new(base).expect_err(base);
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(text.contains(why) && text.contains("http://169.254.169.254"), "{base}: {text}");
            assert!(!text.contains("hunter2") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn refusals_that_pass_are_told_from_those_that_do_not() {
        for (status, kind) in [
            (404, ErrorKind::Unavailable),
            (410, ErrorKind::Unavailable),
            (429, ErrorKind::Unavailable),
            (500, ErrorKind::Unavailable),
            (503, ErrorKind::Unavailable),
            (301, ErrorKind::Invalid),
            (400, ErrorKind::Invalid),
            (405, ErrorKind::Invalid),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(refused("ask", status, b"").kind(), kind, "{status}");
        }
    }

    #[test]
    fn a_refusal_repeats_the_beginning_of_the_services_words() {
        let words = format!("Bad Request,\n{}", "x".repeat(1000));
        let text = refused("ask", StatusCode::BAD_REQUEST, words.as_bytes()).to_string();
        assert!(
            text.starts_with(r#"ask: the metadata service answered 400 Bad Request and "Bad Request,\nxxx"#),
            "{text}"
        );
        assert!(text.len() < 300, "{}", text.len());
    }
}
