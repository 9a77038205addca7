//! Requests to a public service of Azure over HTTPS, again where that may help.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use reprieve_core::clock::wall_now;
use reprieve_core::{Error, ErrorKind, Result};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url, redirect};
use tokio::time::sleep;
use tracing::{debug, trace};

use crate::cause::root_cause;
use crate::scheduled_events::NotBefore;

/// A service, for messages.
#[derive(Debug)]
pub(crate) struct Service {
    /// The operation, as in "failed to …".
    pub(crate) operation: &'static str,
    /// Its address.
    pub(crate) url: &'static str,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit of one answer. A page of 1,000 prices is about a megabyte.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest answer that is read: ten times a page of 1,000 prices.
const ANSWER_BYTES_MAX: usize = 10 << 20;

/// How often the same is requested. The service refuses with 429 and 503 when it is busy.
const TRIES: u32 = 5;

/// How often it is requested of a service that can't be reached: more would not help a machine
/// without a network.
const TRIES_UNREACHABLE: u32 = 2;

/// The pause after the first failure; it doubles with each.
const BACKOFF: Duration = Duration::from_secs(1);

/// The longest `Retry-After` that is waited for. Whoever reads a table waits no longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How many characters of a refusal's text are repeated.
const EXCERPT_CHARS_MAX: usize = 200;

/// A connection to one service.
#[derive(Debug, Clone)]
pub(crate) struct Web {
    http: reqwest::Client,
    base: Url,
    service: &'static Service,
}

/// The body of a request that reads by `POST`, and the token for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Post<'a> {
    pub(crate) body: &'a serde_json::Value,
    /// `None` for a service on this machine, which asks for none.
    pub(crate) token: Option<&'a str>,
}

/// A request that failed.
struct Failure {
    error: Error,
    tries_max: u32,
    /// How long the service asks to wait.
    retry_after: Option<Duration>,
}

impl Web {
    pub(crate) fn new(base: &str, service: &'static Service) -> Result<Self> {
        let base = parse_base(base, service.url)?;
        let mut http = reqwest::Client::builder()
            // A redirect could lead to another host, and its prices would be believed.
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("reprieve/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&base) {
            http = http.no_proxy().tls_certs_only([]);
        }
        let http = http.build().map_err(|error| {
            Error::new(ErrorKind::Internal, service.operation, root_cause(&error)).with_source(error)
        })?;
        Ok(Self { http, base, service })
    }

    /// The service's address, for messages.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Whether the service is on this machine, so that it is a mock.
    pub(crate) fn is_local(&self) -> bool {
        is_loopback(&self.base)
    }

    /// The address of `path` with this query.
    pub(crate) fn url(&self, path: &str, query: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        url.set_query(Some(query));
        url
    }

    /// Checks the link to a further page. It leads to the same service; `:443` is the default port of
    /// https, and the service writes it.
    pub(crate) fn follow(&self, link: &str) -> Result<Url> {
        let next = Url::parse(link).ok().filter(|url| {
            url.origin() == self.base.origin() && url.username().is_empty() && url.password().is_none()
        });
        next.ok_or_else(|| {
            let link: String = link.chars().take(EXCERPT_CHARS_MAX).collect();
            let message = format!(
                "the link to the next page leads away from {}, to {link:?}; it is not followed",
                self.base()
            );
            Error::new(ErrorKind::Corrupt, self.service.operation, message)
        })
    }

    /// Requests the page at `url`, or what the body asks for there, and returns the answer's body.
    ///
    /// # Cancel safety
    /// Requests only read, so it may be dropped at any time.
    pub(crate) async fn read(&self, url: &Url, post: Option<Post<'_>>) -> Result<Vec<u8>> {
        let mut backoff = BACKOFF;
        let mut tries = 1;
        loop {
            let Failure { error, tries_max, retry_after } = match self.request(url, post).await {
                Ok(body) => return Ok(body),
                Err(failure) => failure,
            };
            // A busy service may ask for no pause at all, and five requests at once would not help it.
            let pause = retry_after.unwrap_or_default().max(backoff);
            if tries >= tries_max || pause > RETRY_AFTER_MAX {
                return Err(error);
            }
            debug!(%error, ?pause, "a request failed; trying again");
            sleep(pause).await;
            backoff *= 2;
            tries += 1;
        }
    }

    async fn request(&self, url: &Url, post: Option<Post<'_>>) -> Result<Vec<u8>, Failure> {
        trace!(%url, "request");
        let request = match post {
            None => self.http.get(url.clone()),
            Some(Post { body, token: None }) => self.http.post(url.clone()).json(body),
            Some(Post { body, token: Some(token) }) => {
                self.http.post(url.clone()).json(body).bearer_auth(token)
            }
        };
        let sent = request.timeout(ANSWER_TIMEOUT).send().await;
        let mut answer = sent.map_err(|error| self.no_answer(error))?;
        let retry_after = retry_after(answer.headers(), wall_now());
        let body = self.body_of(&mut answer).await?;
        let status = answer.status();
        if status.is_success() { Ok(body) } else { Err(self.refused(status, retry_after, &body)) }
    }

