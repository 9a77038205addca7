//! The error for every answer and every missing answer, from real calls to a test server.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::time::{OffsetDateTime, to_rfc7231};
use reprieve_core::clock;

use super::*;
use crate::identity::{Chain, FreshToken, STORAGE};
use crate::storage::account::Address;
use crate::storage::call::{Access, Pass};
use crate::test_server::{Reply, TestServer};

/// No output of a test may contain one of these, in whole or in part.
const KEY: &str = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA==";
const SIGNATURE: &str = "c2VjcmV0LXNpZ25hdHVyZQ%3D%3D";
const TOKEN: &str = "c2VjcmV0LXRva2Vu";

/// Longer than any call here that ends by itself.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Key,
    Sas,
    Identity,
}

#[derive(Debug)]
struct SecretToken;

#[async_trait]
impl TokenCredential for SecretToken {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        Ok(AccessToken::new(TOKEN, OffsetDateTime::from(clock::wall_now() + Duration::from_secs(3600))))
    }
}

/// Access to the account `thumbs` at `host`, which includes a port.
fn access(way: Way, host: &str) -> Access {
    let secret = match way {
        Way::Key => format!("AccountKey={KEY}"),
        Way::Sas => format!("SharedAccessSignature=sv=2022-11-02&sp=r&sig={SIGNATURE}"),
        Way::Identity => String::new(),
    };
    let text = format!("AccountName=thumbs;BlobEndpoint=http://{host};QueueEndpoint=http://{host};{secret}");
    let address = Address::parse(&text).expect("an address");
    if way == Way::Identity {
        // Over plain HTTP, which no address allows.
        let token = Pass::Token(FreshToken::new(Chain::of(STORAGE, Arc::new(SecretToken))));
        return Access::with_pass(&address, token, None).expect("an access");
    }
    Access::open(&address).expect("an access")
}

/// An address that refuses connections.
fn unused_address() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}

/// Makes a call for the target.
async fn call(access: &Access, target: Target<'_>) -> Error {
    const OPERATION: &str = "try it";
    let container = access.container("pictures").expect("a container client");
    let outcome = match target {
        Target::Queue(name) => {
            let queue = access.queue(name).expect("a queue client");
            bounded(OPERATION, target, LIMIT, queue.get_properties(None)).await.map(drop)
        }
        Target::Account => {
            let queue = access.queue("any").expect("a queue client");
            bounded(OPERATION, target, LIMIT, queue.get_properties(None)).await.map(drop)
        }
        Target::Container(_) => {
            bounded(OPERATION, target, LIMIT, container.get_properties(None)).await.map(drop)
        }
        Target::Blob(name) => {
            let download = async { container.blob_client(name).download(None).await?.body.collect().await };
            bounded(OPERATION, target, LIMIT, download).await.map(drop)
        }
    };
    outcome.expect_err("no success")
}

/// An error answer in the service's format: the code in a header and in XML.
fn refusal(status: u16, code: &str, more: &str, date: SystemTime) -> String {
    let date = to_rfc7231(&OffsetDateTime::from(date));
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>The service's words.\nRequestId:r-1\n\
         Time:now</Message>{more}</Error>"
    );
    format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/xml\r\nx-ms-error-code: {code}\r\nx-ms-request-id: r-1\r\n\
         date: {date}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

const QUEUE: Target<'static> = Target::Queue("work");
const CONTAINER: Target<'static> = Target::Container("pictures");
const BLOB: Target<'static> = Target::Blob("in/1.png");

async fn check(
    way: Way,
    target: Target<'_>,
    (status, code, more): (u16, &str, &str),
    kind: ErrorKind,
    expected: &[&str],
) {
    let answer = refusal(status, code, more, clock::wall_now());
    let server = TestServer::start(move |_| Reply::Bytes(answer.clone())).await;
    let error = call(&access(way, &server.address.to_string()), target).await;
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{status} {code}: {text}");
    for words in expected {
        assert!(text.contains(words), "{status} {code} does not contain {words:?}: {text}");
    }
    let support = format!("({status} {code}, request r-1)");
    assert!(text.contains(&support) && text.contains(&target.to_string()) && !text.contains('\n'), "{text}");
}

