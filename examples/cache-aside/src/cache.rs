//! The cache: copies of products, each with the version of its row.

use reprieve::JobContext;
use reprieve::dependency::CallError;
use reprieve::redis::{Cmd, FromRedisValue, Redis, cmd};
use tokio::time::Instant;

use crate::store::Product;

/// How long a copy is kept, in seconds.
const KEPT_S: u32 = 3600;

/// Returns the copy of a product, which may be old; `None` when there is none, or the cache is away.
pub(crate) async fn get(cx: &JobContext, shop: &str, id: u32) -> Option<Product> {
    let copy: Option<Vec<u8>> = call(cx, cmd("GET").arg(key(shop, id))).await?;
    serde_json::from_slice(&copy?).ok()
}

/// Keeps a copy of a product, or does not.
pub(crate) async fn put(cx: &JobContext, shop: &str, product: Product) {
    let Ok(copy) = serde_json::to_vec(&product) else { return };
    let _put: Option<()> =
        call(cx, cmd("SET").arg(key(shop, product.id)).arg(copy).arg("EX").arg(KEPT_S)).await;
}

fn key(shop: &str, id: u32) -> String {
    format!("cache-aside:{shop}:{id}")
}

/// Makes a call, without a second try: the store has everything, and what is not put is put the next time.
async fn call<T: FromRedisValue>(cx: &JobContext, command: &Cmd) -> Option<T> {
    let cache = cx.dependency("cache");
    let (began, breaker) = (Instant::now(), cache.state());
    match Redis::of(cache).query(command).await {
        Ok(answer) => Some(answer),
        Err(CallError::Open) => None,
        Err(CallError::Failed(error)) => {
            let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(%error, %breaker, took_us, "failed to call the cache; doing without");
            None
        }
    }
}
