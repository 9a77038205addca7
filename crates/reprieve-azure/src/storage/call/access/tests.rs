//! Every way to sign in, on a real Azurite, which verifies every signature; and the addresses that
//! are refused before anything is sent.

use std::collections::HashMap;
use std::time::Duration;

use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::hmac::hmac_sha256;
use azure_core::http::RequestContent;
use azure_core::time::OffsetDateTime;
use azure_storage_blob::models::{
    BlobClientDownloadOptions, BlobClientGetPropertiesResultHeaders as _, BlobClientUploadOptions,
    BlobContainerClientListBlobsOptions,
};
use azure_storage_queue::models::{QueueClientReceiveMessagesOptions, QueueMessage};
use futures_util::TryStreamExt as _;
use reprieve_core::clock;
use uuid::Uuid;

use super::super::failure::bounded;
use super::*;
use crate::storage::account::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};

/// The limit of one call to Azurite on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Azurite's address; `None`, with a printed notice, where there is none.
#[expect(clippy::disallowed_methods, reason = "the test runner sets Azurite's address in the environment")]
fn azurite(variable: &str) -> Option<Address> {
    let text = std::env::var(variable).ok();
    if text.is_none() {
        assert!(std::env::var("REPRIEVE_TESTS_NEED_AZURITE").is_err(), "{variable} is not set");
        eprintln!("{variable} is not set: this test saw nothing");
    }
    text.map(|text| Address::parse(&text).expect(variable))
}

/// Makes the same calls for every way to sign in, each of which signs differently.
async fn tour(access: &Access) {
    access.ready().await.expect("ready");
    let name = format!("test-{}", Uuid::now_v7());
    tour_of_a_queue(access, &name).await;
    tour_of_a_container(access, &name).await;
}

fn metadata() -> HashMap<String, String> {
    HashMap::from([("owner".to_owned(), "a  b".to_owned()), ("zeta".to_owned(), "1".to_owned())])
}

async fn tour_of_a_queue(access: &Access, name: &str) {
    let queue = access.queue(name).expect("a queue client");
    let target = Target::Queue(name);
    bounded("create", target, LIMIT, queue.create(None)).await.expect("create a queue");
    let metadata = metadata();
    bounded("set", target, LIMIT, queue.set_metadata(&metadata, None)).await.expect("set a queue's metadata");
    let text = QueueMessage { message_text: Some("<é>&".to_owned()) };
    let sent = bounded("send", target, LIMIT, queue.send_message(text.try_into().expect("XML"), None)).await;
    sent.expect("send");
    let options = QueueClientReceiveMessagesOptions {
        number_of_messages: Some(32),
        visibility_timeout: Some(60),
        ..QueueClientReceiveMessagesOptions::default()
    };
    let received =
        bounded("receive", target, LIMIT, queue.receive_messages(Some(options))).await.expect("receive");
    let message = received.into_model().expect("XML").items.expect("items").pop().expect("one message");
    assert_eq!(message.message_text.as_deref(), Some("<é>&"));
    let (id, receipt) = (message.message_id.expect("an id"), message.pop_receipt.expect("a receipt"));
    // Without a body, and with a receipt that contains '+', '/' and '='.
    let renewed =
        bounded("renew", target, LIMIT, queue.update_message(&id, &receipt, 60, None)).await.expect("renew");
    assert!(renewed.headers().iter().any(|(name, _)| name.as_str() == "x-ms-popreceipt"));
    let stale = bounded("complete", target, LIMIT, queue.delete_message(&id, &receipt, None)).await;
    assert_eq!(stale.expect_err("a stale receipt").kind(), ErrorKind::LeaseLost);
    bounded("delete", target, LIMIT, queue.delete(None)).await.expect("delete a queue");
    let gone = bounded("look", target, LIMIT, queue.get_properties(None)).await.expect_err("a missing queue");
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
}