#[tokio::test]
async fn answers_about_messages_and_blobs_mean_what_the_ports_mean() {
    use ErrorKind as E;
    let receipt =
        "<QueryParameterName>popreceipt</QueryParameterName><QueryParameterValue>x</QueryParameterValue>";
    let other = "<QueryParameterName>visibilitytimeout</QueryParameterName>";
    for (target, answer, kind, expected) in [
        (QUEUE, (404, "MessageNotFound", ""), E::LeaseLost, &[][..]),
        (QUEUE, (400, "PopReceiptMismatch", ""), E::LeaseLost, &[]),
        (QUEUE, (400, "InvalidQueryParameterValue", receipt), E::LeaseLost, &[]),
        (QUEUE, (400, "InvalidQueryParameterValue", ""), E::LeaseLost, &[]),
        (QUEUE, (400, "InvalidQueryParameterValue", other), E::Invalid, &["The service's words."]),
        (BLOB, (400, "InvalidQueryParameterValue", ""), E::Invalid, &[]),
        (QUEUE, (400, "OutOfRangeQueryParameterValue", ""), E::Invalid, &["The service's words."]),
        (BLOB, (409, "BlobAlreadyExists", ""), E::Conflict, &[]),
        (BLOB, (412, "ConditionNotMet", ""), E::Conflict, &[]),
        (BLOB, (304, "ConditionNotMet", ""), E::Conflict, &[]),
        (CONTAINER, (409, "ContainerAlreadyExists", ""), E::Conflict, &[]),
        (BLOB, (412, "LeaseIdMissing", ""), E::Unavailable, &["lease break"]),
        (BLOB, (404, "BlobNotFound", ""), E::NotFound, &[]),
        (
            QUEUE,
            (404, "QueueNotFound", ""),
            E::NotFound,
            &["az storage queue create --name work --account-name thumbs --auth-mode login"],
        ),
        (
            CONTAINER,
            (404, "ContainerNotFound", ""),
            E::NotFound,
            &["az storage container create --name pictures --account-name thumbs --auth-mode login"],
        ),
        (BLOB, (404, "ContainerNotFound", ""), E::NotFound, &["az storage container create"]),
        (BLOB, (409, "BlobImmutableDueToPolicy", ""), E::Denied, &["immutability policy or a legal hold"]),
        (BLOB, (409, "BlobImmutableDueToLegalHold", ""), E::Denied, &["immutability policy or a legal hold"]),
        (BLOB, (409, "SnapshotsPresent", ""), E::Denied, &["it has snapshots"]),
        (BLOB, (409, "BlobArchived", ""), E::Denied, &["archive tier"]),
        (BLOB, (409, "InvalidBlobType", ""), E::Denied, &["something else of this name"]),
        (BLOB, (409, "NotHeardOfYet", ""), E::Invalid, &["The service's words."]),
        (QUEUE, (409, "QueueBeingDeleted", ""), E::Unavailable, &["being deleted"]),
        (BLOB, (409, "ContainerBeingDeleted", ""), E::Unavailable, &["being deleted"]),
        (QUEUE, (409, "QueueDisabled", ""), E::Unavailable, &[]),
        (CONTAINER, (409, "ContainerDisabled", ""), E::Unavailable, &[]),
        (QUEUE, (413, "RequestBodyTooLarge", ""), E::TooLarge, &[]),
        (QUEUE, (400, "MessageTooLarge", ""), E::TooLarge, &[]),
        (QUEUE, (503, "ServerBusy", ""), E::Unavailable, &["busy"]),
        (QUEUE, (429, "TooManyRequests", ""), E::Unavailable, &["busy"]),
        (QUEUE, (500, "OperationTimedOut", ""), E::TimedOut, &["may have been applied"]),
        (QUEUE, (503, "OperationTimedOut", ""), E::TimedOut, &["may have been applied"]),
        (QUEUE, (500, "InternalError", ""), E::TimedOut, &[]),
        (QUEUE, (502, "BadGateway", ""), E::TimedOut, &[]),
        (QUEUE, (504, "GatewayTimeout", ""), E::TimedOut, &[]),
    ] {
        // A 304 has no body, so its XML is never read.
        check(Way::Key, target, answer, kind, expected).await;
    }
}

