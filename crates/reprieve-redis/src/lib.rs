//! A Redis cache as a [`Dependency`](reprieve_core::dependency::Dependency) of jobs.
//!
//! Jobs call it by [`Redis::of`]. [`Redis`] probes the cache as jobs use it, and hears the maintenance
//! notifications that Azure Cache for Redis publishes. They are one input of the worker's circuit breaker, and
//! all goes on right when none ever comes: the service retires on 2028-09-30, its successor is not known to send
//! them, and users of the best-known client call them
//! [unreliable](https://github.com/StackExchange/StackExchange.Redis/issues/2405).

mod cache;
mod calls;
mod command;
mod endpoint;
mod failure;
mod identity;
mod node;
mod notification;
mod watch;

pub use cache::Redis;
pub use calls::Calls;
pub use command::Command;
pub use failure::{describe, is_failure};
pub use identity::{Identity, SignIn};
pub use notification::{Notification, NotificationType};
pub use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value, cmd, pipe};
pub use watch::{CHANNEL, Heard, MaintenanceWatch};

/// How long a connection, and an answer, may take.
const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_millis(500);
