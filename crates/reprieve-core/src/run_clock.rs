//! The time for which this process runs. It stands still while the machine is frozen: in a live migration, or while
//! the process is stopped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// By default, a longer time between two looks is a freeze. The worker looks each second, and a busy machine may let it wait.
const FREEZE: Duration = Duration::from_secs(3);

/// A look so soon after another is not noted: the threads of jobs look at each step, and would wait for each other. So a
/// freeze takes up to that much of the time before it, too.
const SOON: Duration = Duration::from_millis(1);

/// The clock of one worker. Clones are handles to the same clock.
#[derive(Debug, Clone)]
pub(crate) struct RunClock(Arc<Looks>);

/// The looks at the clock. Times are in nanoseconds since it began.
#[derive(Debug)]
struct Looks {
    began: Instant,
    /// A longer time between two looks is a freeze.
    freeze: Duration,
    /// The last look that was noted.
    last: AtomicU64,
    /// How long the machine was frozen.
    frozen: AtomicU64,
    /// Held by the thread that counts a freeze.
    counts: Mutex<()>,
}

impl Default for RunClock {
    fn default() -> Self {
        Self::new(FREEZE)
    }
}

impl RunClock {
    /// Creates a clock for which a longer time than `freeze` between two looks is a freeze.
    pub(crate) fn new(freeze: Duration) -> Self {
        let (last, frozen, counts) = Default::default();
        Self(Arc::new(Looks { began: Instant::now(), freeze, last, frozen, counts }))
    }

    /// Returns the time for which the process has run. Each call is a look: without one for three seconds, by default, the
    /// clock takes the machine for frozen.
    pub(crate) fn now(&self) -> Duration {
        let looks = &*self.0;
        // The time is read last: whoever sees a freeze counted, but not yet the look after it, finds a gap too and
        // waits for that look.
        let last = Duration::from_nanos(looks.last.load(Ordering::Acquire));
        let frozen = Duration::from_nanos(looks.frozen.load(Ordering::Acquire));
        let at = looks.began.elapsed();
        match at.saturating_sub(last) {
            gap if gap > looks.freeze => looks.now_after_a_freeze(),
            gap => {
                if gap > SOON {
                    looks.note(at);
                }
                at.saturating_sub(frozen)
            }
        }
    }
}

impl Looks {
    /// Counts the freeze, unless another thread did.
    fn now_after_a_freeze(&self) -> Duration {
        let _alone = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut frozen = Duration::from_nanos(self.frozen.load(Ordering::Acquire));
        let (last, at) = (Duration::from_nanos(self.last.load(Ordering::Acquire)), self.began.elapsed());
        let gap = at.saturating_sub(last);
        if gap > self.freeze {
            frozen += gap;
            self.frozen.store(nanos(frozen), Ordering::Release);
        }
        self.note(at);
        at.saturating_sub(frozen)
    }

    fn note(&self, at: Duration) {
        self.last.fetch_max(nanos(at), Ordering::Release);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_freeze_counts_once_however_many_threads_find_it() {
        let clock = RunClock::default();
        for freezes in 1..=50 {
            advance(FREEZE * 2).await;
            let runtime = tokio::runtime::Handle::current();
            let look = || {
                let _paused = runtime.enter();
                clock.now()
            };
            let seen: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(look)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(seen, [Duration::ZERO; 4], "freeze {freezes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_stands_still_while_nobody_can_look() {
        let (clock, mut ran) = (RunClock::default(), 0);
        for (after_ms, counts) in
            [(1_000, true), (2_900, true), (15_000, false), (2, true), (3_600_000, false), (1_000, true)]
        {
            advance(Duration::from_millis(after_ms)).await;
            ran += if counts { after_ms } else { 0 };
            assert_eq!(clock.now(), Duration::from_millis(ran), "after {after_ms} ms");
        }
        assert_eq!(clock.clone().now(), clock.now());
    }
}
