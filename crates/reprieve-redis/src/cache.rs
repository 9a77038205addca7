//! A Redis cache as a dependency of jobs.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, Value};
use reprieve_core::dependency::{Dependency, Signal};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::ANSWER_WITHIN;
use crate::endpoint::{Connection, Endpoint};
use crate::failure::describe;
use crate::identity::Identity;
use crate::node::Node;
use crate::watch::MaintenanceWatch;

/// With these a primary refuses writes: it is full, its disk is, or it has too few replicas.
const NO_WRITES: [&str; 3] = ["OOM", "MISCONF", "NOREPLICAS"];

/// What `doctor` says of a cluster, and of one of a single node.
const CLUSTER: &str = "it is a node of a cluster, which is not supported: most calls fail";
const LONE_NODE: &str = "it is the only node of a cluster: all calls are served until there is another one";

/// A full cache that removes nothing refuses the writes of values that are larger than what is left. `doctor` says so
/// when this part of its memory is left, in percent.
const LEFT_MIN: u64 = 10;

/// The probe's key.
const PROBE_KEY: &str = "reprieve:probe";

/// How long it is kept, in seconds.
const KEPT_S: u64 = 60;

/// A Redis cache. Its probe writes a key of its own, `reprieve:probe`, on a connection of its own, so a replica
/// that does not know yet that it was promoted, and a wrong password, are away. A full cache that refuses writes is
/// not: it answers reads. A job that needs it and fails then spends no attempt, and others that need it are not begun
/// until a write succeeds.
///
/// A cluster is not supported: its nodes answer with `MOVED`, which counts as a failed call.
pub struct Redis {
    primary: Node,
    replica: Option<Node>,
    /// The probe's connection, until it fails: it is dropped then, because a connection to a node that is no longer
    /// the primary may go on.
    connection: Mutex<Option<Connection>>,
    /// A probe's connection has failed: another node may have become the primary.
    switched: Notify,
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
        Ok(Self {
            primary,
            replica: None,
            connection: Mutex::new(None),
            switched: Notify::new(),
            watch: OnceLock::new(),
        })
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

    /// The client, for its address. [`connect_to_wait`](Self::connect_to_wait) and [`signed_in`](Self::signed_in) are
    /// for connections of the program's own.
    #[must_use]
    pub const fn client(&self) -> &Client {
        self.primary.endpoint.client()
    }

    /// A client for subscriptions of the program's own, by `get_async_pubsub`. With an identity it has the present
    /// token, so take another one for each connection. Its other connections give a command up after 500 ms, the
    /// `redis` crate's default: [`connect_to_wait`](Self::connect_to_wait) is for those that wait.
    ///
    /// # Errors
    /// When the identity has no token within a second.
    pub async fn signed_in(&self) -> Result<Client, RedisError> {
        Ok(self.primary.endpoint.signed_in().await?.0)
    }

    /// A connection to the primary without a limit for an answer, for commands that wait, such as `BLPOP`. They wait
    /// on the server, and what is sent on the same connection meanwhile waits with them, so take one for each. With
    /// an identity it ends with the present token, after some hours at most: make another one when a call fails.
    ///
    /// # Errors
    /// As of the `redis` crate. Connecting may take 500 ms, and an identity's first token a second.
    ///
    /// # Cancel safety
    /// A `BLPOP` that is dropped may still pop an element, which is lost then: give it a time-out of its own, and
    /// await it for longer than that. Against a server that goes silent, await it for some seconds more at most.
    pub async fn connect_to_wait(&self) -> Result<MultiplexedConnection, RedisError> {
        Ok(self.primary.endpoint.connect_within(None).await?.calls)
    }

    /// What is wrong with it that neither its [probe](Dependency::probe) finds nor what it
    /// [refuses](Dependency::refuses), a clause each: for `reprieve doctor`. It takes up to 6 s.
    pub async fn examine(&self) -> Vec<String> {
        let mut of_primary = self.connect().await.ok();
        let mut faults = Vec::new();
        if let Some(primary) = &mut of_primary {
            faults.extend(fault_of_cluster(primary).await);
            faults.extend(fault_of_memory(primary).await);
        }
        if let Some(replica) = &self.replica {
            faults.extend(fault_of_replica(replica, of_primary.as_mut()).await);
        }
        faults
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
        // Where no new one can be made, by a key that was changed for example, an old one shows nothing.
        let may_be_used = |connection: &Connection| {
            !self.primary.fails_to_connect() && !self.primary.endpoint.has_newer(connection.expires)
        };
        taken.filter(may_be_used)
    }

    /// Writes the probe's key: on the connection of the last probe if that works, which the server may have closed
    /// meanwhile, or else on a new one.
    /// If that one fails, as its node is no primary any more or has closed it, those of the jobs may lead there, too, and
    /// have no reason to fail if they only read.
    async fn write(&self) -> Result<(), RedisError> {
        if let Some(kept) = self.take() {
            match self.write_on(kept).await {
                Err(error) if refusal_of_writes(&error).is_none() => self.switched.notify_one(),
                written => return written,
            }
        }
        self.write_on(self.primary.endpoint.connect().await?).await
    }

