//! Sends the SDK's requests: one connection pool for each runtime, and the only code that adds a
//! signature, token or SAS to a request. The SDK above it sees none of them, so neither its errors
//! nor its logs can show one.

mod unanswered;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{CheckSuccessOptions, ErrorKind};
use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Request, StatusCode, check_success};
use futures_util::TryStreamExt as _;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue as HttpValue};
use reqwest::{Method, Url, redirect};
use tokio::runtime::{Handle, Id};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::unanswered::{Obstacle, Unanswered};
use crate::cause::root_cause;
use crate::identity::FreshToken;
use crate::storage::account::{Address, SharedKey};

/// The `User-Agent` of every request, with the SDK's own text behind it where the SDK made the request.
pub(crate) const USER_AGENT: &str = concat!("reprieve-", env!("CARGO_PKG_VERSION"));

/// The connect timeout. The services are a few milliseconds away; a slower one is unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long no data may arrive. Every call has a limit of its own, far below; this one frees the
/// connection of a large blob whose reader is gone.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Azurite closes a connection that was idle for 5 s.
const IDLE_LOOPBACK: Duration = Duration::from_secs(4);

/// The service keeps idle connections for minutes.
const IDLE_SERVICE: Duration = Duration::from_secs(60);

/// Enough idle connections for a drain, which releases all messages in parallel.
const IDLE_PER_HOST_MAX: usize = 128;

/// How many runtimes have a pool at a time. A worker has two; a program that keeps creating
/// runtimes must not collect pools.
const POOLS_MAX: usize = 8;

/// Names, in error answers, the credential that was used: the error's text depends on it.
pub(crate) const WAY_HEADER: HeaderName = HeaderName::from_static("x-reprieve-way-in");

/// Names, in error answers, the account.
pub(crate) const ACCOUNT_HEADER: HeaderName = HeaderName::from_static("x-reprieve-account");

/// Names, in error answers, the endpoint.
pub(crate) const ENDPOINT_HEADER: HeaderName = HeaderName::from_static("x-reprieve-endpoint");

/// Headers of which the service sends at least one with every answer. An answer without any is from
/// another server: a message that a login page "deleted" would be lost silently, and a checkpoint
/// that a proxy can't find still exists.
const OWN_HEADERS: [&str; 3] = ["x-ms-request-id", VERSION_HEADER, "x-ms-error-code"];

/// Asks for a version of the service's API.
const VERSION_HEADER: &str = "x-ms-version";

/// The statuses that a proxy or gateway before the service returns when it is overloaded or the
/// service is away. They are believed without the service's headers.
const BUSY: [u16; 5] = [429, 500, 502, 503, 504];

/// The credentials of requests.
#[derive(Debug)]
pub(crate) enum Pass {
    Key(SharedKey),
    Sas(azure_core::credentials::Secret),
    Token(FreshToken),
}

/// The SDK's HTTP client.
pub(crate) struct Client {
    account: String,
    pass: Pass,
    /// The parameters of the SAS. Appending its text would parse it again with each request.
    sas: Vec<(String, String)>,
    pools: Pools,
    /// The runtime that sends the requests; `None` for that of the caller.
    io: Option<Handle>,
}

impl Client {
    pub(crate) fn new(address: &Address, pass: Pass, io: Option<Handle>) -> reprieve_core::Result<Self> {
        let sas = match &pass {
            Pass::Sas(sas) => form_urlencoded::parse(sas.secret().as_bytes()).into_owned().collect(),
            Pass::Key(_) | Pass::Token(_) => Vec::new(),
        };
        Ok(Self { account: address.account.clone(), pass, sas, pools: Pools::new(address)?, io })
    }

    pub(crate) const fn pass(&self) -> &Pass {
        &self.pass
    }