    async fn body_of(&self, answer: &mut Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.no_answer(error))? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                let message = format!("an answer of {} is longer than {ANSWER_BYTES_MAX} bytes", self.base());
                return Err(Failure::lasting(Error::new(
                    ErrorKind::TooLarge,
                    self.service.operation,
                    message,
                )));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    fn no_answer(&self, error: reqwest::Error) -> Failure {
        let (kind, tries_max, message) = if error.is_timeout() {
            let message = format!("{} did not answer within {ANSWER_TIMEOUT:?}", self.base());
            (ErrorKind::TimedOut, TRIES_UNREACHABLE, message)
        } else if error.is_connect() {
            let message = format!("{} can't be reached: {}", self.base(), root_cause(&error));
            (ErrorKind::Unavailable, TRIES_UNREACHABLE, message)
        } else {
            let message = format!("the connection to {} broke off: {}", self.base(), root_cause(&error));
            (ErrorKind::Unavailable, TRIES, message)
        };
        let error = Error::new(kind, self.service.operation, message).with_source(error);
        Failure { error, tries_max, retry_after: None }
    }

    fn refused(&self, status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Failure {
        let text: String = String::from_utf8_lossy(body).trim().chars().take(EXCERPT_CHARS_MAX).collect();
        let text = if text.is_empty() { text } else { format!(" and {text:?}") };
        let hint = match retry_after {
            Some(pause) if pause > RETRY_AFTER_MAX => format!("; it asks to wait for {pause:?}"),
            _ if status.is_redirection() => "; it never redirects, so check its address".to_owned(),
            _ => String::new(),
        };
        let message = format!("{} answered {status}{text}{hint}", self.base());
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            let error = Error::new(ErrorKind::Unavailable, self.service.operation, message);
            return Failure { error, tries_max: TRIES, retry_after };
        }
        let kind = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Denied,
            _ => ErrorKind::Invalid,
        };
        Failure::lasting(Error::new(kind, self.service.operation, message))
    }
}

impl Failure {
    /// A failure that another try would not change.
    const fn lasting(error: Error) -> Self {
        Self { error, tries_max: 1, retry_after: None }
    }
}

/// The pause that the service asks for: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let NotBefore::At(date) = NotBefore::read(text) else { return None };
    let (date, now) = (Timestamp::try_from(date).ok()?, Timestamp::try_from(now).ok()?);
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn parse_base(base: &str, usual: &str) -> Result<Url> {
    let refuse = |why: &str| {
        let message = format!("{why}; give an address such as {usual}");
        Err(Error::new(ErrorKind::Invalid, "use the service's URL", message))
    };
    // An address with credentials is not repeated.
    let Ok(url) = Url::parse(base.trim()) else { return refuse("it is not a complete URL") };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("it has a user name or password, which the service does not use");
    }
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        "http" => return refuse("it is plain http, in which anyone on the way could change answers"),
        _ => return refuse("its scheme is not https"),
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse("it has a query or fragment, which would be sent to the service");
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    const PRICES: Service = Service { operation: "read prices", url: "https://prices.azure.com" };

    fn azure() -> Web {
        Web::new(PRICES.url, &PRICES).expect("a client")
    }

    #[test]
    fn a_link_is_followed_to_the_same_service_only() {
        let followed = azure().follow("https://prices.azure.com:443/api/retail/prices?$skip=1000");
        assert_eq!(
            followed.expect("a URL").as_str(),
            "https://prices.azure.com/api/retail/prices?$skip=1000"
        );
        for link in [
            "https://prices.azure.com.evil.example/api/retail/prices?$skip=1000",
            "https://evil.example/?https://prices.azure.com:443",
            "https://prices.azure.com@evil.example/",
            "https://me:too@prices.azure.com/",
            "https://prices.azure.com:8443/api/retail/prices",
            "http://prices.azure.com:443/api/retail/prices",
            "/api/retail/prices?$skip=1000",
            "file:///etc/passwd",
            "",
        ] {
            let error = azure().follow(link).expect_err(link);
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.message().contains("leads away from https://prices.azure.com"), "{error}");
        }
    }

    #[test]
    fn an_address_that_others_could_answer_is_refused() {
        for base in
            ["https://prices.azure.com", "http://127.0.0.1:8171", "http://localhost:1/x", "http://[::1]:1"]
        {
            assert!(Web::new(base, &PRICES).is_ok(), "{base}");
        }
        for (base, why) in [
            ("prices.azure.com", "not a complete URL"),
            ("http://prices.azure.com", "plain http"),
            ("http://10.0.0.4", "plain http"),
            ("ftp://prices.azure.com", "scheme is not https"),
            ("https://u:hunter2@prices.azure.com", "password"),
            ("https://prices.azure.com?a=b", "query"),
        ] {
            let error = Web::new(base, &PRICES).expect_err(base);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().contains(why) && !error.message().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn spaces_and_quotes_of_a_filter_are_escaped() {
        let url = azure().url("/api/retail/prices", "currencyCode='EUR'&$filter=a eq 'b c'");
        let expected =
            "https://prices.azure.com/api/retail/prices?currencyCode=%27EUR%27&$filter=a%20eq%20%27b%20c%27";
        assert_eq!(url.as_str(), expected);
    }

    #[test]
    fn a_pause_is_in_seconds_or_until_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_474_309_787);
        let pause = |text: &'static str| {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(text))];
            retry_after(&headers.into_iter().collect(), now).map(|pause| pause.as_secs())
        };
        assert_eq!(pause("7"), Some(7));
        assert_eq!(pause("Mon, 19 Sep 2016 18:30:07 GMT"), Some(20));
        assert_eq!(pause("Mon, 19 Sep 2016 18:00:07 GMT"), Some(0), "in the past");
        assert_eq!(
            [pause("soon"), pause("-1"), retry_after(&HeaderMap::new(), now).map(|it| it.as_secs())],
            [None; 3]
        );
    }
}
