//! Waiting for a condition, with a time limit.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Polls `condition` until it returns a value, and returns that.
pub(crate) async fn until<T>(
    what: &str,
    limit: Duration,
    every: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(there) = condition()? {
            return Ok(there);
        }
        if began.elapsed() > limit {
            bail!("waited {limit:?} in vain until {what}");
        }
        sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_what_it_waited_for_or_at_its_limit() {
        let mut looks = 0;
        let second = Duration::from_secs(1);
        let found = until("the third look", 10 * second, second, || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.await.unwrap(), 3);
        let never = until("never", 10 * second, second, || Ok(None::<()>)).await.unwrap_err();
        assert_eq!(never.to_string(), "waited 10s in vain until never");
    }
}
