//! Sends one request to the metadata service and classifies the result.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use reprieve_core::clock::wall_now;
use reprieve_core::{Error, ErrorKind, Result};
use reqwest::header::{self, HeaderMap};
use reqwest::{Method, Response, StatusCode, Url, redirect};
use tokio::time::Instant;
use tracing::trace;

use super::failure::{Failure, FailureKind};
use crate::cause::root_cause;
use crate::scheduled_events::document::NotBefore;

/// The metadata service's address in every Azure VM. It is link-local: it leads to the host and no
/// further.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>
pub const METADATA_URL: &str = "http://169.254.169.254";

/// The connect timeout. The service is on the VM's own host. Outside Azure nothing may ever answer
/// there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest answer that is read: enough for a thousand events, or for an instance document with
/// the largest user data (64 KiB).
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How many characters of a refusal's text are repeated.
const EXCERPT_CHARS_MAX: usize = 200;

/// A connection to one metadata service. It bypasses all proxies and follows no redirects.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    http: reqwest::Client,
    base: Url,
}

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    /// The operation, as in "failed to …".
    pub(super) operation: &'static str,
    pub(super) method: Method,
    /// The path after `/metadata/`.
    pub(super) endpoint: &'static str,
    /// `None` for the one endpoint without a version.
    pub(super) api_version: Option<&'static str>,
    pub(super) body: Vec<u8>,
}

/// The body of a successful answer.
#[derive(Debug)]
pub(crate) struct Body {
    pub(super) bytes: Vec<u8>,
    /// How far the service's clock is ahead of this machine's; `None` where the answer does not show
    /// it.
    pub(super) ahead: Option<SignedDuration>,
}

/// The slowest answer whose `Date` is used: it may have waited after the time was written.
const DATED_WITHIN: Duration = Duration::from_secs(1);

/// The largest difference of clocks that is believed. The `Date` header is not documented.
const AHEAD_MAX: SignedDuration = SignedDuration::from_hours(24);

impl HttpClient {
    pub(super) fn new(base: &str) -> Result<Self> {
        let base = parse_base(base)?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            // The service speaks http only, and reading the system's certificates costs memory and time.
            .tls_certs_only([])
            .user_agent(concat!("reprieve/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Internal, "set up the metadata client", root_cause(&error))
                    .with_source(error)
            })?;
        Ok(Self { http, base })
    }

    pub(super) fn base(&self) -> &str {
        self.base.as_str()
    }

    /// Sends the request. Returns the body of a successful answer.
    pub(super) async fn send(&self, request: Request, within: Duration) -> Result<Body, Failure> {
        let url = self.url(request.endpoint, request.api_version);
        trace!(method = %request.method, %url, "metadata request");
        // The service refuses requests without this header, to protect against misdirected ones.
        let builder = self.http.request(request.method, url).header("Metadata", "true");
        let sent = Instant::now();
        let mut answer = builder
            .timeout(within)
            .body(request.body)
            .send()
            .await
            .map_err(|error| self.no_answer(request.operation, within, error))?;
        let retry_after = retry_after(answer.headers());
        let ahead = ahead(answer.headers(), sent.elapsed(), wall_now());
        let bytes = self.body_of(request.operation, within, &mut answer).await?;
        let status = answer.status();
        if status.is_success() {
            Ok(Body { bytes, ahead })
        } else {
            Err(Failure { retry_after, ..refused(request.operation, status, &bytes) })
        }
    }

    fn url(&self, endpoint: &str, api_version: Option<&str>) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/metadata/{endpoint}", url.path().trim_end_matches('/')));
        if let Some(api_version) = api_version {
            url.query_pairs_mut().append_pair("api-version", api_version);
        }
        url
    }

    async fn body_of(
        &self,
        operation: &'static str,
        within: Duration,
        answer: &mut Response,
    ) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(piece) =
            answer.chunk().await.map_err(|error| self.no_answer(operation, within, error))?
        {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                let message = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
                let error = Error::new(ErrorKind::TooLarge, operation, message);
                return Err(Failure::new(FailureKind::Garbage, error));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    fn no_answer(&self, operation: &'static str, within: Duration, error: reqwest::Error) -> Failure {
        let (kind, error_kind, message) = if error.is_connect() {
            let message = format!("{} can't be reached: {}", self.base, root_cause(&error));
            (FailureKind::Unreachable, ErrorKind::Unavailable, message)
        } else if error.is_timeout() {
            let message = format!("{} did not answer within {within:?}", self.base);
            (FailureKind::TimedOut, ErrorKind::TimedOut, message)
        } else {
            let message = format!("the connection to {} broke off: {}", self.base, root_cause(&error));
            (FailureKind::Unreachable, ErrorKind::Unavailable, message)
        };
        Failure::new(kind, Error::new(error_kind, operation, message).with_source(error))
    }
}

/// How far the service's clock is ahead, by the `Date` header of an answer that took so long. Half a
/// second is added, because the header has whole seconds.
fn ahead(headers: &HeaderMap, took: Duration, wall: SystemTime) -> Option<SignedDuration> {
    let date = headers.get(header::DATE)?.to_str().ok().filter(|_| took <= DATED_WITHIN)?;
    let NotBefore::At(date) = NotBefore::read(date) else { return None };
    let (there, here) = (Timestamp::try_from(date).ok()?, Timestamp::try_from(wall).ok()?);
    let ahead = there.duration_since(here) + SignedDuration::from_millis(500);
    (ahead.abs() <= AHEAD_MAX).then_some(ahead)
}

