//! One node of a cache, and the connection to it that the calls of all jobs share.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use redis::{ErrorKind, FromRedisValue, RedisError, Value};
use reprieve_core::dependency::breaker::SPREAD;
use reprieve_core::dependency::{BreakerState, DependencyHandle};
use tokio::time::{Instant, sleep};

use crate::command::Command;
use crate::endpoint::{Connection, Endpoint};
use crate::failure::{is_failure, is_refusal};

/// How long a connection may be unused. Azure Cache for Redis closes one after ten minutes, and a NAT gateway
/// forgets one after four; the next call on it would fail.
/// <https://learn.microsoft.com/azure/azure-cache-for-redis/cache-best-practices-connection#idle-timeout>
/// <https://learn.microsoft.com/azure/nat-gateway/nat-gateway-resource#idle-timeout-timers>
const IDLE_MAX: Duration = Duration::from_mins(3);

/// The pause before a connection is made anew after the last one failed without an answer: the first, and the longest.
/// Each is up to half of it shorter at random, so that a fleet does not come at once. Calls wait for it.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A node, by its address.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    state: Arc<NodeState>,
}

#[derive(Default)]
struct NodeState(Mutex<State>);

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// How many there have been.
    links: u64,
    failed_at: Option<Instant>,
    /// Whether a call on the link was answered, and how many links failed in a row without that.
    has_answered: bool,
    failures: u32,
    /// Its failure was logged.
    is_told: bool,
}

/// A connection, or the attempt to make it. Those who call in the meantime share its result, so that only one is
/// made, and a node that is away is tried once and not by each of them in turn.
#[derive(Clone)]
struct Link {
    number: u64,
    connection: Shared<BoxFuture<'static, Result<Connection, RedisError>>>,
    began: Instant,
    used: Instant,
    /// The topology for which it was made, and how long it is used after that has changed.
    topology: u64,
    spread: Duration,
    /// Whether it is tried to be alive now.
    is_tried: Arc<AtomicBool>,
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, state: Arc::default() }
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
                let mut given_up = GivenUp { has_ended: false, node: self, link: &link };
                let answered = command.send(&mut connection.calls).await;
                given_up.has_ended = true;
                answered
            }
            Err(error) => Err(error),
        };
        match &answered {
            Err(error) => self.state.failed(link.number, error),
            Ok(_) => self.state.answered(link.number).is_told = false,
        }
        answered
    }

    /// Whether a failure of it is news: there has been an answer since the last one.
    pub(crate) fn is_news(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_told, true)
    }

    /// Whether a call failed, or was refused, within this time.
    pub(crate) fn has_failed_within(&self, time: Duration) -> bool {
        self.state.lock().failed_at.is_some_and(|at| at.elapsed() < time)
    }

    /// Whether the last connection failed before a call on it was answered: others that are there may go on.
    pub(crate) fn fails_to_connect(&self) -> bool {
        self.state.lock().failures > 0
    }

    /// Returns the present connection, or begins to make one.
    fn link(&self, handle: &DependencyHandle) -> Link {
        let mut state = self.state.lock();
        let pause = state.pause();
        let State { link, links, has_answered, .. } = &mut *state;
        match link {
            Some(link) if !link.is_stale(&self.endpoint, handle) => {
                link.used = Instant::now();
                link.clone()
            }
            link => {
                (*has_answered, *links) = (false, *links + 1);
                link.insert(Link::new(self, *links, handle, pause)).clone()
            }
        }
    }
}

impl NodeState {
    /// Notes an error of a call on this connection, or of the attempt to make it.
    fn failed(&self, link: u64, error: &RedisError) {
        if is_failure(error) {
            self.drop_link(link);
        } else if is_refusal(error) {
            self.answered(link).failed_at = Some(Instant::now());
        } else {
            self.answered(link).is_told = false;
        }
    }

    /// Drops a connection that failed, unless another call did already.
    fn drop_link(&self, failed: u64) {
        let mut state = self.lock();
        state.failed_at = Some(Instant::now());
        let dropped = state.link.take_if(|link| link.number == failed);
        if dropped.is_some() && !state.has_answered {
            state.failures = state.failures.saturating_add(1);
        }
    }