async fn tour_of_a_container(access: &Access, name: &str) {
    let (blob, metadata) = ("a b/é#?%25+.json", metadata());
    let container = access.container(name).expect("a container client");
    let target = Target::Container(name);
    bounded("create", target, LIMIT, container.create(None)).await.expect("create a container");
    let again = bounded("create", target, LIMIT, container.create(None)).await.expect_err("it is there");
    assert_eq!(again.kind(), ErrorKind::Conflict, "{again}");
    let client = container.blob_client(blob);
    let target = Target::Blob(blob);
    let options = BlobClientUploadOptions {
        if_none_match: Some("*".into()),
        metadata: Some(metadata.clone()),
        blob_content_type: Some("application/json".to_owned()),
        ..BlobClientUploadOptions::default()
    };
    let body = RequestContent::from(b"0123456789".to_vec());
    let put = bounded("put", target, LIMIT, client.upload(body, Some(options))).await.expect("put");
    let options =
        BlobClientUploadOptions { if_none_match: Some("*".into()), ..BlobClientUploadOptions::default() };
    let body = RequestContent::from(b"x".to_vec());
    let again =
        bounded("put", target, LIMIT, client.upload(body, Some(options))).await.expect_err("it exists");
    assert_eq!(again.kind(), ErrorKind::Conflict, "{again}");
    let found = bounded("inspect", target, LIMIT, client.get_properties(None)).await.expect("inspect");
    assert_eq!(found.metadata().expect("metadata"), metadata);
    let options =
        BlobClientDownloadOptions { range: Some((3..6_u64).into()), ..BlobClientDownloadOptions::default() };
    let part = bounded("get", target, LIMIT, client.download(Some(options))).await.expect("get a range");
    assert_eq!(&bounded("get", target, LIMIT, part.body.collect()).await.expect("its bytes")[..], b"345");
    let options = BlobClientUploadOptions { if_match: put.etag, ..BlobClientUploadOptions::default() };
    let empty = RequestContent::from(Vec::new());
    bounded("put", target, LIMIT, client.upload(empty, Some(options)))
        .await
        .expect("put nothing, conditionally");

    // Large enough for a block list.
    let large = vec![7; 9 << 20];
    let client = container.blob_client("large");
    let put = bounded("put", target, LIMIT, client.upload(RequestContent::from(large.clone()), None)).await;
    put.expect("put in blocks");
    let got = bounded("get", target, LIMIT, client.download(None)).await.expect("get");
    assert!(bounded("get", target, LIMIT, got.body.collect()).await.expect("its bytes")[..] == large[..]);

    let options = BlobContainerClientListBlobsOptions {
        prefix: Some("a b/".to_owned()),
        maxresults: Some(1),
        ..BlobContainerClientListBlobsOptions::default()
    };
    let pager = container.list_blobs(Some(options)).expect("a list");
    let listed: Vec<_> = bounded("list", target, LIMIT, pager.try_collect()).await.expect("list");
    assert_eq!(listed.iter().map(|item| item.name.as_deref()).collect::<Vec<_>>(), [Some(blob)]);
    bounded("delete", target, LIMIT, container.delete(None)).await.expect("delete a container");
}

/// <https://learn.microsoft.com/rest/api/storageservices/create-account-sas>
fn account_sas(until: &str) -> String {
    let (version, kinds, may) = ("2022-11-02", "sco", "rwdlacup");
    let signed = format!("{DEVELOPMENT_ACCOUNT}\n{may}\nbq\n{kinds}\n\n{until}\n\nhttps,http\n{version}\n\n");
    let signature = hmac_sha256(&signed, &Secret::new(DEVELOPMENT_KEY)).expect("a signature");
    let mut query = Url::parse("http://host/").expect("a URL");
    query
        .query_pairs_mut()
        .extend_pairs([("sv", version), ("ss", "bq"), ("srt", kinds), ("sp", may), ("se", until)])
        .extend_pairs([("spr", "https,http"), ("sig", &signature)]);
    query.query().expect("a query").to_owned()
}

fn with_sas(address: &Address, sas: &str) -> Address {
    let text = format!(
        "AccountName={};BlobEndpoint={};QueueEndpoint={};SharedAccessSignature={sas}",
        address.account, address.blobs, address.queues
    );
    Address::parse(&text).expect("a connection string")
}

/// A token that Azurite accepts: it checks every claim, but no signature.
#[derive(Debug)]
struct UnsignedToken;

#[async_trait::async_trait]
impl TokenCredential for UnsignedToken {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let now = OffsetDateTime::from(clock::wall_now());
        let until = now + Duration::from_secs(3600);
        let encode = |text: &str| {
            azure_core::base64::encode_url_safe(text.as_bytes()).trim_end_matches('=').to_owned()
        };
        let claims = serde_json::json!({
            "aud": scopes[0].trim_end_matches("/.default"),
            "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
            "iat": now.unix_timestamp(),
            "nbf": now.unix_timestamp() - 60,
            "exp": until.unix_timestamp(),
        });
        let head = encode(r#"{"alg":"none","typ":"JWT"}"#);
        Ok(AccessToken::new(format!("{head}.{}.c2ln", encode(&claims.to_string())), until))
    }
}

