//! The rules of retention, without a store.

use std::time::Duration;

use crate::record::{Record, Status, Unreadable};

/// The least age of an object that is removed: eight days. A message of a job that has ended may
/// live for seven days, a lease may last for seven, and a payload is written ahead of the record
/// that names it: a step that saves nothing for longer than this, or a VM that sleeps for longer,
/// loses what it attached since the last save.
pub const KEPT_MIN: Duration = Duration::from_hours(8 * 24);

/// The default of [`Keep::results`] and [`Keep::drains`].
const KEPT: Duration = Duration::from_hours(30 * 24);

/// The default of [`Keep::ledger`].
const LEDGER_KEPT: Duration = Duration::from_hours(90 * 24);

/// For how long a store keeps what only people use. `None`: forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Results, since they were written. Default: 30 days.
    pub results: Option<Duration>,
    /// Reports of drains, since they were written. Default: 30 days.
    pub drains: Option<Duration>,
    /// Entries of the [ledger](crate::ledger), since they were written. Default: 90 days, which is enough to tell the
    /// hours of the day and the days of the week apart.
    pub ledger: Option<Duration>,
    /// Records, progress and arguments of jobs that did not finish, since they were last written.
    /// Default: forever. A store can't tell a forgotten job from one that waits: choose a time that
    /// no job spends waiting in a queue, and no dead letter in the poison queue.
    pub unfinished: Option<Duration>,
}

impl Default for Keep {
    fn default() -> Self {
        Self { results: Some(KEPT), drains: Some(KEPT), ledger: Some(LEDGER_KEPT), unfinished: None }
    }
}

/// Whether a job's record is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Needed,
    /// The job is over.
    Over,
    /// The job is over if it has a result: then the record is of an owner that was frozen until the
    /// job was done by another.
    OverWithResult,
    /// The record is needed while the job has a result, which would otherwise settle a later job of the same id.
    OverWithoutResult,
}

impl Keep {
    /// Returns a message for each invalid setting.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let all = [
            ("keep-results", self.results),
            ("keep-drains", self.drains),
            ("keep-ledger", self.ledger),
            ("keep-unfinished", self.unfinished),
        ];
        let short = all.into_iter().filter(|(_, keep)| keep.is_some_and(|keep| keep < KEPT_MIN));
        short.map(|(name, _)| format!("{name} must be at least 8 days (192h), or forever")).collect()
    }

    /// Decides now about the record of a job that was written then.
    pub(super) fn fate_of(
        &self,
        record: &Result<Record, Unreadable>,
        written_unix_ms: i64,
        now_unix_ms: i64,
    ) -> Fate {
        if age_of(written_unix_ms, now_unix_ms) < KEPT_MIN {
            return Fate::Needed;
        }
        let record = match record {
            Err(Unreadable::NewerFormat(_)) => return Fate::Needed,
            Err(Unreadable::Damaged(_)) => return self.fate_of_damaged(written_unix_ms, now_unix_ms),
            Ok(record) => record,
        };
        // A record has times of its writer's clock, which may be wrong: only its distances count here.
        let by_the_store =
            |then: i64| written_unix_ms.saturating_add(then.saturating_sub(record.changed_unix_ms).max(0));
        let since = match record.status {
            Status::Done | Status::Cancelled => {
                let expiry = record.expires_unix_ms.map_or(written_unix_ms, by_the_store);
                return match &record.args_sha256 {
                    _ if expiry > now_unix_ms => Fate::Needed,
                    Some(_) => Fate::OverWithoutResult,
                    None => Fate::Over,
                };
            }
            Status::Waiting { due_unix_ms } => by_the_store(due_unix_ms),
            _ => written_unix_ms,
        };
        if self.is_given_up(since, now_unix_ms) { Fate::Over } else { Fate::OverWithResult }
    }

    /// Decides about a record that can't be read. It may be of an id of its producer's own, which is remembered as
    /// long as the result.
    fn fate_of_damaged(&self, written_unix_ms: i64, now_unix_ms: i64) -> Fate {
        if self.is_given_up(written_unix_ms, now_unix_ms) {
            Fate::Over
        } else if self.results.is_some_and(|keep| age_of(written_unix_ms, now_unix_ms) >= keep) {
            Fate::OverWithResult
        } else {
            Fate::Needed
        }
    }

    /// Whether a job of which nothing was written since then counts as forgotten now.
    pub(super) fn is_given_up(&self, since_unix_ms: i64, now_unix_ms: i64) -> bool {
        self.unfinished.is_some_and(|keep| age_of(since_unix_ms, now_unix_ms) >= keep.max(KEPT_MIN))
    }
}

/// The time from `then` to `now`; zero if that is in the future.
pub(super) fn age_of(then_unix_ms: i64, now_unix_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(now_unix_ms.saturating_sub(then_unix_ms)).unwrap_or(0))
}