#[tokio::test]
async fn a_refusal_names_the_cure() {
    let denied = ErrorKind::Denied;
    let outdated = "<AuthenticationErrorDetail>Signature not valid in the specified time frame: Start [x] - Expiry [y] - \
                    Current [z]</AuthenticationErrorDetail>";
    for (way, target, answer, expected) in [
        (
            Way::Identity,
            QUEUE,
            (403, "AuthorizationPermissionMismatch", ""),
            &["Storage Queue Data Contributor", "Message Processor is not enough", "account thumbs"][..],
        ),
        (
            Way::Identity,
            BLOB,
            (403, "AuthorizationPermissionMismatch", ""),
            &["Storage Blob Data Contributor", "account thumbs"],
        ),
        (
            Way::Identity,
            CONTAINER,
            (403, "AuthorizationFailure", ""),
            &["Storage Blob Data Contributor", "firewall"],
        ),
        (
            Way::Identity,
            Target::Account,
            (403, "AuthorizationPermissionMismatch", ""),
            &["Storage Queue Data Contributor", "Storage Blob Data Contributor"],
        ),
        (Way::Identity, QUEUE, (401, "InvalidAuthenticationInfo", ""), &["tenant"]),
        (
            Way::Key,
            QUEUE,
            (403, "KeyBasedAuthenticationNotPermitted", ""),
            &["azure:thumbs", "managed identity"],
        ),
        (Way::Key, QUEUE, (403, "AuthenticationFailed", ""), &["key is wrong"]),
        (Way::Key, QUEUE, (403, "AuthorizationFailure", ""), &["firewall of account thumbs"]),
        (Way::Key, QUEUE, (403, "AccountIsDisabled", ""), &["thumbs is disabled"]),
        (Way::Sas, QUEUE, (403, "AuthenticationFailed", outdated), &["SAS has expired"]),
        (Way::Sas, QUEUE, (403, "AuthenticationFailed", ""), &["SAS is not valid"]),
        (Way::Sas, BLOB, (403, "AuthorizationPermissionMismatch", ""), &["SAS does not permit", "rwdlacup"]),
        (Way::Sas, BLOB, (403, "AuthorizationResourceTypeMismatch", ""), &["SAS does not permit"]),
        (Way::Sas, QUEUE, (403, "AuthorizationFailure", ""), &["firewall"]),
        (Way::Sas, QUEUE, (403, "KeyBasedAuthenticationNotPermitted", ""), &["managed identity"]),
    ] {
        check(way, target, answer, denied, expected).await;
    }
}

#[tokio::test]
async fn a_clock_that_is_off_is_blamed_with_by_how_much() {
    let hour = Duration::from_secs(3600 + 30);
    let (behind, ahead) = (clock::wall_now() + hour, clock::wall_now() - hour);
    for (way, date, expected) in [
        (Way::Key, behind, "clock is 60 minutes behind"),
        (Way::Sas, ahead, "clock is 60 minutes ahead of"),
        (Way::Identity, ahead, "clock is 60 minutes ahead of"),
    ] {
        let answer = refusal(403, "AuthenticationFailed", "", date);
        let server = TestServer::start(move |_| Reply::Bytes(answer.clone())).await;
        let error = call(&access(way, &server.address.to_string()), QUEUE).await;
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(text.contains(expected) && text.contains("chrony/NTP"), "{text}");
    }
}

#[tokio::test]
async fn an_answer_without_a_text_is_explained_by_its_status() {
    for (status, kind) in [
        (400, ErrorKind::Invalid),
        (403, ErrorKind::Denied),
        (404, ErrorKind::NotFound),
        (408, ErrorKind::TimedOut),
        (413, ErrorKind::TooLarge),
        (500, ErrorKind::TimedOut),
        (503, ErrorKind::Unavailable),
    ] {
        for body in ["", "<html>without a code</html>"] {
            let server = TestServer::start(move |_| Reply::answer(status, "x-ms-version: 1\r\n", body)).await;
            let error = call(&access(Way::Key, &server.address.to_string()), QUEUE).await;
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().ends_with(&format!("({status})")), "{error}");
        }
    }
}

#[tokio::test]
async fn only_a_missing_queue_or_container_is_a_parent() {
    for (target, code, parent) in
        [(BLOB, "ContainerNotFound", true), (QUEUE, "QueueNotFound", true), (BLOB, "BlobNotFound", false)]
    {
        let answer = refusal(404, code, "", clock::wall_now());
        let server = TestServer::start(move |_| Reply::Bytes(answer.clone())).await;
        let error = call(&access(Way::Key, &server.address.to_string()), target).await;
        assert_eq!(is_parent(&error), parent, "{error}");
    }
}