/// The seconds of a `Retry-After` header. A date, which the service is not known to send, is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// The failure for an answer that is no success.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#errors-and-debugging>
fn refused(operation: &'static str, status: StatusCode, body: &[u8]) -> Failure {
    let (error_kind, hint) = match status {
        StatusCode::TOO_MANY_REQUESTS => {
            (ErrorKind::Unavailable, "; all processes of a VM share five requests a second")
        }
        StatusCode::GONE => (ErrorKind::Unavailable, "; the service is being updated, for up to 70 s"),
        StatusCode::NOT_FOUND => (ErrorKind::Unavailable, ""),
        status if status.is_server_error() => (ErrorKind::Unavailable, ""),
        status if status.is_redirection() => {
            (ErrorKind::Invalid, "; a metadata service never redirects, so check its address")
        }
        _ => (ErrorKind::Invalid, ""),
    };
    let text: String = String::from_utf8_lossy(body).trim().chars().take(EXCERPT_CHARS_MAX).collect();
    let text = if text.is_empty() { text } else { format!(" and {text:?}") };
    let message = format!("the metadata service answered {status}{text}{hint}");
    Failure {
        kind: FailureKind::of_status(status.as_u16()),
        status: Some(status.as_u16()),
        retry_after: None,
        error: Error::new(error_kind, operation, message),
    }
}

fn parse_base(base: &str) -> Result<Url> {
    let refuse = |why: &str| {
        let message = format!("{why}; give an address such as {METADATA_URL}");
        Err(Error::new(ErrorKind::Invalid, "use the metadata URL", message))
    };
    // An address with credentials is not repeated.
    let Ok(url) = Url::parse(base.trim()) else { return refuse("it is not a complete URL") };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("it has a user name or password, which the service does not use");
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
        HttpClient::new(base).expect(base).url("scheduledevents", Some("2020-07-01")).to_string()
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
            ("", "not a complete URL"),
            ("169.254.169.254", "not a complete URL"),
            ("localhost:80", "scheme is \"localhost\""),
            ("https://169.254.169.254", "speaks http only"),
            ("http://user@host", "user name"),
            ("http://:hunter2@host", "password"),
            ("http://host?a=b", "query"),
            ("http://host#a", "fragment"),
            ("http://", "not a complete URL"),
        ] {
            let error = HttpClient::new(base).expect_err(base);
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(text.contains(why) && text.contains("http://169.254.169.254"), "{base}: {text}");
            assert!(!text.contains("hunter2") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_plausible_date_shows_how_far_the_clocks_differ() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_474_309_787);
        let ahead_by = |date: &'static str, took_ms| {
            let headers = [(header::DATE, header::HeaderValue::from_static(date))];
            let ahead = ahead(&headers.into_iter().collect(), Duration::from_millis(took_ms), wall);
            ahead.map(|ahead| ahead.as_millis())
        };
        assert_eq!(ahead_by("Mon, 19 Sep 2016 18:29:47 GMT", 0), Some(500));
        assert_eq!(ahead_by("Mon, 19 Sep 2016 18:30:07 GMT", 1_000), Some(20_500));
        assert_eq!(ahead_by("Mon, 19 Sep 2016 18:29:00 GMT", 10), Some(-46_500));
        assert_eq!(ahead_by("Mon, 19 Sep 2016 18:30:07 GMT", 1_001), None, "it was slow");
        assert_eq!(ahead_by("Thu, 01 Jan 1970 00:00:00 GMT", 0), None);
        assert_eq!(ahead_by("soon", 0), None);
        assert_eq!(ahead(&HeaderMap::new(), Duration::ZERO, wall), None);
    }

    #[test]
    fn temporary_refusals_differ_from_lasting_ones() {
        for (status, error_kind, kind, version) in [
            (404, ErrorKind::Unavailable, FailureKind::Refused, true),
            (410, ErrorKind::Unavailable, FailureKind::Updating, false),
            (429, ErrorKind::Unavailable, FailureKind::Throttled, false),
            (500, ErrorKind::Unavailable, FailureKind::Server, false),
            (503, ErrorKind::Unavailable, FailureKind::Server, false),
            (301, ErrorKind::Invalid, FailureKind::Refused, false),
            (400, ErrorKind::Invalid, FailureKind::Refused, true),
            (405, ErrorKind::Invalid, FailureKind::Refused, false),
        ] {
            let failure = refused("ask", StatusCode::from_u16(status).expect("a status"), b"");
            assert_eq!((failure.error.kind(), failure.kind), (error_kind, kind), "{status}");
            assert_eq!(failure.may_mean_the_version(), version, "{status}");
        }
    }

    #[test]
    fn a_refusal_quotes_the_beginning_of_the_services_text() {
        let answer = format!("Bad Request,\n{}", "x".repeat(1000));
        let text = refused("ask", StatusCode::BAD_REQUEST, answer.as_bytes()).error.to_string();
        assert!(
            text.starts_with(r#"ask: the metadata service answered 400 Bad Request and "Bad Request,\nxxx"#),
            "{text}"
        );
        assert!(text.len() < 300, "{}", text.len());
    }
}