#[tokio::test]
async fn the_accounts_key_signs_whatever_is_asked() {
    let Some(address) = azurite("REPRIEVE_TEST_AZURITE") else { return };
    tour(&Access::open(&address).expect("an access")).await;
}

#[tokio::test]
async fn a_sas_is_sent_with_whatever_is_asked() {
    let Some(address) = azurite("REPRIEVE_TEST_AZURITE") else { return };
    let address = with_sas(&address, &account_sas("2099-01-01T00:00:00Z"));
    tour(&Access::open(&address).expect("an access")).await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test runner sets the CA's path in the environment")]
async fn a_token_is_sent_with_whatever_is_asked() {
    let Some(address) = azurite("REPRIEVE_TEST_AZURITE_HTTPS") else { return };
    let ca = std::env::var("REPRIEVE_TEST_AZURITE_CA").expect("the path of the CA");
    let address =
        address.with_ca(std::fs::read(ca).expect("a CA")).with_credential(std::sync::Arc::new(UnsignedToken));
    tour(&Access::open(&address).expect("an access")).await;
}

#[tokio::test]
async fn an_untrusted_authority_is_named_in_the_error() {
    let Some(address) = azurite("REPRIEVE_TEST_AZURITE_HTTPS") else { return };
    let access =
        Access::open(&address.with_credential(std::sync::Arc::new(UnsignedToken))).expect("an access");
    let queue = access.queue("untrusted").expect("a queue client");
    let error = bounded("look", Target::Queue("untrusted"), LIMIT, queue.get_properties(None)).await;
    let error = error.expect_err("an unknown authority");
    assert!(error.kind() == ErrorKind::Unavailable && error.message().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_wrong_key_and_an_expired_sas_have_different_errors() {
    let Some(address) = azurite("REPRIEVE_TEST_AZURITE") else { return };
    let mut stranger = address.clone();
    stranger.sign_in = SignIn::Key(Secret::new("d3Jvbmc="));
    let old = with_sas(&address, &account_sas("2020-01-01T00:00:00Z"));
    for (address, expected) in [(stranger, "key is wrong"), (old, "SAS")] {
        let queue = Access::open(&address).expect("an access").queue("nobody").expect("a queue client");
        let error = bounded("look", Target::Queue("nobody"), LIMIT, queue.get_properties(None)).await;
        let error = error.expect_err("no way in");
        assert!(error.kind() == ErrorKind::Denied && error.message().contains(expected), "{error}");
    }
}

#[test]
fn a_token_never_travels_unencrypted() {
    let text = "AccountName=a;BlobEndpoint=http://127.0.0.1:1/a;QueueEndpoint=https://127.0.0.1:2/a";
    let error = Access::open(&Address::parse(text).expect("an address")).expect_err("http");
    assert!(error.kind() == ErrorKind::Invalid && error.message().contains("https"), "{error}");
}

#[test]
fn certificates_that_are_none_are_refused_at_once() {
    let address = Address::parse("azure:mystorage")
        .expect("an address")
        .with_ca(b"-----BEGIN CERTIFICATE-----\n!".to_vec());
    assert_eq!(Access::open(&address).expect_err("no PEM").kind(), ErrorKind::Invalid);
}

/// A worker's jobs and its drain are on different runtimes. Neither may need a connection of the
/// other.
#[test]
fn every_runtime_has_connections_of_its_own() {
    use crate::test_server::{Reply, TestServer};
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let serving = tokio::runtime::Runtime::new().expect("a runtime");
    let server = serving.block_on(TestServer::start(|_| Reply::answer(200, "x-ms-version: 1\r\n", "")));
    let text = format!(
        "AccountName=a;AccountKey=a2V5;BlobEndpoint=http://{0}/a;QueueEndpoint=http://{0}/a",
        server.address
    );
    let access = Access::open(&Address::parse(&text).expect("an address")).expect("an access");
    let queue = access.queue("work").expect("a queue client");
    let look = || bounded("look", Target::Queue("work"), LIMIT, queue.get_properties(None));
    let jobs = runtime();
    jobs.block_on(look()).expect("an answer");
    // From here on no thread drives the connections of `jobs`.
    runtime().block_on(look()).expect("an answer all the same");
    drop(jobs);
    runtime().block_on(look()).expect("an answer all the same");
    assert_eq!(server.requests().len(), 3);
}
