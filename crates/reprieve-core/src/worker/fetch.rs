//! When to receive: at once while there is work and room for it, ever more rarely while there is none.

use std::time::Duration;

use tokio::time::Instant;

/// The wait after the first empty receive.
const SHORTEST: Duration = Duration::from_millis(100);

/// The longest wait of an idle worker: a Storage queue bills every receive, and a job that waited ten seconds for an
/// idle fleet has not waited long.
const LONGEST: Duration = Duration::from_secs(10);

/// The pace of receiving.
#[derive(Debug)]
pub(super) struct Pace {
    wait: Duration,
    next: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { wait: SHORTEST, next: Instant::now() }
    }

    /// When the next receive is due, if there is room for what it brings.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Something was received, or may have arrived: go on at once.
    pub(super) fn hurry(&mut self) {
        self.wait = SHORTEST;
        self.next = Instant::now();
    }

    /// Nothing was received, or receiving failed: wait, twice as long each time, and a random part of it more or less so
    /// that a fleet does not ask in step.
    pub(super) fn slow_down(&mut self) {
        self.next = Instant::now() + self.wait.mul_f64(0.75 + rand::random::<f64>() / 2.0);
        self.wait = (self.wait * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_worker_asks_ever_more_rarely_and_a_busy_one_at_once() {
        let mut pace = Pace::new();
        let mut waits = Vec::new();
        for _ in 0..9 {
            pace.slow_down();
            waits.push(pace.next() - Instant::now());
        }
        assert!(waits[0] >= SHORTEST.mul_f64(0.75) && waits[0] <= SHORTEST.mul_f64(1.25), "{waits:?}");
        assert!(waits[8] >= LONGEST.mul_f64(0.75) && waits[8] <= LONGEST.mul_f64(1.25), "{waits:?}");
        pace.hurry();
        assert_eq!(pace.next(), Instant::now());
    }
}