    async fn write_on(&self, mut connection: Connection) -> Result<(), RedisError> {
        let mut set = redis::cmd("SET");
        set.arg(PROBE_KEY).arg(1).arg("EX").arg(KEPT_S);
        let written = set.query_async::<Value>(&mut connection.calls).await.map(drop);
        // That of a full primary shows that it is one no more when it has become a replica.
        if written.as_ref().map_or_else(|error| refusal_of_writes(error).is_some(), |()| true) {
            *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        }
        written
    }
}

#[async_trait]
impl Dependency for Redis {
    async fn probe(&self) -> Result<(), String> {
        // How long a first token takes is no fault of the cache.
        self.primary.endpoint.sign_in().await?;
        match timeout(3 * ANSWER_WITHIN, self.write()).await {
            // It is the primary, and reads go on.
            Ok(Err(error)) if refusal_of_writes(&error).is_some() => Ok(()),
            Ok(written) => written.map_err(|error| describe(&error)),
            Err(_) => Err(format!("no answer within {:?}", 3 * ANSWER_WITHIN)),
        }
    }

    async fn refuses(&self) -> Option<String> {
        match timeout(3 * ANSWER_WITHIN, self.write()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => match refusal_of_writes(&error) {
                Some(code) => Some(format!("it refuses writes ({code})")),
                // It went away since it was probed.
                None => Some(format!("a write fails ({})", describe(&error))),
            },
            Err(_) => Some(format!("a write has no answer within {:?}", 3 * ANSWER_WITHIN)),
        }
    }

    fn announces(&self) -> &'static str {
        let address = self.client().get_connection_info().addr().to_string();
        announces(address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host))
    }

    async fn next_signal(&self) -> Signal {
        tokio::select! {
            signal = self.watch.get_or_init(|| self.watch()).next() => signal,
            () = self.switched.notified() => {
                tracing::info!("the connection of the last probe failed; those of the jobs are made anew");
                Signal::Switched
            }
        }
    }
}

/// Returns the code with which a primary refused a write, if it did.
fn refusal_of_writes(error: &RedisError) -> Option<&str> {
    error.code().filter(|code| NO_WRITES.contains(code))
}

/// Whether it is a node of a cluster. A user that may not ask is taken to know.
async fn fault_of_cluster(connection: &mut MultiplexedConnection) -> Option<String> {
    if value_of(connection, "cluster", "cluster_enabled").await? != "1" {
        return None;
    }
    let cluster: String = redis::cmd("CLUSTER").arg("INFO").query_async(connection).await.unwrap_or_default();
    let has = |name, wanted| value(&cluster, name).is_some_and(|value| value == wanted);
    let is_lone = has("cluster_size", "1") && has("cluster_slots_ok", "16384");
    Some(if is_lone { LONE_NODE } else { CLUSTER }.to_owned())
}

/// Whether little is left of the memory of one that removes nothing.
async fn fault_of_memory(connection: &mut MultiplexedConnection) -> Option<String> {
    let info: String = redis::cmd("INFO").arg("memory").query_async(connection).await.ok()?;
    let bytes = |name| value(&info, name)?.parse::<u64>().ok();
    let (used, most) = (bytes("used_memory")?, bytes("maxmemory")?);
    let left = most.saturating_sub(used);
    let is_little = most > 0 && u128::from(left) * 100 < u128::from(most) * u128::from(LEFT_MIN);
    (is_little && value(&info, "maxmemory_policy")? == "noeviction").then(|| {
        format!(
            "{} KiB of its {} KiB are left, and it removes nothing (maxmemory-policy noeviction): larger values are \
             refused",
            left / 1024,
            most / 1024
        )
    })
}

/// Whether the replica can't be read, or is that of another cache.
async fn fault_of_replica(node: &Node, primary: Option<&mut MultiplexedConnection>) -> Option<String> {
    let read = async {
        let mut connection = node.endpoint.connect().await?.calls;
        let _value: Value = redis::cmd("GET").arg(PROBE_KEY).query_async(&mut connection).await?;
        Ok::<_, RedisError>(connection)
    };
    let mut connection = match read.await {
        Ok(connection) => connection,
        Err(error) => return Some(format!("its replica can't be read: {}", describe(&error))),
    };
    // A user that may not ask is taken to know.
    let theirs = info(&mut connection, "replication").await?;
    if value(&theirs, "master_link_status") == Some("down") {
        let why =
            "its replica is not connected to its primary, so its data is old (master_link_status is down)";
        return Some(why.to_owned());
    }
    // The id of the data that both have.
    let ours = value_of(primary?, "replication", "master_replid").await?;
    (value(&theirs, "master_replid") != Some(&*ours))
        .then(|| "its replica has the data of another cache, or is not in step yet".to_owned())
}

/// Returns a value of a section of its `INFO`; `None` if the user may not ask, or there is none.
async fn value_of(connection: &mut MultiplexedConnection, section: &str, name: &str) -> Option<String> {
    value(&info(connection, section).await?, name).map(str::to_owned)
}

async fn info(connection: &mut MultiplexedConnection, section: &str) -> Option<String> {
    redis::cmd("INFO").arg(section).query_async(connection).await.ok()
}

fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let values = info.lines().filter_map(|line| line.trim_end().split_once(':'));
    values.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
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