    /// Deletes what is at `url`, in a version of the API. It is the call of every job, and the policies that the SDK
    /// sends a request through take half as long as sending it.
    ///
    /// # Errors
    /// Those of the SDK.
    pub(crate) async fn delete(&self, url: Url, version: HttpValue) -> azure_core::Result<()> {
        let mut request = reqwest::Request::new(Method::DELETE, url);
        request.headers_mut().insert(VERSION_HEADER, version);
        let (url, answer) = self.ask(request).await?;
        if answer.status() == reqwest::StatusCode::NO_CONTENT {
            // It has no body, so the connection is free for the next request.
            return Ok(());
        }
        let deleted = CheckSuccessOptions { success_codes: &[204] };
        check_success(self.for_the_sdk(url, answer), Some(deleted)).await.map(drop)
    }

    /// Sends the request with its credentials. Returns its URL without a SAS, which is a credential, and the service's
    /// answer.
    async fn ask(&self, mut request: reqwest::Request) -> azure_core::Result<(Url, reqwest::Response)> {
        let url = request.url().clone();
        self.admit(&mut request).await?;
        let answer = self.send(&url, request).await?;
        let strange = !OWN_HEADERS.iter().any(|name| answer.headers().contains_key(*name));
        if strange && !BUSY.contains(&answer.status().as_u16()) {
            return Err(Unanswered::by_the_service(&host_of(&url)).into_sdk());
        }
        Ok((url, answer))
    }

    /// The service's answer as the SDK has it.
    fn for_the_sdk(&self, url: Url, answer: reqwest::Response) -> AsyncRawResponse {
        let status = StatusCode::from(answer.status().as_u16());
        let mut headers = headers_of(answer.headers());
        if !status.is_success() {
            self.note_refusal(status, &url, &mut headers);
        }
        let body = answer
            .bytes_stream()
            .map_err(move |error| Unanswered::to_the_end(&host_of(&url), &error).into_sdk());
        AsyncRawResponse::new(status, headers, Box::pin(body))
    }

    /// Adds the credentials to the request.
    async fn admit(&self, request: &mut reqwest::Request) -> azure_core::Result<()> {
        match &self.pass {
            Pass::Key(key) => key.sign(request),
            Pass::Sas(_) => {
                request.url_mut().query_pairs_mut().extend_pairs(&self.sas);
                Ok(())
            }
            Pass::Token(token) => {
                request.headers_mut().insert(AUTHORIZATION, token.header().await?);
                Ok(())
            }
        }
    }

    /// Sends the request. A request whose caller is gone is not sent any more.
    async fn send(&self, url: &Url, request: reqwest::Request) -> azure_core::Result<reqwest::Response> {
        let unanswered = |error| Unanswered::to_the_request(&host_of(url), &error).into_sdk();
        let Some(io) = &self.io else {
            return self.pools.of(&Handle::current())?.execute(request).await.map_err(unanswered);
        };
        let http = self.pools.of(io)?;
        let sent = AbortOnDropHandle::new(io.spawn(async move { http.execute(request).await })).await;
        let sent = sent.map_err(|error| {
            azure_core::Error::with_message(ErrorKind::Other, format!("the runtime for connections: {error}"))
        })?;
        sent.map_err(unanswered)
    }

    /// Adds to an error answer the data that the error's text needs.
    fn note_refusal(&self, status: StatusCode, url: &Url, headers: &mut Headers) {
        if status == StatusCode::Unauthorized
            && let Pass::Token(token) = &self.pass
        {
            token.suspect();
        }
        let way = match &self.pass {
            Pass::Key(_) => "key",
            Pass::Sas(_) => "sas",
            Pass::Token(_) => "identity",
        };
        headers.insert(WAY_HEADER, HeaderValue::from(way));
        headers.insert(ACCOUNT_HEADER, HeaderValue::from(self.account.clone()));
        headers.insert(ENDPOINT_HEADER, HeaderValue::from(url.origin().ascii_serialization()));
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let (url, answer) = self.ask(translate(request)?).await?;
        Ok(self.for_the_sdk(url, answer))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("account", &self.account).finish_non_exhaustive()
    }
}

