//! Decides which of many consecutive failures to log: the first, one a minute, and the recovery.

use std::time::Duration;

use tokio::time::Instant;

/// How often a lasting failure is logged.
const MENTION_EVERY: Duration = Duration::from_mins(1);

/// Consecutive failures of an operation that is repeated.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    row: Option<Row>,
}

#[derive(Debug)]
struct Row {
    since: Instant,
    mentioned: Instant,
    failures: u64,
}

/// The number of consecutive failures and the time since the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lasted {
    pub(super) failures: u64,
    pub(super) since: Duration,
}

impl Trouble {
    /// Notes a failure. Returns the values to log, if it is time to log.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Lasted> {
        let first = self.row.is_none();
        let row = self.row.get_or_insert(Row { since: now, mentioned: now, failures: 0 });
        row.failures += 1;
        if !first && now - row.mentioned < MENTION_EVERY {
            return None;
        }
        row.mentioned = now;
        Some(Lasted { failures: row.failures, since: now - row.since })
    }

    /// Notes a success. Returns the failures before it, if there were any.
    pub(super) fn worked(&mut self, now: Instant) -> Option<Lasted> {
        self.row.take().map(|row| Lasted { failures: row.failures, since: now - row.since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_one_a_minute_and_the_recovery_are_mentioned() {
        let began = Instant::now();
        let mut trouble = Trouble::default();
        let second = |n| began + Duration::from_secs(n);
        assert_eq!(trouble.worked(began), None);
        let mentioned: Vec<_> = (0..150).filter_map(|n| trouble.failed(second(n))).collect();
        let lasted = |failures, seconds| Lasted { failures, since: Duration::from_secs(seconds) };
        assert_eq!(mentioned, [lasted(1, 0), lasted(61, 60), lasted(121, 120)]);
        assert_eq!(trouble.worked(second(150)), Some(lasted(150, 150)));
        assert_eq!(trouble.worked(second(151)), None);
        assert_eq!(trouble.failed(second(152)), Some(lasted(1, 0)));
    }
}
