//! A Redis cache as a dependency of jobs.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, Value};
use reprieve_core::dependency::{Dependency, Signal};
use tokio::time::timeout;

use crate::ANSWER_WITHIN;
use crate::endpoint::{Connection, Endpoint};
use crate::failure::describe;
use crate::identity::Identity;
use crate::node::Node;
use crate::watch::MaintenanceWatch;

/// With these a primary refuses writes: it is full, its disk is, or it has too few replicas.
const NO_WRITES: [&str; 3] = ["OOM", "MISCONF", "NOREPLICAS"];

/// What `doctor` says of a cluster.
const CLUSTER: &str = "it is a node of a cluster, which is not supported: most calls fail";

/// How long the probe's key is kept, in seconds.
const KEPT_S: u64 = 60;

/// A Redis cache. Its probe writes a key of its own, `reprieve:probe`, on a connection of its own, so a replica
/// that does not know yet that it was promoted, and a wrong password, are away. A full cache that refuses writes is
/// not: it answers reads. A job that needs it and fails meanwhile spends no attempt.
///
/// A cluster is not supported: its nodes answer with `MOVED`, which counts as a failed call.
pub struct Redis {
    primary: Node,
    replica: Option<Node>,
    /// The probe's connection, until it fails: it is dropped then, because a connection to a node that is no longer
    /// the primary may go on.
    connection: Mutex<Option<Connection>>,
    /// Begins with the first look for a signal, which is on the worker's runtime.
    watch: OnceLock<MaintenanceWatch>,
}

impl Redis {
    /// A cache at `url`: `redis://[user]:password@host[:port][/database]`, or `rediss://…` with TLS, as Azure Cache
    /// for Redis wants it on port 6380.
    ///
    /// # Errors
    /// Why the URL can't be used, in one sentence that does not repeat it: it has a password.
    pub fn open(url: &str) -> Result<Self, String> {
        let primary = Node::new(Endpoint::open(url)?);
        Ok(Self { primary, replica: None, connection: Mutex::new(None), watch: OnceLock::new() })
    }

    /// Adds a replica, which [`read`](crate::Calls::read) prefers. Azure Cache for Redis has the nodes of a Premium
    /// cache at ports of their own, `rediss://:KEY@NAME.redis.cache.windows.net:15001` for the second one; the
    /// resource's property `instances` says which nodes there are. A replica that was promoted goes on to answer.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn with_replica(self, url: &str) -> Result<Self, String> {
        let mut endpoint = Endpoint::open(url)?;
        if let Some(identity) = self.primary.endpoint.identity() {
            endpoint = endpoint.with_identity(identity)?;
        }
        Ok(Self { replica: Some(Node::new(endpoint)), ..self })
    }

    /// Signs in with the tokens of an identity in place of the URL's password, at the replica, too.
    ///
    /// # Errors
    /// When the URL is without TLS, and not this machine's.
    pub fn with_identity(self, identity: impl Identity) -> Result<Self, String> {
        let identity: Arc<dyn Identity> = Arc::new(identity);
        let sign_in = |node: Node| node.endpoint.with_identity(Arc::clone(&identity)).map(Node::new);
        Ok(Self { primary: sign_in(self.primary)?, replica: self.replica.map(sign_in).transpose()?, ..self })
    }

    /// Whether the cache is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.primary.endpoint.is_local()
    }

    /// The client, for its address. [`signed_in`](Self::signed_in) is for connections of the program's own.
    #[must_use]
    pub const fn client(&self) -> &Client {
        self.primary.endpoint.client()
    }

    /// A client for connections of the program's own, without a limit for an answer: for subscriptions, and for
    /// commands that wait, such as `BLPOP`. With an identity it has the present token, so take another one for each
    /// connection.
    ///
    /// # Errors
    /// When the identity has no token within a second.
    pub async fn signed_in(&self) -> Result<Client, RedisError> {
        Ok(self.primary.endpoint.signed_in().await?.0)
    }

    /// What is wrong with it that neither its [probe](Dependency::probe) finds nor what it
    /// [refuses](Dependency::refuses), a clause each: for `reprieve doctor`. It takes up to 4 s.
    pub async fn examine(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.is_of_cluster().await {
            faults.push(CLUSTER.to_owned());
        }
        if let Some(replica) = &self.replica
            && let Err(error) = replica.endpoint.connect().await
        {
            faults.push(format!("its replica can't be read: {}", describe(&error)));
        }
        faults
    }

    /// Whether it is a node of a cluster. A user that may not ask is taken to know.
    async fn is_of_cluster(&self) -> bool {
        let Ok(mut connection) = self.connect().await else { return false };
        let info: Result<String, _> = redis::cmd("INFO").arg("cluster").query_async(&mut connection).await;
        info.is_ok_and(|info| info.contains("cluster_enabled:1"))
    }

    /// A connection to the primary that answers within 500 ms or fails, for what [`Calls`](crate::Calls) can't do.
    /// Make another one when a call has failed, or the handle's
    /// [topology](reprieve_core::dependency::DependencyHandle::topology) has changed.
    ///
    /// # Errors
    /// As of the `redis` crate.
    pub async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        Ok(self.primary.endpoint.connect().await?.calls)
    }

    pub(crate) const fn primary(&self) -> &Node {
        &self.primary
    }

    pub(crate) const fn replica(&self) -> Option<&Node> {
        self.replica.as_ref()
    }

    /// Begins to watch the cache's maintenance notifications, beside what a worker hears. The watch is a task of the
    /// current runtime.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn watch(&self) -> MaintenanceWatch {
        MaintenanceWatch::spawn(self.primary.endpoint.clone())
    }

    /// For how long it has not been subscribed to the cache's notifications; `None` while it is, or before it began.
    #[must_use]
    pub fn deaf_for(&self) -> Option<std::time::Duration> {
        self.watch.get().and_then(MaintenanceWatch::deaf_for)
    }

    fn take(&self) -> Option<Connection> {
        let taken = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.filter(|connection| !self.primary.endpoint.has_newer(connection.expires))
    }

    /// Writes the probe's key: on the connection of the last probe if that works, which the server may have closed
    /// meanwhile, or else on a new one.
    async fn write(&self) -> Result<(), RedisError> {
        if let Some(kept) = self.take()
            && self.write_on(kept).await.is_ok()
        {
            return Ok(());
        }
        self.write_on(self.primary.endpoint.connect().await?).await
    }

    async fn write_on(&self, mut connection: Connection) -> Result<(), RedisError> {
        let mut set = redis::cmd("SET");
        set.arg("reprieve:probe").arg(1).arg("EX").arg(KEPT_S);
        let _written: Value = set.query_async(&mut connection.calls).await?;
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        Ok(())
    }
}