/// A proxy's 404 does not prove that the service lacks the object, but a proxy's overload proves
/// that nothing was done.
#[tokio::test]
async fn only_the_services_own_refusals_are_believed() {
    for (status, kind) in [
        (302, ErrorKind::TimedOut),
        (400, ErrorKind::TimedOut),
        (403, ErrorKind::TimedOut),
        (404, ErrorKind::TimedOut),
        (409, ErrorKind::TimedOut),
        (412, ErrorKind::TimedOut),
        (429, ErrorKind::Unavailable),
        (502, ErrorKind::TimedOut),
        (503, ErrorKind::Unavailable),
    ] {
        let server = TestServer::start(move |_| Reply::answer(status, "", "<html>some proxy</html>")).await;
        for target in [QUEUE, BLOB] {
            let error = call(&access(Way::Key, &server.address.to_string()), target).await;
            assert_eq!(error.kind(), kind, "{status}: {error}");
        }
    }
}

/// A network's login page answers every request with 200, and none of them was carried out.
#[tokio::test]
async fn a_success_that_is_not_the_services_is_no_success() {
    let server =
        TestServer::start(|_| Reply::answer(200, "", "<html>sign in to the hotel's network</html>")).await;
    let access = access(Way::Key, &server.address.to_string());
    let queue = access.queue("work").expect("a queue client");
    let deleted = bounded("complete", QUEUE, LIMIT, queue.delete_message("id", "receipt", None)).await;
    let error = deleted.map(drop).expect_err("no answer of the service's");
    assert!(error.kind() == ErrorKind::TimedOut && error.message().contains("proxy"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_not_understood_is_an_error() {
    let server = TestServer::start(|_| Reply::answer(200, "x-ms-version: 2099-01-01\r\n", "{}")).await;
    let access = access(Way::Key, &server.address.to_string());
    let queue = access.queue("work").expect("a queue client");
    let received = async { queue.receive_messages(None).await?.into_model() };
    let error = bounded("receive", QUEUE, LIMIT, received).await.map(drop).expect_err("no XML");
    assert!(error.kind() == ErrorKind::Internal && error.message().contains("parsed"), "{error}");
}

#[tokio::test]
async fn a_name_that_is_nowhere_may_be_a_hiccup_or_a_typing_error() {
    let error = call(&access(Way::Key, "nobody.queue.invalid:80"), QUEUE).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.message().contains("nobody.queue.invalid") && error.message().contains("name right?"),
        "{error}"
    );
}

#[tokio::test]
async fn nothing_was_sent_when_the_connection_was_refused() {
    let address = unused_address();
    let error = call(&access(Way::Key, &address.to_string()), QUEUE).await;
    assert!(error.kind() == ErrorKind::Unavailable && error.message().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_broken_connection_may_have_applied_the_request() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\nx-ms-version: 1\r\netag: \"1\"\r\ncontent-range: bytes 0-99/100\r\n\
                last-modified: Fri, 09 Oct 2009 21:04:30 GMT\r\n\r\nhalf";
    for (target, sent) in [(QUEUE, ""), (QUEUE, "HTTP/1.1 20"), (BLOB, half)] {
        let server = TestServer::start(move |_| Reply::End(sent.to_owned())).await;
        let error = call(&access(Way::Key, &server.address.to_string()), target).await;
        assert!(
            error.kind() == ErrorKind::TimedOut && error.message().contains("broke off"),
            "{sent:?}: {error}"
        );
    }
}

#[tokio::test]
async fn a_silent_server_is_waited_for_no_longer_than_the_limit() {
    let server = TestServer::start(|_| Reply::Silence).await;
    let access = access(Way::Key, &server.address.to_string());
    let queue = access.queue("work").expect("a queue client");
    let limit = Duration::from_millis(100);
    let error = bounded("look", QUEUE, limit, queue.get_properties(None)).await.expect_err("no answer");
    assert!(error.kind() == ErrorKind::TimedOut && error.message().contains("100ms"), "{error}");
}

#[tokio::test]
async fn a_name_that_no_header_can_carry_is_invalid() {
    let server = TestServer::start(|_| Reply::answer(200, "x-ms-version: 1\r\n", "")).await;
    let access = access(Way::Key, &server.address.to_string());
    let queue = access.queue("work").expect("a queue client");
    let metadata = std::collections::HashMap::from([("owner".to_owned(), "a\nb".to_owned())]);
    let error =
        bounded("set", QUEUE, LIMIT, queue.set_metadata(&metadata, None)).await.expect_err("a line break");
    assert!(error.kind() == ErrorKind::Invalid && server.requests().is_empty(), "{error}");
}

/// Everything that a program could print about an error.
fn everything(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let _ = write!(text, "{error}\n{error:?}\n{error:#?}\n");
        cause = error.source();
    }
    text
}

#[track_caller]
fn assert_no_secret(text: &str) {
    for secret in [KEY, SIGNATURE, "c2VjcmV0LXNpZ25hdHVyZQ", TOKEN, "sig=c2Vj", "SharedKey thumbs"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

/// All log output, through `tracing` or through `log`.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }
}

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl log::Log for CapturedLog {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        use io::Write as _;
        let _ = writeln!(self.clone(), "{} {}", record.target(), record.args());
    }

    fn flush(&self) {}
}

/// The one logger of this process, since `log` allows no other.
fn logger() -> &'static CapturedLog {
    static LOGGER: OnceLock<CapturedLog> = OnceLock::new();
    let captured = LOGGER.get_or_init(CapturedLog::default);
    log::set_logger(captured).expect("the first logger");
    log::set_max_level(log::LevelFilter::Trace);
    captured
}

#[tokio::test]
async fn no_secret_is_in_any_error_or_log() {
    let (traced, logged) = (CapturedLog::default(), logger());
    let writer = traced.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // The threads of other tests have no subscriber. If there were only one, tracing would ask such a
    // thread whether a line is enabled, and keep its answer for every thread.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let guard = tracing::subscriber::set_default(subscriber);

    let quoted = format!(
        "<AuthenticationErrorDetail>The MAC signature found in the HTTP request '{SIGNATURE}' or '{TOKEN}' is not the same \
         as any computed signature.</AuthenticationErrorDetail>"
    );
    let refused = refusal(403, "AuthenticationFailed", &quoted, clock::wall_now());
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\nx-ms-version: 1\r\netag: \"1\"\r\ncontent-range: bytes 0-99/100\r\n\
                last-modified: Fri, 09 Oct 2009 21:04:30 GMT\r\n\r\nhalf";
    for way in [Way::Key, Way::Sas, Way::Identity] {
        for body in [Some(refused.clone()), Some(String::new()), Some(half.to_owned()), None] {
            let reply = move |_: &str| body.clone().map_or(Reply::Silence, Reply::End);
            let server = TestServer::start(reply).await;
            let access = access(way, &server.address.to_string());
            assert_no_secret(&format!("{access:?}{access:#?}"));
            let container = access.container("pictures").expect("a container client");
            // The SDK's own error too, which other code might print one day.
            let blob = container.blob_client("in/1.png");
            let raw = async { blob.download(None).await?.body.collect().await };
            // A silent server has the request soon, and never answers.
            let unanswered = async {
                while server.requests().is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            };
            let answer = tokio::select! {
                answer = raw => Some(answer),
                () = unanswered => None,
            };
            match answer {
                Some(Err(raw)) => {
                    if !matches!(raw.kind(), SdkKind::HttpResponse { .. }) {
                        assert_no_secret(&everything(&raw));
                    }
                    assert_no_secret(&everything(&failure("try it", BLOB, raw)));
                }
                Some(Ok(_)) => panic!("no success"),
                None => {}
            }
            let sent = server.requests().concat();
            assert!(sent.contains("SharedKey") || sent.contains(SIGNATURE) || sent.contains(TOKEN), "{sent}");
            drop(server);
            assert_no_secret(&everything(&call(&access, QUEUE).await));
        }
        let error = call(&access(way, "nobody.queue.invalid:80"), QUEUE).await;
        assert_no_secret(&everything(&error));
    }

    drop(guard);
    let (traced, logged) = (traced.text(), logged.text());
    assert!(traced.contains("x-ms-version"), "the SDK's requests are traced: {traced}");
    assert!(logged.contains("reqwest"), "the HTTP client's connections are logged: {logged}");
    assert_no_secret(&traced);
    assert_no_secret(&logged);
}
