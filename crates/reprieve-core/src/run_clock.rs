//! The time for which this process runs. It stands still while the machine is frozen: in a live migration, or while
//! the process is stopped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A longer time between two looks is a freeze. The worker looks each second, and a busy machine may let it wait.
const FREEZE: Duration = Duration::from_secs(3);

/// The clock of one worker. Clones are handles to the same clock.
#[derive(Debug, Clone)]
pub(crate) struct RunClock(Arc<Mutex<Look>>);

/// The last look at the clock.
#[derive(Debug)]
struct Look {
    at: Instant,
    ran: Duration,
}

impl Default for RunClock {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Look { at: Instant::now(), ran: Duration::ZERO })))
    }
}

impl RunClock {
    /// Returns the time for which the process has run. Each call is a look: without one for three seconds, the clock
    /// takes the machine for frozen.
    pub(crate) fn now(&self) -> Duration {
        let mut look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gap = now.saturating_duration_since(std::mem::replace(&mut look.at, now));
        if gap <= FREEZE {
            look.ran += gap;
        }
        look.ran
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_stands_still_while_nobody_can_look() {
        let (clock, mut ran) = (RunClock::default(), 0);
        for (after_ms, counts) in
            [(1_000, true), (2_900, true), (15_000, false), (1, true), (3_600_000, false), (1_000, true)]
        {
            advance(Duration::from_millis(after_ms)).await;
            ran += if counts { after_ms } else { 0 };
            assert_eq!(clock.now(), Duration::from_millis(ran), "after {after_ms} ms");
        }
        assert_eq!(clock.clone().now(), clock.now());
    }
}