#[async_trait]
impl Dependency for Redis {
    async fn probe(&self) -> Result<(), String> {
        // How long a first token takes is no fault of the cache.
        self.primary.endpoint.sign_in().await?;
        match timeout(3 * ANSWER_WITHIN, self.write()).await {
            // It is the primary, and reads go on.
            Ok(Err(error)) if error.code().is_some_and(|code| NO_WRITES.contains(&code)) => Ok(()),
            Ok(written) => written.map_err(|error| describe(&error)),
            Err(_) => Err(format!("no answer within {:?}", 3 * ANSWER_WITHIN)),
        }
    }

    async fn refuses(&self) -> Option<String> {
        let written = timeout(3 * ANSWER_WITHIN, self.write()).await.ok()?;
        let error = written.err()?;
        let code = error.code().filter(|code| NO_WRITES.contains(code))?;
        Some(format!("it refuses writes ({code})"))
    }

    fn announces(&self) -> &'static str {
        let address = self.client().get_connection_info().addr().to_string();
        announces(address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host))
    }

    async fn next_signal(&self) -> Signal {
        self.watch.get_or_init(|| self.watch()).next().await
    }
}

/// What a server at this host is known to announce, by the domains of the two services.
/// <https://learn.microsoft.com/azure/redis/overview>
fn announces(host: &str) -> &'static str {
    const OF_CACHE: [&str; 3] =
        [".redis.cache.windows.net", ".redis.cache.chinacloudapi.cn", ".redis.cache.usgovcloudapi.net"];
    const OF_MANAGED: [&str; 2] = [".redis.azure.net", ".redisenterprise.cache.azure.net"];
    let is_of = |domains: &[&str]| domains.iter().any(|domain| host.to_ascii_lowercase().ends_with(domain));
    if is_of(&OF_CACHE) {
        "Azure Cache for Redis announces most maintenance, but not reliably, and retires on 2028-09-30"
    } else if is_of(&OF_MANAGED) {
        "Azure Managed Redis is not known to announce maintenance, so the first calls of jobs fail at a failover"
    } else {
        "a server of this kind announces no maintenance, so the first calls of jobs fail when it goes"
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("address", &self.client().get_connection_info().addr().to_string())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cache_announces_shows_in_its_name() {
        for (url, known) in [
            ("rediss://:key@thumbs.redis.cache.windows.net:6380", "Azure Cache for Redis announces"),
            ("rediss://:key@THUMBS.redis.cache.windows.net:6380", "Azure Cache for Redis announces"),
            ("rediss://:key@thumbs.westeurope.redis.azure.net:10000", "Azure Managed Redis is not known"),
            ("redis://localhost", "announces no maintenance"),
            ("redis://redis.cache.windows.net.example.org", "announces no maintenance"),
        ] {
            assert!(Redis::open(url).unwrap().announces().contains(known), "{url}");
        }
    }
}
