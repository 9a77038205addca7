//! What can be sent to a cache.

use std::future::Future;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline, RedisResult};

/// A command, or several in a pipeline or a transaction: [`cmd`](redis::cmd) and [`pipe`](redis::pipe) make them.
/// One that waits for others, such as `BLPOP`, is no call of a job: it would end after 500 ms. See
/// [`Redis::connect_to_wait`](crate::Redis::connect_to_wait).
pub trait Command: sealed::Sealed + Sync {
    /// Sends it on a connection.
    fn send<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> impl Future<Output = RedisResult<T>> + Send;
}

impl Command for Cmd {
    async fn send<T: FromRedisValue>(&self, connection: &mut MultiplexedConnection) -> RedisResult<T> {
        self.query_async(connection).await
    }
}

impl Command for Pipeline {
    async fn send<T: FromRedisValue>(&self, connection: &mut MultiplexedConnection) -> RedisResult<T> {
        self.query_async(connection).await
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for redis::Cmd {}
    impl Sealed for redis::Pipeline {}
}