/// One pool of connections for each runtime.
///
/// A task of the runtime that opened a connection drives it. If another runtime shared it, a
/// drain's calls would stop whenever jobs keep every thread of theirs busy, and would fail once
/// that runtime has ended.
struct Pools {
    loopback: bool,
    ca: Option<Arc<[u8]>>,
    by_runtime: Mutex<Vec<(Id, reqwest::Client)>>,
}

impl Pools {
    fn new(address: &Address) -> reprieve_core::Result<Self> {
        let pools =
            Self { loopback: address.is_loopback(), ca: address.ca.clone(), by_runtime: Mutex::default() };
        // Invalid settings fail now, not at the first request.
        pools.build().map_err(|error| {
            let message = format!("its certificates or TLS settings are refused: {}", root_cause(&error));
            reprieve_core::Error::new(reprieve_core::ErrorKind::Invalid, "set up the storage client", message)
        })?;
        Ok(pools)
    }

    /// The client of the runtime.
    fn of(&self, runtime: &Handle) -> azure_core::Result<reqwest::Client> {
        let runtime = runtime.id();
        let mut pools = self.by_runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = pools.iter().find(|(id, _)| *id == runtime) {
            return Ok(client.clone());
        }
        let client = self.build().map_err(|error| {
            azure_core::Error::with_message(
                ErrorKind::Other,
                format!("no HTTP client: {}", root_cause(&error)),
            )
        })?;
        if pools.len() == POOLS_MAX {
            pools.remove(0);
        }
        pools.push((runtime, client.clone()));
        Ok(client)
    }

    fn build(&self) -> reqwest::Result<reqwest::Client> {
        let mut builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_MAX)
            .pool_idle_timeout(if self.loopback { IDLE_LOOPBACK } else { IDLE_SERVICE })
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .tcp_nodelay(true)
            .redirect(redirect::Policy::none());
        if self.loopback {
            builder = builder.no_proxy();
        }
        if let Some(pem) = &self.ca {
            builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
        }
        builder.build()
    }
}

/// Converts the SDK's request for the HTTP client, and sets its length.
fn translate(request: &Request) -> azure_core::Result<reqwest::Request> {
    let method = request.method().as_str().parse().map_err(malformed)?;
    let mut out = reqwest::Request::new(method, request.url().clone());
    for (name, value) in request.headers().iter() {
        let name = reqwest::header::HeaderName::try_from(name.as_str()).map_err(malformed)?;
        out.headers_mut().insert(name, value.as_str().try_into().map_err(malformed)?);
    }
    let length = request.body().len();
    if let Some(length) = length.filter(|length| *length > 0) {
        out.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    *out.body_mut() = match request.body().clone() {
        _ if length == Some(0) => None,
        Body::Bytes(bytes) => Some(bytes.into()),
        Body::SeekableStream(stream) => Some(reqwest::Body::wrap_stream(stream)),
    };
    Ok(out)
}

/// A request with characters in its headers that HTTP can't carry, such as a line break in a blob's
/// metadata.
#[derive(Debug)]
pub(crate) struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name or value has characters that an HTTP header can't carry")
    }
}

impl std::error::Error for Malformed {}

fn malformed<E>(_: E) -> azure_core::Error {
    azure_core::Error::new(ErrorKind::DataConversion, Malformed)
}

/// The answer's headers. One that is not text is left out: the service sends none.
fn headers_of(headers: &reqwest::header::HeaderMap) -> Headers {
    let text = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
        let value = value.to_str().ok()?.to_owned();
        Some((HeaderName::from(name.as_str().to_owned()), HeaderValue::from(value)))
    };
    let mut texts = HashMap::with_capacity(headers.len());
    texts.extend(headers.iter().filter_map(text));
    texts.into()
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