    /// Notes that a call on this connection was answered.
    fn answered(&self, link: u64) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.link.as_ref().is_some_and(|it| it.number == link) {
            (state.has_answered, state.failures) = (true, 0);
        }
        state
    }

    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How long the next attempt to connect waits. One that was lost after it had served is made anew at once, because
    /// jobs wait for it.
    fn pause(&self) -> Duration {
        let (Some(failed_at), 1..) = (self.failed_at, self.failures) else { return Duration::ZERO };
        let pause = PAUSE_MIN.saturating_mul(1 << (self.failures - 1).min(8)).min(PAUSE_MAX);
        pause.mul_f64(rand::random_range(0.5..1.0)).saturating_sub(failed_at.elapsed())
    }
}

/// A call that its caller drops before it is answered, by a limit of its own: the connection may be dead, and nobody
/// else would find out. How long it has waited says little, because a cache may be further away than its caller has
/// patience. So the connection is tried, and dropped if it answers nothing within 500 ms. One that is yet to be made
/// is made nevertheless: callers with little patience would never get any.
struct GivenUp<'a> {
    node: &'a Node,
    link: &'a Link,
    has_ended: bool,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if !self.has_ended && !self.link.is_tried.swap(true, Relaxed) {
            let (node, link) = (Arc::clone(&self.node.state), self.link.clone());
            // Without a runtime there are no calls any more.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    if !link.is_alive().await {
                        node.drop_link(link.number);
                    }
                    link.is_tried.store(false, Relaxed);
                });
            }
        }
    }
}

impl Link {
    /// A task connects, so that it does not stop with the call that began it, and notes if it fails: those who call may
    /// all have given up by then.
    fn new(node: &Node, number: u64, handle: &DependencyHandle, pause: Duration) -> Self {
        let topology = handle.topology();
        let (endpoint, state) = (node.endpoint.clone(), Arc::clone(&node.state));
        let connecting = tokio::spawn(async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            let connected = endpoint.connect().await;
            if let Err(error) = &connected {
                state.failed(number, error);
            }
            connected
        });
        let connection = async {
            // Its task ends early with its runtime alone.
            let ended = |_| RedisError::from((ErrorKind::Io, "the runtime ended"));
            connecting.await.map_err(ended)?
        };
        let now = Instant::now();
        Self {
            number,
            connection: connection.boxed().shared(),
            began: now,
            used: now,
            topology,
            spread: SPREAD.mul_f64(rand::random()),
            is_tried: Arc::default(),
        }
    }

    /// Whether it answers. An answer comes after those to all that was sent before.
    async fn is_alive(&self) -> bool {
        let Ok(mut connection) = self.connection.clone().await else { return false };
        let answered = redis::cmd("PING").query_async::<Value>(&mut connection.calls).await;
        !answered.is_err_and(|error| is_failure(&error))
    }

    fn is_stale(&self, endpoint: &Endpoint, handle: &DependencyHandle) -> bool {
        // Polled once, because nobody may have waited for the end of the attempt.
        let is_over = match self.connection.clone().now_or_never() {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use reprieve_core::dependency::Dependency;
    use reprieve_core::testing::dependency;
    use tokio::net::TcpListener;
    use tokio::runtime::Handle;
    use tokio::task::yield_now;

    use super::*;

    #[derive(Debug)]
    struct Serving;

    #[async_trait::async_trait]
    impl Dependency for Serving {
        async fn probe(&self) -> Result<(), String> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_attempt_to_connect_that_nobody_waited_for_does_not_fail_a_later_call() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (node, handle) =
            (Node::new(Endpoint::open(&url).unwrap()), dependency("cache", Arc::new(Serving)));
        let ping = redis::cmd("PING");
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        assert!(node.query::<Value>(&ping, &handle).now_or_never().is_none(), "its caller gives up");
        drop(listener.accept().await.unwrap());
        while tasks() > before {
            yield_now().await;
        }
        assert!(
            node.fails_to_connect() && node.has_failed_within(Duration::from_secs(60)),
            "nobody noted it"
        );
        tokio::select! {
            biased;
            answered = node.query::<Value>(&ping, &handle) => panic!("it has an old answer: {answered:?}"),
            connected = listener.accept() => drop(connected.unwrap()),
        }
    }
}
