//! Where a cache is, and how to sign in there.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, RedisError};
use tokio::time::timeout;

use crate::ANSWER_WITHIN;
use crate::identity::{Identity, SignIn};

/// How long a connection waits for a token that is not there yet. Its task goes on fetching it.
const TOKEN_WITHIN: Duration = Duration::from_secs(1);

/// An address, and the identity that signs in instead of the password in it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client,
    identity: Option<Arc<dyn Identity>>,
}

/// A connection, and the end of the token with which it signed in.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) calls: MultiplexedConnection,
    pub(crate) expires: Option<SystemTime>,
}

/// Returns the URL with what a password may not have in a URL as an escape. About half of the keys that Azure makes
/// have a `/`, and nobody thinks of `%2F`. Escapes that are there stay.
fn encoded(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // There is no @ after the host.
    let Some((user, host)) = rest.rsplit_once('@') else { return url.to_owned() };
    let escaped = |letter| match letter {
        '/' => "%2F".to_owned(),
        '?' => "%3F".to_owned(),
        '#' => "%23".to_owned(),
        '@' => "%40".to_owned(),
        '[' => "%5B".to_owned(),
        ']' => "%5D".to_owned(),
        ' ' => "%20".to_owned(),
        _ => String::from(letter),
    };
    let user: String = user.chars().map(escaped).collect();
    format!("{scheme}://{user}@{host}")
}

impl Endpoint {
    pub(crate) fn open(url: &str) -> Result<Self, String> {
        let refused = |_: RedisError| match url.split_once("://") {
            Some(_) => {
                "the URL can't be used; write rediss://:KEY@HOST:6380, with a port of at most 65535 and \
                        after it nothing, or / and the number of a database"
                    .to_owned()
            }
            None => "this is no URL; write rediss://:KEY@HOST:6380, also in place of a connection string of \
                     the form HOST:6380,password=KEY,ssl=True"
                .to_owned(),
        };
        let info = encoded(url).as_str().into_connection_info().map_err(refused)?;
        Ok(Self { client: Client::open(info).map_err(refused)?, identity: None })
    }

    /// Signs in with the identity's tokens. Refuses a connection without TLS to another machine, where a token could
    /// be read on its way.
    pub(crate) fn with_identity(self, identity: Arc<dyn Identity>) -> Result<Self, String> {
        if matches!(self.client.get_connection_info().addr(), ConnectionAddr::Tcp(..)) && !self.is_local() {
            return Err("an identity needs TLS: write rediss://HOST:6380".to_owned());
        }
        Ok(Self { identity: Some(identity), ..self })
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn identity(&self) -> Option<Arc<dyn Identity>> {
        self.identity.clone()
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
                host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
            ConnectionAddr::Unix(_) => true,
            _ => false,
        }
    }

    /// Waits for the identity's token, if there is an identity.
    pub(crate) async fn sign_in(&self) -> Result<Option<SignIn>, String> {
        let Some(identity) = &self.identity else { return Ok(None) };
        match timeout(TOKEN_WITHIN, identity.sign_in()).await {
            Ok(signed_in) => signed_in.map(Some).map_err(|why| format!("the identity has no token: {why}")),
            Err(_) => Err(format!("the identity has no token yet: none came within {TOKEN_WITHIN:?}")),
        }
    }

    /// Makes a connection that answers within 500 ms or fails. A failover need not close a connection, and without
    /// a limit each call on it would wait for as long as TCP repeats itself: 15 minutes.
    pub(crate) async fn connect(&self) -> Result<Connection, RedisError> {
        self.connect_within(Some(ANSWER_WITHIN)).await
    }

    /// Makes a connection that answers within this time or fails.
    pub(crate) async fn connect_within(&self, answer: Option<Duration>) -> Result<Connection, RedisError> {
        let (client, expires) = self.signed_in().await?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_WITHIN))
            .set_response_timeout(answer);
        let calls = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Connection { calls, expires })
    }

    /// Makes a connection for subscriptions.
    pub(crate) async fn subscriber(&self) -> Result<(PubSub, Option<SystemTime>), RedisError> {
        let (client, expires) = self.signed_in().await?;
        Ok((client.get_async_pubsub().await?, expires))
    }

    /// Whether a connection that signed in with a token of this end should be made anew.
    pub(crate) fn has_newer(&self, signed_in: Option<SystemTime>) -> bool {
        let present = self.identity.as_ref().and_then(|identity| identity.expires());
        present.is_some() && present != signed_in
    }

    /// The client, signed in as the identity if there is one, and the end of its token.
    pub(crate) async fn signed_in(&self) -> Result<(Client, Option<SystemTime>), RedisError> {
        let no_token =
            |why| RedisError::from((ErrorKind::AuthenticationFailed, "the identity has no token", why));
        let signed_in = self.sign_in().await.map_err(no_token)?;
        let Some(SignIn { user, token, expires }) = signed_in else { return Ok((self.client.clone(), None)) };
        let info = self.client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone().set_password(token);
        if let (None, Some(user)) = (settings.username(), user) {
            settings = settings.set_username(user);
        }
        Ok((Client::open(info.set_redis_settings(settings))?, Some(expires)))
    }
}
