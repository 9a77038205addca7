//! Asks again while the answer may still come.

use std::time::Duration;

use reprieve::Result;
use tokio::time::{Instant, sleep};

/// How long after a failure it is asked again: all processes of a VM share five requests a second.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting>
const PAUSE: Duration = Duration::from_secs(1);

/// Calls until it succeeds, fails for good, or `within` is over, and returns what came last. Each call is told how long
/// it may take.
pub(super) async fn patiently<T>(
    within: Duration,
    mut call: impl AsyncFnMut(Duration) -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        let result = call(deadline.saturating_duration_since(Instant::now())).await;
        match result {
            Err(error) if error.is_temporary() && Instant::now() + PAUSE < deadline => sleep(PAUSE).await,
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use reprieve::{Error, ErrorKind};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_again_until_the_time_is_over() {
        let busy = || Error::new(ErrorKind::Unavailable, "ask", "busy");
        let began = Instant::now();
        let mut lefts = Vec::new();
        let result = patiently(Duration::from_millis(2_500), async |left| {
            lefts.push(left.as_millis());
            Err::<(), _>(busy())
        })
        .await;
        assert_eq!(result.expect_err("never answered").kind(), ErrorKind::Unavailable);
        assert_eq!((lefts, began.elapsed()), (vec![2_500, 1_500, 500], Duration::from_secs(2)));

        let mut calls = 0;
        let third = patiently(Duration::from_secs(10), async |_| {
            calls += 1;
            if calls < 3 { Err(busy()) } else { Ok(calls) }
        });
        assert_eq!(third.await.expect("the third is answered"), 3);

        let mut calls = 0;
        let refused = patiently(Duration::from_secs(10), async |_| {
            calls += 1;
            Err::<(), _>(Error::new(ErrorKind::Invalid, "ask", "no"))
        });
        refused.await.expect_err("it is refused for good");
        assert_eq!(calls, 1);
    }
}
