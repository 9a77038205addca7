//! The order in which identities are tried, and the error when none gives a token. A local server
//! replaces the metadata service, which has a fixed address.

use std::ffi::OsStr;
use std::io;
use std::process::{ExitStatus, Output};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, Request};
use reprieve_core::clock;
use tokio::time::Instant;

use super::super::{STORAGE, metadata};
use super::*;
use crate::test_server::{Reply, TestServer};

const CLIENT_ID: &str = "7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11";

/// Redirects requests for the metadata service's address to another one.
#[derive(Debug)]
struct Detour {
    http: reqwest::Client,
    to: std::net::SocketAddr,
}

#[async_trait]
impl HttpClient for Detour {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let mut request = request.clone();
        assert_eq!(request.url().host_str(), Some("169.254.169.254"));
        let url = request.url_mut();
        url.set_ip_host(self.to.ip()).expect("an address");
        url.set_port(Some(self.to.port())).expect("a port");
        self.http.execute_request(&request).await
    }
}

/// Replaces the shell, in which the Azure CLI would run, or be missing.
#[derive(Debug)]
struct Shell {
    answer: Option<String>,
    asked: AtomicUsize,
}

impl Shell {
    fn with(answer: Option<String>) -> Arc<Self> {
        Arc::new(Self { answer, asked: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Executor for Shell {
    async fn run(&self, _: &OsStr, _: &[&OsStr]) -> io::Result<Output> {
        use std::os::unix::process::ExitStatusExt as _;
        self.asked.fetch_add(1, SeqCst);
        let code = if self.answer.is_some() { 0 } else { 127 << 8 };
        Ok(Output {
            status: ExitStatus::from_raw(code),
            stdout: self.answer.clone().unwrap_or_default().into_bytes(),
            stderr: Vec::new(),
        })
    }
}

fn in_an_hour() -> u64 {
    let now = clock::unix_millis() / 1000;
    u64::try_from(now).expect("after 1970") + 3600
}

fn token_of_the_metadata_service() -> Reply {
    let body = format!(
        r#"{{"access_token":"of-the-vm","refresh_token":"","expires_in":"3599","expires_on":"{}","not_before":"0","resource":"https://storage.azure.com","token_type":"Bearer"}}"#,
        in_an_hour()
    );
    Reply::answer(200, "content-type: application/json\r\n", &body)
}

fn token_of_the_cli() -> String {
    format!(r#"{{"accessToken":"of-a-person","expires_on":{},"tokenType":"Bearer"}}"#, in_an_hour())
}

/// The chain of this machine, with the metadata service at `to`.
fn chain(client_id: Option<&str>, to: std::net::SocketAddr, azure_vm: bool, shell: &Arc<Shell>) -> Chain {
    let http = Arc::new(Detour { http: metadata::client(azure_vm).expect("a client"), to });
    Chain::new(
        STORAGE,
        vec![
            Identity::Workload { client_id: None, options: Box::default() },
            Identity::Managed { client_id: client_id.map(str::to_owned), http, azure_vm },
            Identity::Cli { executor: Some(shell.clone()) },
        ],
    )
}

#[tokio::test]
async fn a_managed_identity_is_asked_as_the_service_wants_it() {
    let server = TestServer::start(|_| token_of_the_metadata_service()).await;
    let shell = Shell::with(Some(token_of_the_cli()));
    let chain = chain(Some(CLIENT_ID), server.address, false, &shell);
    for _ in 0..2 {
        let token = chain.token().await.expect("a token");
        assert_eq!(token.token.secret(), "of-the-vm");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "each token is a new one");
    let (line, headers) = requests[0].split_once("\r\n").expect("a request line");
    assert!(line.starts_with("GET /metadata/identity/oauth2/token?"), "{line}");
    assert!(line.contains("resource=https%3A%2F%2Fstorage.azure.com&"), "{line}");
    assert!(line.contains(&format!("client_id={CLIENT_ID}")), "{line}");
    assert!(headers.to_ascii_lowercase().contains("metadata: true"), "{headers}");
    assert_eq!(shell.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn without_a_metadata_service_the_azure_cli_is_tried_at_once() {
    let unused =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
    let shell = Shell::with(Some(token_of_the_cli()));
    let chain = chain(None, unused, false, &shell);
    let began = Instant::now();
    assert_eq!(chain.token().await.expect("a token").token.secret(), "of-a-person");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The first that works is kept: the metadata service is not tried again.
    let server = TestServer::start(|_| token_of_the_metadata_service()).await;
    chain.token().await.expect("a token");
    assert_eq!((shell.asked.load(SeqCst), server.requests().len()), (2, 0));
}

#[tokio::test]
async fn a_server_that_never_answers_delays_a_laptop_for_seconds_only() {
    let server = TestServer::start(|_| Reply::Silence).await;
    let shell = Shell::with(Some(token_of_the_cli()));
    let began = Instant::now();
    let token = chain(None, server.address, false, &shell).token().await.expect("a token");
    assert_eq!(token.token.secret(), "of-a-person");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_azure_vm_waits_for_its_metadata_service() {
    let calls = AtomicUsize::new(0);
    let server = TestServer::start(move |_| match calls.fetch_add(1, SeqCst) {
        0 => Reply::End(String::new()),
        1 => Reply::answer(429, "", ""),
        _ => token_of_the_metadata_service(),
    })
    .await;
    let shell = Shell::with(Some(token_of_the_cli()));
    let token = chain(None, server.address, true, &shell).token().await.expect("a token");
    assert_eq!(token.token.secret(), "of-the-vm");
    assert_eq!((server.requests().len(), shell.asked.load(SeqCst)), (3, 0));
}

#[tokio::test]
async fn when_every_identity_fails_one_error_gives_each_reason_and_the_remedy() {
    let server = TestServer::start(|_| Reply::answer(400, "", r#"{"error":"invalid_request"}"#)).await;
    let shell = Shell::with(None);
    let error = chain(None, server.address, false, &shell).token().await.expect_err("no identity");
    let text = error.to_string();
    for words in [
        "workload identity: AZURE_FEDERATED_TOKEN_FILE",
        "managed identity: The requested identity has not been assigned",
        "Azure CLI: az not found on PATH",
        "assign a managed identity",
        "client_id",
        "az login",
    ] {
        assert!(text.contains(words), "nothing of {words:?} in {text}");
    }
    assert!(!error.may_pass() && !text.contains('\n') && !text.contains("troubleshoot"), "{text}");
}

/// Otherwise a worker on a developer's VM would continue as that developer after a temporary
/// failure.
#[tokio::test]
async fn no_other_identity_replaces_one_that_exists_but_can_not_answer_now() {
    let server = TestServer::start(|_| Reply::answer(200, "", "no JSON")).await;
    let broken = chain(None, server.address, false, &Shell::with(Some(token_of_the_cli())));
    // The answer is invalid, so the service counts as absent and the next identity is tried.
    assert_eq!(broken.token().await.expect("a token").token.secret(), "of-a-person");

    let server = TestServer::start(|_| Reply::answer(501, "", "")).await;
    let shell = Shell::with(Some(token_of_the_cli()));
    let asking = chain(None, server.address, true, &shell);
    let patience = Duration::from_secs(3);
    assert!(timeout(patience, asking.token()).await.is_err(), "the service is asked again for a minute");
    assert_eq!(shell.asked.load(SeqCst), 0);
}

/// The SDK retries it for a minute, and does not say what it retries.
#[tokio::test]
async fn what_the_metadata_service_answers_is_known_while_it_is_asked_again() {
    let server = TestServer::start(|_| Reply::answer(501, "", "")).await;
    let http = Arc::new(Detour { http: metadata::client(true).expect("a client"), to: server.address });
    let listening = Listening::new(http);
    assert_eq!(listening.refusal(), None);
    let url = "http://169.254.169.254/metadata/identity/oauth2/token".parse().expect("a URL");
    let answer = listening.execute_request(&Request::new(url, azure_core::http::Method::Get)).await;
    assert_eq!(u16::from(answer.expect("an answer").status()), 501);
    assert_eq!(listening.refusal(), Some(501));
}

#[test]
fn a_persons_login_is_no_identity_that_was_chosen() {
    let names = |client_id: Option<&str>| {
        let chain =
            Chain::of_this_machine(STORAGE, client_id.map(str::to_owned), CloudConfiguration::AzurePublic);
        chain.expect("a chain").identities.iter().map(Identity::name).collect::<Vec<_>>()
    };
    assert_eq!(names(None), ["workload identity", "managed identity", "Azure CLI"]);
    assert_eq!(names(Some(CLIENT_ID)), ["workload identity", "managed identity"]);
}

#[tokio::test]
async fn a_credential_of_the_programs_own_is_the_only_one_asked() {
    #[derive(Debug)]
    struct Nothing;
    #[async_trait]
    impl TokenCredential for Nothing {
        async fn get_token(
            &self,
            scopes: &[&str],
            _: Option<azure_core::credentials::TokenRequestOptions<'_>>,
        ) -> azure_core::Result<AccessToken> {
            assert_eq!(scopes, ["https://storage.azure.com/.default"]);
            Err(azure_core::Error::with_message(
                azure_core::error::ErrorKind::Credential,
                "the safe is locked",
            ))
        }
    }
    let error = Chain::of(STORAGE, Arc::new(Nothing)).token().await.expect_err("no token");
    assert_eq!(error.to_string(), "no identity gave a token: own credential: the safe is locked");
}
