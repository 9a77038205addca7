//! Tokens of managed identities, requested over plain HTTP and by the SDK's own credential.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::TokenCredential;
use azure_core::http::{AsyncRawResponse, ClientOptions, HttpClient, Request, Transport};
use azure_identity::{ManagedIdentityCredential, ManagedIdentityCredentialOptions, UserAssignedId};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use reprieve_core::clock;
use reprieve_sim::metadata::{Config, Endpoint, FaultRule, MetadataServer};
use serde_json::Value;

use crate::support::{ME, server};

const STORAGE: &str = "https://storage.azure.com/.default";

/// Redirects requests for the metadata service's address to the mock.
#[derive(Debug)]
struct Detour {
    http: reqwest::Client,
    to: SocketAddr,
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

fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

/// The SDK's own credential.
fn credential(server: &MetadataServer, client_id: Option<&str>) -> Arc<ManagedIdentityCredential> {
    let detour = Detour { http: http(), to: server.addr() };
    let options = ManagedIdentityCredentialOptions {
        user_assigned_id: client_id.map(|id| UserAssignedId::ClientId(id.to_owned())),
        client_options: ClientOptions {
            transport: Some(Transport::new(Arc::new(detour))),
            ..ClientOptions::default()
        },
    };
    ManagedIdentityCredential::new(Some(options)).expect("a credential")
}

/// Decodes the second part of a token.
fn claims(token: &str) -> Value {
    let parts: Vec<_> = token.split('.').collect();
    let [head, claims, signature] = parts[..] else { panic!("{token}") };
    let read = |part: &str| -> Value {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).expect("base64")).expect("JSON")
    };
    assert_eq!((read(head)["alg"].as_str(), signature), (Some("none"), ""));
    read(claims)
}

#[tokio::test]
async fn the_sdks_credential_gets_a_token() {
    let config = Config { token_lifetime: Duration::from_secs(7200), ..Config::with_vms([ME]) };
    let server = MetadataServer::start(config).await.expect("a mock");
    let token = credential(&server, None).get_token(&[STORAGE], None).await.expect("a token");
    let claims = claims(token.token.secret());
    assert_eq!(claims["aud"], "https://storage.azure.com");
    assert_eq!(claims["oid"], server.state().vms[0].vm_id.as_str());
    let expires = token.expires_on.unix_timestamp();
    assert_eq!(claims["exp"], expires);
    let left = expires - clock::unix_millis() / 1000;
    assert!((7100..=7200).contains(&left), "{left}");
}

#[tokio::test]
async fn the_sdks_credential_chooses_an_identity_and_waits_out_a_bad_moment() {
    const CLIENT: &str = "7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11";
    let server = server().await;
    let rule = FaultRule {
        endpoint: Endpoint::Identity,
        kind: "500".to_owned(),
        vm: None,
        version: None,
        requests: Some(1),
        lasts: None,
        after: None,
        words: None,
    };
    server.add_fault(&rule).expect("a rule");
    let token = credential(&server, Some(CLIENT)).get_token(&[STORAGE], None).await.expect("a token");
    assert_eq!(claims(token.token.secret())["appid"], CLIENT);
    assert_eq!(server.state().faults, [], "the fault was used up");
}

#[tokio::test]
async fn a_token_is_written_as_documented() {
    let server = server().await;
    let url = |query: &str| format!("{}/metadata/identity/oauth2/token?{query}", server.url());
    let get = async |query: &str, header: bool| {
        let mut request = http().get(url(query));
        if header {
            request = request.header("Metadata", "true");
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.expect("JSON"))
    };
    let good = "api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com%2F";
    let (status, token) = get(good, true).await;
    assert_eq!(status, 200);
    assert_eq!(token["resource"], "https://storage.azure.com/");
    assert_eq!((&token["token_type"], &token["refresh_token"]), (&"Bearer".into(), &"".into()));
    assert_eq!(token["expires_in"], "3599");
    for number in ["expires_in", "expires_on", "not_before"] {
        token[number].as_str().and_then(|text| text.parse::<i64>().ok()).expect("a number in a string");
    }
    let missing = "bad_request_102";
    for (query, header, error) in [
        (good, false, missing),
        ("api-version=2018-02-01", true, "invalid_request"),
        ("resource=x", true, "bad_request"),
        ("api-version=2017-01-01&resource=x", true, "bad_request"),
        ("api-version=2019-08-01&resource=x&client_id=a&object_id=b", true, "invalid_request"),
    ] {
        let (status, body) = get(query, header).await;
        assert_eq!((status, body["error"].as_str()), (400, Some(error)), "{query}");
        assert!(!body["error_description"].as_str().expect("words").is_empty(), "{query}");
    }
    let (_, body) = get(good, false).await;
    assert_eq!(body["error_description"], "Required metadata header not specified");
}
