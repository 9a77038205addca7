//! A cache with the tokens of a managed identity: a real Redis, whose users have the tokens of the metadata
//! service's mock as their passwords.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::http::{AsyncRawResponse, ClientOptions, HttpClient, Request, Transport};
use azure_identity::{ManagedIdentityCredential, ManagedIdentityCredentialOptions};
use reprieve::dependency::{CallError, Dependency as _};
use reprieve::redis::{Redis, RedisError, cmd};
use reprieve::{CacheIdentity, async_trait, testing};
use reprieve_azure::identity::Tokens;
use reprieve_sim::metadata::{Config, MetadataServer};
use reprieve_testkit::{RedisServer, until};

const LIMIT: Duration = Duration::from_secs(30);

/// So short that it is renewed several times: at half its life.
const LIFE: Duration = Duration::from_secs(6);

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
        let url = request.url_mut();
        url.set_ip_host(self.to.ip()).unwrap();
        url.set_port(Some(self.to.port())).unwrap();
        self.http.execute_request(&request).await
    }
}

/// The SDK's credential, and a server that accepts the last of its tokens alone.
#[derive(Debug)]
struct Granting {
    of_vm: Arc<ManagedIdentityCredential>,
    object_id: String,
    server: Arc<RedisServer>,
    granted: Arc<AtomicUsize>,
}

#[async_trait]
impl TokenCredential for Granting {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        assert_eq!(scopes, ["https://redis.azure.com/.default"]);
        let token = self.of_vm.get_token(scopes, options).await?;
        let password = format!(">{}", token.token.secret());
        self.server.command(&[
            "ACL",
            "SETUSER",
            &self.object_id,
            "resetpass",
            &password,
            "on",
            "~*",
            "&*",
            "+@all",
        ]);
        self.granted.fetch_add(1, SeqCst);
        Ok(token)
    }
}

#[tokio::test]
async fn connections_are_made_anew_with_the_next_token_before_their_own_ends() {
    let Some(server) = RedisServer::start().map(Arc::new) else { return };
    let config = Config { token_lifetime: LIFE, ..Config::with_vms(["me"]) };
    let metadata = MetadataServer::start(config).await.unwrap();
    let detour = Detour { http: reqwest::Client::builder().no_proxy().build().unwrap(), to: metadata.addr() };
    let of_vm = ManagedIdentityCredential::new(Some(ManagedIdentityCredentialOptions {
        client_options: ClientOptions {
            transport: Some(Transport::new(Arc::new(detour))),
            ..ClientOptions::default()
        },
        ..ManagedIdentityCredentialOptions::default()
    }))
    .unwrap();
    let object_id = metadata.state().vms[0].vm_id.clone();
    let granted = Arc::new(AtomicUsize::new(0));
    let granting = Granting {
        of_vm,
        object_id: object_id.clone(),
        server: Arc::clone(&server),
        granted: Arc::clone(&granted),
    };
    let tokens = Tokens::of(CacheIdentity::SCOPE, Arc::new(granting));
    let cache = Redis::open(&format!("redis://127.0.0.1:{}", server.port()))
        .unwrap()
        .with_identity(CacheIdentity::of(tokens))
        .unwrap();
    assert_eq!(cache.probe().await, Ok(()), "the first token is waited for");

    let handle = testing::dependency("cache", Arc::new(cache));
    let whoami: String = Redis::of(&handle).query(cmd("ACL").arg("WHOAMI")).await.unwrap();
    assert_eq!(whoami, object_id, "the user is the object id");
    let connection = async || -> Result<i64, CallError<RedisError>> {
        Redis::of(&handle).query(cmd("CLIENT").arg("ID")).await
    };
    let mut present = connection().await.unwrap();
    for round in 0..2 {
        let before = granted.load(SeqCst);
        let next = until("the connection is another", LIMIT, async || {
            Some(connection().await.unwrap()).filter(|id| *id != present)
        })
        .await;
        assert!(granted.load(SeqCst) > before, "round {round}: there was a newer token");
        // The token of the old one has ended; nothing is lost with it.
        server.command(&["CLIENT", "KILL", "ID", &present.to_string()]);
        assert_eq!(connection().await, Ok(next));
        present = next;
    }
}

#[test]
fn a_token_is_sent_to_another_machine_with_tls_alone() {
    let open = |url: &str| Redis::open(url).unwrap().with_identity(CacheIdentity::of_this_machine().unwrap());
    assert!(open("redis://a.redis.cache.windows.net:6379").unwrap_err().contains("TLS"));
    assert!(open("rediss://a.redis.cache.windows.net:6380").is_ok());
    let with_replica = open("rediss://a.redis.cache.windows.net:6380").unwrap();
    assert!(with_replica.with_replica("redis://a.redis.cache.windows.net:13001").is_err());
}
