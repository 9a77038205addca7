//! The calls of jobs on a cache.

use std::time::Duration;

use redis::{FromRedisValue, RedisError};
use reprieve_core::dependency::{BreakerState, CallError, DependencyHandle};

use crate::cache::Redis;
use crate::command::Command;
use crate::failure::{describe, is_failure, is_refusal};

/// How long the primary is read after a replica failed: as long as the longest pause between the breaker's probes.
const REPLICA_PAUSE: Duration = Duration::from_secs(10);

/// A cache as a job calls it: behind its breaker, on a connection that the worker's jobs share and that follows the
/// cache through a failover. From [`Redis::of`].
#[derive(Debug, Clone, Copy)]
pub struct Calls<'a> {
    cache: &'a Redis,
    handle: &'a DependencyHandle,
}

impl Redis {
    /// The cache that is the worker's dependency `handle`, to call it.
    ///
    /// # Example: a value that is computed when the cache is away
    /// ```
    /// use reprieve_core::JobContext;
    /// use reprieve_redis::{Redis, cmd};
    ///
    /// async fn thumbnail(cx: &JobContext, key: &str) -> Vec<u8> {
    ///     let cache = Redis::of(cx.dependency("cache"));
    ///     match cache.query(cmd("GET").arg(key)).await {
    ///         Ok(Some(found)) => found,
    ///         Ok(None) | Err(_) => draw(key),
    ///     }
    /// }
    /// # fn draw(_: &str) -> Vec<u8> { Vec::new() }
    /// ```
    ///
    /// # Panics
    /// When the dependency is no Redis cache: a mistake in the worker's settings.
    #[must_use]
    pub fn of(handle: &DependencyHandle) -> Calls<'_> {
        let name = handle.name();
        let cache = handle.dependency().unwrap_or_else(|| {
            panic!(
                "the dependency {name:?} is no Redis cache; write redis = \"…\" below [dependencies.{name}]"
            )
        });
        Calls { cache, handle }
    }
}

impl Calls<'_> {
    /// Sends a command to the primary. A connection on which a call failed, by a time-out or `READONLY` for example,
    /// is not used again, and neither is one to a node that has another part since a failover.
    ///
    /// A cache that refuses the command because it is full, or has too few replicas, or does not let the user, is not
    /// away. If the step fails then, and its job needs the cache, that is
    /// [excused](DependencyHandle::refused).
    ///
    /// # Errors
    /// [`CallError::Open`] while the cache is away; else that of the `redis` crate. Whether a command that failed
    /// was carried out is not known, unless the server refused it.
    ///
    /// # Cancel safety
    /// A call that is dropped may be carried out.
    pub async fn query<T: FromRedisValue>(&self, command: &impl Command) -> Result<T, CallError<RedisError>> {
        let answered = self.handle.call(self.cache.primary().query(command, self.handle), is_failure).await;
        if let Err(CallError::Failed(error)) = &answered
            && is_refusal(error)
        {
            self.handle.refused(&describe(error));
        }
        answered
    }

    /// Sends a command that only reads to the replica, if the cache [has one](Redis::with_replica) and it is in no
    /// maintenance; else, or if it fails or refuses, to the primary. A replica that fails does not count against the cache. It
    /// may answer with what was written some time ago.
    ///
    /// # Errors
    /// As of [`query`](Self::query).
    pub async fn read<T: FromRedisValue>(&self, command: &impl Command) -> Result<T, CallError<RedisError>> {
        if self.handle.state() == BreakerState::Closed
            && !self.handle.avoids_replicas()
            && let Some(replica) = self.cache.replica()
            && !replica.has_failed_within(REPLICA_PAUSE)
        {
            match replica.query(command, self.handle).await {
                Err(error) if is_failure(&error) || is_refusal(&error) => {
                    if replica.is_news() {
                        let (dependency, why) = (self.handle.name(), describe(&error));
                        tracing::warn!(dependency, why, "the cache's replica fails; the primary is read");
                    }
                }
                answered => return answered.map_err(CallError::Failed),
            }
        }
        self.query(command).await
    }
}
