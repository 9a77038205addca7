//! One node of a cache, and the connection to it that the calls of all jobs share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use redis::{ErrorKind, FromRedisValue, RedisError};
use reprieve_core::dependency::breaker::SPREAD;
use reprieve_core::dependency::{BreakerState, DependencyHandle};
use tokio::time::Instant;

use crate::command::Command;
use crate::endpoint::{Connection, Endpoint};
use crate::failure::is_failure;

/// How long a connection may be unused. Azure Cache for Redis closes one after ten minutes, and a NAT gateway
/// forgets one after four; the next call on it would fail.
/// <https://learn.microsoft.com/azure/azure-cache-for-redis/cache-best-practices-connection#idle-timeout>
/// <https://learn.microsoft.com/azure/nat-gateway/nat-gateway-resource#idle-timeout-timers>
const IDLE_MAX: Duration = Duration::from_mins(3);

/// A call that was dropped after this time has waited for long: a cache answers within a few milliseconds.
const LONG: Duration = Duration::from_millis(50);

/// A node, by its address.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    failed_at: Option<Instant>,
    /// Its failure was logged.
    is_told: bool,
}

/// A connection, or the attempt to make it. Those who call in the meantime share its result, so that only one is
/// made, and a node that is away is tried once and not by each of them in turn.
#[derive(Clone)]
struct Link {
    connection: Shared<BoxFuture<'static, Result<Connection, RedisError>>>,
    began: Instant,
    used: Instant,
    /// The topology for which it was made, and how long it is used after that has changed.
    topology: u64,
    spread: Duration,
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, state: Mutex::default() }
    }

    /// Sends a command on the shared connection, which is dropped when the node fails.
    pub(crate) async fn query<T: FromRedisValue>(
        &self,
        command: &impl Command,
        handle: &DependencyHandle,
    ) -> Result<T, RedisError> {
        let link = self.link(handle);
        let answered = match link.connection.clone().await {
            Ok(mut connection) => {
                let mut given_up =
                    GivenUp { has_ended: false, node: self, link: &link, sent: Instant::now() };
                let answered = command.send(&mut connection.calls).await;
                given_up.has_ended = true;
                answered
            }
            Err(error) => Err(error),
        };
        match &answered {
            Err(error) if is_failure(error) => self.drop_link(&link),
            _ => self.lock().is_told = false,
        }
        answered
    }

    /// Whether a failure of it is news: there has been an answer since the last one.
    pub(crate) fn is_news(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_told, true)
    }

    /// Whether a call failed within this time.
    pub(crate) fn has_failed_within(&self, time: Duration) -> bool {
        self.lock().failed_at.is_some_and(|at| at.elapsed() < time)
    }

    /// Returns the present connection, or begins to make one.
    fn link(&self, handle: &DependencyHandle) -> Link {
        let mut state = self.lock();
        match &mut state.link {
            Some(link) if !link.is_stale(&self.endpoint, handle) => {
                link.used = Instant::now();
                link.clone()
            }
            link => link.insert(Link::new(self.endpoint.clone(), handle)).clone(),
        }
    }

    /// Drops a connection that failed, unless another call did already.
    fn drop_link(&self, failed: &Link) {
        let mut state = self.lock();
        state.failed_at = Some(Instant::now());
        state.link.take_if(|link| link.connection.ptr_eq(&failed.connection));
    }

    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that its caller drops after it waited for long for an answer, by a limit of its own: the connection may
/// be dead, and nobody else would find out. A connection that is yet to be made is made nevertheless, within a limit
/// of ours: callers with a shorter one would never get any.
struct GivenUp<'a> {
    node: &'a Node,
    link: &'a Link,
    sent: Instant,
    has_ended: bool,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if !self.has_ended && self.sent.elapsed() >= LONG {
            self.node.drop_link(self.link);
        }
    }
}

impl Link {
    /// A task connects, so that it does not stop with the call that began it.
    fn new(endpoint: Endpoint, handle: &DependencyHandle) -> Self {
        let topology = handle.topology();
        let connecting = tokio::spawn(async move { endpoint.connect().await });
        let connection = async {
            // Its task ends early with its runtime alone.
            let ended = |_| RedisError::from((ErrorKind::Io, "the runtime ended"));
            connecting.await.map_err(ended)?
        };
        let now = Instant::now();
        Self {
            connection: connection.boxed().shared(),
            began: now,
            used: now,
            topology,
            spread: SPREAD.mul_f64(rand::random()),
        }
    }

    fn is_stale(&self, endpoint: &Endpoint, handle: &DependencyHandle) -> bool {
        let is_over = match self.connection.peek() {
            Some(Ok(connection)) => endpoint.has_newer(connection.expires),
            Some(Err(_)) => true,
            None => false,
        };
        is_over || self.used.elapsed() >= IDLE_MAX || self.has_other_topology(handle)
    }

    /// While the breaker is closed and has been since the connection was made, that still works, and a whole fleet
    /// has heard of the change at the same moment: each takes its time. Otherwise the connection may lead to a node
    /// that is no primary any more, or nowhere, and the first call would fail; the workers' probes were spread
    /// already, and few calls are let through.
    fn has_other_topology(&self, handle: &DependencyHandle) -> bool {
        let is_at_once = handle.state() != BreakerState::Closed || self.began.elapsed() >= handle.state_age();
        self.topology != handle.topology() && (is_at_once || handle.topology_age() >= self.spread)
    }
}
