//! The store's clock: the wall clock, prevented from going back.

use std::sync::{Mutex, PoisonError};

use reprieve_core::clock::unix_millis;
use tokio::time::Instant;

/// Milliseconds since the Unix epoch. They never go back and never stop.
///
/// Leases and delays are stored as wall-clock times, which several processes compare. With the
/// plain wall clock, setting it back by a minute would hide every message of the last minute for a
/// minute. So a process continues from the greatest time that it has seen, at the speed of the
/// monotonic clock, and processes share that time through the gate (see [`crate::gate`]).
///
/// Limits: if the wall clock was ahead by mistake, the store's clock stays ahead, which only shows
/// in the file. If the wall clock jumps *forward*, leases and delays end early by as much. If it is
/// set back while no process runs, messages are hidden only if the lock files beside the database
/// were removed as well.
#[derive(Debug)]
pub(crate) struct StoreClock(Mutex<Anchor>);

#[derive(Debug, Clone, Copy)]
struct Anchor {
    time: i64,
    at: Instant,
}

impl Anchor {
    fn now(self) -> i64 {
        let since = i64::try_from(self.at.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.time.saturating_add(since)
    }
}

impl StoreClock {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Anchor { time: unix_millis(), at: Instant::now() }))
    }

    /// The current time.
    pub(crate) fn now(&self) -> i64 {
        self.at_least(unix_millis())
    }

    /// The current time, given that it is at least `seen`.
    ///
    /// The anchor moves only when `seen` is later than it: moving it at every call would drop a
    /// fraction of a millisecond each time, and a busy store's clock would stop.
    pub(crate) fn at_least(&self, seen: i64) -> i64 {
        let mut anchor = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen > anchor.now() {
            *anchor = Anchor { time: seen, at: Instant::now() };
        }
        anchor.now()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_back_goes_on_from_the_greatest_time_seen() {
        let clock = StoreClock::new();
        let ahead = clock.now() + 3_600_000;
        assert_eq!(clock.at_least(ahead), ahead);
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_micros(100)).await;
            clock.now();
        }
        assert_eq!(clock.now(), ahead + 1_000, "and keeps the time, however often it is asked");
    }
}
